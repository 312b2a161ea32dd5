"""The definition of the masked-softmax sampling kernel, in plain torch. Every fast file has these signatures.

Letters: M masked positions of the whole batch, D width, V vocabulary, N blocks of the vocabulary,
K ids of a block.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 128
"""Ids in a block of the inverse cumulative distribution."""

NOT_FORBIDDEN = -1
"""Entry of `forbidden_M` for a row in which every id may be sampled."""


class MaskedSample(NamedTuple):
    """What one call of the kernel yields."""

    loss_sum: Tensor
    """0-d; Σ weight · loss. The only result that carries a gradient."""
    loss_M: Tensor
    """Cross entropy of each row in nats at temperature 1, detached; 0 in an unused slot."""
    sampled_M: Tensor
    """int64; one id a row, drawn at the temperature; the target itself in an unused slot."""


def masked_sample(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    weight_M: Tensor,
    uniform_M: Tensor,
    *,
    temperature: float = 1.0,
    forbidden_M: Tensor | None = None,
    num_padding_ids: int = 0,
) -> MaskedSample:
    """Cross entropy of each row against its target, and one id a row from softmax(logits / temperature).

    The package's `masked_sample` states what goes in; here nothing is checked. The last `num_padding_ids`
    ids are in neither distribution. The forbidden id is never sampled but counts in the loss.
    """
    is_used_M = weight_M != 0
    # 0 · NaN is NaN: what an unused slot holds must not reach the product, nor its gradient.
    hidden_MD = hidden_MD.masked_fill(~is_used_M[:, None], 0.0)
    logits_MV = token_logits(hidden_MD, table_VD, bias_V, num_padding_ids)
    is_finite_M = logits_MV.isfinite().all(1)

    loss_M = cross_entropy(logits_MV, target_M.where(is_used_M, 0), is_finite_M).where(is_used_M, 0.0)
    loss_sum = (loss_M * weight_M.to(loss_M.dtype)).sum()

    usable_MV = logits_MV.detach().masked_fill(~is_finite_M[:, None], 0.0)
    if forbidden_M is not None:
        usable_MV = without_forbidden(usable_MV, forbidden_M)
    sampled_M = sample_from_logits(usable_MV, uniform_M, temperature)
    return MaskedSample(loss_sum, loss_M.detach(), sampled_M.where(is_used_M, target_M))


def token_log_prob(
    hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor, target_M: Tensor, *, num_padding_ids: int = 0
) -> Tensor:
    """log softmax(logits)[target] of each row, differentiable row by row; NaN where a logit is not finite."""
    logits_MV = token_logits(hidden_MD, table_VD, bias_V, num_padding_ids)
    return -cross_entropy(logits_MV, target_M, logits_MV.isfinite().all(1))


def matmul_dtype(hidden_MD: Tensor, table_VD: Tensor) -> torch.dtype:
    """The precision of the products: autocast's where it is on, else the wider of the two inputs."""
    device = hidden_MD.device.type
    wider = torch.promote_types(hidden_MD.dtype, table_VD.dtype)
    if torch.is_autocast_enabled(device) and wider != torch.float64:
        return torch.get_autocast_dtype(device)
    return wider


def token_logits(hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor, num_padding_ids: int) -> Tensor:
    """Logits of the ids that are not padding, in float32 (float64 if the product is float64)."""
    num_ids = table_VD.shape[0] - num_padding_ids
    dtype = matmul_dtype(hidden_MD, table_VD)
    product_MV = functional.linear(hidden_MD.to(dtype), table_VD[:num_ids].to(dtype))
    work_dtype = torch.promote_types(product_MV.dtype, torch.float32)
    return product_MV.to(work_dtype) + bias_V[:num_ids].to(work_dtype)


def cross_entropy(logits_MV: Tensor, target_M: Tensor, is_finite_M: Tensor) -> Tensor:
    """Loss of each row; it and its gradient are NaN where a logit is not finite."""
    loss_M = functional.cross_entropy(logits_MV, target_M, reduction="none")
    return loss_M * torch.ones_like(loss_M).masked_fill(~is_finite_M, torch.nan)


def without_forbidden(logits_MV: Tensor, forbidden_M: Tensor) -> Tensor:
    """The logits with -inf at the forbidden id of each row that has one."""
    is_forbidden_M = forbidden_M != NOT_FORBIDDEN
    column_M1 = forbidden_M.where(is_forbidden_M, 0)[:, None]
    kept_M1 = logits_MV.gather(1, column_M1)
    return logits_MV.scatter(1, column_M1, kept_M1.masked_fill(is_forbidden_M[:, None], -torch.inf))


def sample_from_logits(logits_MV: Tensor, uniform_M: Tensor, temperature: float) -> Tensor:
    """One id a row by inverting the cumulative distribution block by block.

    The largest logit of each row must be finite; ids at -inf are never drawn. The weights are float32, their
    sums float64. `max` is taken over what may be sampled, so the total is ≥ 1 whatever is forbidden.
    """
    weight_MV = ((logits_MV - logits_MV.amax(1, keepdim=True)) / temperature).exp()
    num_blocks = -(-weight_MV.shape[1] // BLOCK)
    padded_MV = functional.pad(weight_MV, (0, num_blocks * BLOCK - weight_MV.shape[1]))
    weight_MNK = padded_MV.view(-1, num_blocks, BLOCK)
    block_sum_MN = weight_MNK.sum(2, dtype=torch.float64)
    block_M, rest_M = choose_block(block_sum_MN, uniform_M)
    index_M1K = block_M[:, None, None].expand(-1, 1, BLOCK)
    return block_M * BLOCK + choose_in_block(weight_MNK.gather(1, index_M1K).squeeze(1), rest_M)


def choose_block(block_sum_MN: Tensor, uniform_M: Tensor) -> tuple[Tensor, Tensor]:
    """The first block whose prefix exceeds uniform · total, and what of that is left for the block itself."""
    prefix_MN = block_sum_MN.cumsum(1)
    threshold_M1 = uniform_M[:, None] * prefix_MN[:, -1:]
    # Rounding can lift the threshold to the total itself; then the last block that holds anything is meant.
    block_M = torch.minimum((prefix_MN <= threshold_M1).sum(1), last_positive(block_sum_MN))
    before_MN = functional.pad(prefix_MN[:, :-1], (1, 0))
    rest_M1 = threshold_M1 - before_MN.gather(1, block_M[:, None])
    return block_M, rest_M1.squeeze(1)


def choose_in_block(weight_MK: Tensor, rest_M: Tensor) -> Tensor:
    """The first place of the block whose running sum exceeds the rest, else the last one of weight > 0."""
    running_MK = weight_MK.cumsum(1, dtype=torch.float64)
    return torch.minimum((running_MK <= rest_M[:, None]).sum(1), last_positive(weight_MK))


def last_positive(value_MN: Tensor) -> Tensor:
    """The last column of each row with a value > 0; at least one must be."""
    num_columns = value_MN.shape[1]
    return num_columns - 1 - (value_MN > 0).flip(1).to(torch.uint8).argmax(1)
