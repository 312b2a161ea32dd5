"""`token_log_prob` on CPU through the same tiles; two operators, the second computes the logits again.

Letters: M rows of the whole batch, R rows of a tile, D width, V vocabulary, U ids rounded up to whole blocks.
"""

from typing import Any

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.cpu import like_wanted, shaped_as_inputs
from electra_cli.kernels.masked_sampling.gradients import Gradients
from electra_cli.kernels.masked_sampling.native_loops import make_loops
from electra_cli.kernels.masked_sampling.reference import matmul_dtype
from electra_cli.kernels.masked_sampling.tiles import (
    Product,
    Workspace,
    compute_logits,
    weigh_tile,
)


def token_log_prob(
    hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor, target_M: Tensor, *, num_padding_ids: int = 0
) -> Tensor:
    """As in `reference`; backward computes the logits of each tile again."""
    return log_prob_in_tiles(
        hidden_MD, table_VD, bias_V, target_M, num_padding_ids=num_padding_ids, is_native=False
    )


def log_prob_in_tiles(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    *,
    num_padding_ids: int,
    is_native: bool,
) -> Tensor:
    """`token_log_prob`, with its passes in plain torch or compiled."""
    dtype = matmul_dtype(hidden_MD, table_VD)
    results: tuple[Tensor, Tensor, Tensor] = _token_log_prob(
        hidden_MD, table_VD, bias_V, target_M, num_padding_ids, dtype, is_native
    )
    return results[0]


@torch.library.custom_op("electra::token_log_prob_cpu", mutates_args=(), device_types="cpu")
def _token_log_prob(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    num_padding_ids: int,
    dtype: torch.dtype,
    is_native: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log probability, largest logit and Σ exp(logit - largest) of each row."""
    with torch.autocast("cpu", enabled=False), torch.no_grad():
        product = Product.prepare(table_VD, bias_V, num_padding_ids, dtype)
        work = product.bias_V.dtype
        log_prob_M, largest_M, total_M = (torch.empty(len(hidden_MD), dtype=work) for _ in range(3))
        if len(hidden_MD) == 0:
            return log_prob_M, largest_M, total_M
        space = Workspace(product, len(hidden_MD), make_loops(work, is_native=is_native))
        narrow_MD = hidden_MD.to(dtype)
        is_sure = product.is_surely_finite(narrow_MD)
        for part in product.row_tiles(len(hidden_MD)):
            tile_RU, largest_R = compute_logits(product, narrow_MD[part], space)
            logits_RV = tile_RU[:, : product.num_ids]
            blank_R = torch.zeros(len(tile_RU), dtype=torch.float64)
            if not is_sure:
                blank_R.masked_fill_(~logits_RV.isfinite().all(1), torch.nan)
            target_R = logits_RV.gather(1, target_M[part, None]).squeeze(1).double()
            total_R = weigh_tile(product, tile_RU, largest_R, 1.0, space).sum(1) + blank_R
            largest_M[part], total_M[part] = largest_R, total_R
            log_prob_M[part] = target_R - largest_R - total_R.log()
        return log_prob_M, largest_M, total_M


@_token_log_prob.register_fake
def _(hidden_MD, table_VD, bias_V, target_M, num_padding_ids, dtype, is_native):  # type: ignore[no-untyped-def]
    work = torch.promote_types(dtype, torch.float32)
    return tuple(hidden_MD.new_empty(hidden_MD.shape[0], dtype=work) for _ in range(3))


@torch.library.custom_op("electra::token_log_prob_backward_cpu", mutates_args=(), device_types="cpu")
def _token_log_prob_backward(
    grad_M: Tensor,
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    largest_M: Tensor,
    total_M: Tensor,
    num_padding_ids: int,
    dtype: torch.dtype,
    is_native: bool,
    wants_hidden: bool,
    wants_table: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Σ grad · log_prob; rows with the gradient 0 are left out."""
    with torch.autocast("cpu", enabled=False), torch.no_grad():
        product = Product.prepare(table_VD, bias_V, num_padding_ids, dtype)
        used_M = grad_M.nonzero().squeeze(1)
        gradients = Gradients(product, len(used_M), table_VD.shape[0], hidden=wants_hidden, table=wants_table)
        if len(used_M) and gradients.is_wanted:
            loops = make_loops(product.bias_V.dtype, is_native=is_native)
            space = Workspace(product, len(used_M), loops)
            for part in product.row_tiles(len(used_M)):
                at_R = used_M[part]
                hidden_RD = hidden_MD[at_R].to(dtype)
                tile_RU, _ = compute_logits(product, hidden_RD, space)
                weigh_tile(product, tile_RU, largest_M[at_R], 1.0, space)
                gradients.add_tile(part, hidden_RD, tile_RU, -grad_M[at_R] / total_M[at_R])
                gradients.add_single(part, hidden_RD, target_M[at_R], grad_M[at_R])
        return shaped_as_inputs(gradients, used_M, hidden_MD, table_VD, bias_V)


@_token_log_prob_backward.register_fake
def _(  # type: ignore[no-untyped-def]
    grad_M,
    hidden_MD,
    table_VD,
    bias_V,
    target_M,
    largest_M,
    total_M,
    num_padding_ids,
    dtype,
    is_native,
    wants_hidden,
    wants_table,
):
    return (
        like_wanted(hidden_MD, wants_hidden),
        like_wanted(table_VD, wants_table),
        like_wanted(bias_V, wants_table),
    )


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden_MD, table_VD, bias_V, target_M, *ctx.how = inputs
    _, largest_M, total_M = output
    ctx.mark_non_differentiable(largest_M, total_M)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(hidden_MD, table_VD, bias_V, target_M, largest_M, total_M)


def _recompute(ctx: Any, grad_M: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    wants_hidden, wants_table = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:3])
    if grad_M is None:
        return (None,) * 7
    grads = _token_log_prob_backward(grad_M, *ctx.saved_tensors, *ctx.how, wants_hidden, wants_table)
    wanted = (wants_hidden, wants_table, wants_table)
    return (
        *(grad if wants else None for grad, wants in zip(grads, wanted, strict=True)),
        None,
        None,
        None,
        None,
    )


_token_log_prob.register_autograd(_recompute, setup_context=_keep_inputs)
