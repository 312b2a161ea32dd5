"""The kernel on CPU: tiles of rows, gradients formed in the forward pass.

torch sees opaque operators, so that torch.compile and DDP see one node each. Autocast is read by the caller
and handed in as the precision of the products; inside the operators it is off.

Letters: M masked positions of the whole batch, R rows of a tile, D width, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.gradients import Gradients
from electra_cli.kernels.masked_sampling.native_rows import make_passes
from electra_cli.kernels.masked_sampling.reference import MaskedSample, matmul_dtype
from electra_cli.kernels.masked_sampling.tiles import Product, Rows


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
    """As in `reference`; keeps the gradients and one tile instead of [M, V]."""
    return sample_in_tiles(
        hidden_MD,
        table_VD,
        bias_V,
        target_M,
        weight_M,
        uniform_M,
        temperature=temperature,
        forbidden_M=forbidden_M,
        num_padding_ids=num_padding_ids,
        is_native=False,
    )


def sample_in_tiles(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    weight_M: Tensor,
    uniform_M: Tensor,
    *,
    temperature: float,
    forbidden_M: Tensor | None,
    num_padding_ids: int,
    is_native: bool,
) -> MaskedSample:
    """`masked_sample`, with its passes in plain torch or compiled."""
    is_training = torch.is_grad_enabled()
    loss_sum, loss_M, sampled_M, _, _, _ = _masked_sample(
        hidden_MD,
        table_VD,
        bias_V,
        target_M,
        weight_M,
        uniform_M,
        forbidden_M,
        temperature,
        num_padding_ids,
        matmul_dtype(hidden_MD, table_VD),
        is_training and hidden_MD.requires_grad,
        is_training and (table_VD.requires_grad or bias_V.requires_grad),
        is_native,
    )
    return MaskedSample(loss_sum, loss_M.detach(), sampled_M)


@torch.library.custom_op("electra::masked_sample_cpu", mutates_args=(), device_types="cpu")
def _masked_sample(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    weight_M: Tensor,
    uniform_M: Tensor,
    forbidden_M: Tensor | None,
    temperature: float,
    num_padding_ids: int,
    dtype: torch.dtype,
    wants_hidden: bool,
    wants_table: bool,
    is_native: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """loss_sum, loss_M, sampled_M and the gradients of loss_sum; a gradient that is not wanted is empty."""
    with torch.autocast("cpu", enabled=False), torch.no_grad():
        product = Product.prepare(table_VD, bias_V, num_padding_ids, dtype)
        work = product.work
        # Unused slots cost nothing: only the rows with a weight enter the tiles.
        used_M = weight_M.nonzero().squeeze(1)
        rows = Rows(
            hidden_MD=hidden_MD[used_M].to(dtype),
            target_M=target_M[used_M],
            uniform_M=uniform_M[used_M],
            forbidden_M=None if forbidden_M is None else forbidden_M[used_M],
        )
        passes = make_passes(product, rows.hidden_MD, is_native=is_native)
        gradients = Gradients(
            product, passes, len(used_M), table_VD.shape[0], hidden=wants_hidden, table=wants_table
        )
        used_weight_M = weight_M[used_M].to(work)
        used_loss_M, used_sampled_M = _run_tiles(rows, used_weight_M, temperature, gradients)
        loss_sum = (used_loss_M * used_weight_M).sum().to(work)
        loss_M = torch.zeros(len(hidden_MD), dtype=work).index_copy_(0, used_M, used_loss_M.to(work))
        sampled_M = target_M.index_copy(0, used_M, used_sampled_M)
        return loss_sum, loss_M, sampled_M, *shaped_as_inputs(gradients, used_M, hidden_MD, table_VD, bias_V)


def _run_tiles(
    rows: Rows, weight_M: Tensor, temperature: float, gradients: Gradients
) -> tuple[Tensor, Tensor]:
    """Loss (float64) and sample of each row; adds the gradients of Σ weight · loss to `gradients`."""
    loss_M = torch.empty(len(rows), dtype=torch.float64)
    sampled_M = torch.empty(len(rows), dtype=torch.int64)
    for part in gradients.product.row_tiles(len(rows)):
        tile, weight_R = rows[part], weight_M[part]
        weighed = gradients.passes.weigh(tile, temperature=temperature, keep=gradients.is_wanted)
        # Relative to the largest logit, so that nothing is lost when logits are huge.
        beyond_R = weighed.forbidden_R - weighed.largest_R
        excess_R = torch.logaddexp(weighed.total_R.log(), beyond_R)
        loss_M[part] = weighed.largest_R - weighed.target_R + excess_R
        assert weighed.sampled_R is not None
        sampled_M[part] = weighed.sampled_R
        if not gradients.is_wanted:
            continue
        # softmax = scale · weight; at the forbidden id, which has no weight, it is added by itself.
        scale_R = (-excess_R).exp().to(weight_R.dtype)
        gradients.add_tile(part, tile.hidden_MD, weighed.tile_RU, weight_R * scale_R)
        gradients.add_single(part, tile.hidden_MD, tile.target_M, -weight_R)
        if tile.forbidden_M is not None:
            share_R = (beyond_R - excess_R).exp().to(weight_R.dtype)
            gradients.add_single(part, tile.hidden_MD, tile.forbidden_M.clamp(min=0), weight_R * share_R)
    return loss_M, sampled_M


def shaped_as_inputs(
    gradients: Gradients, used_M: Tensor, hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients in the shapes and types of the inputs; empty where not wanted."""
    grad_hidden_MD, grad_table_VD, grad_bias_V = (
        hidden_MD.new_empty(0),
        table_VD.new_empty(0),
        bias_V.new_empty(0),
    )
    if gradients.hidden_MD is not None:
        grad_used_MD = gradients.hidden_MD.to(hidden_MD.dtype)
        grad_hidden_MD = torch.zeros_like(hidden_MD).index_copy_(0, used_M, grad_used_MD)
    if gradients.table_VD is not None and gradients.bias_V is not None:
        grad_table_VD = gradients.table_VD.to(table_VD.dtype)
        grad_bias_V = gradients.bias_V.to(bias_V.dtype)
    return grad_hidden_MD, grad_table_VD, grad_bias_V


def like_wanted(tensor: Tensor, is_wanted: bool) -> Tensor:
    """Shape of a gradient, for tracing."""
    return torch.empty_like(tensor) if is_wanted else tensor.new_empty(0)


@_masked_sample.register_fake
def _(  # type: ignore[no-untyped-def]
    hidden_MD,
    table_VD,
    bias_V,
    target_M,
    weight_M,
    uniform_M,
    forbidden_M,
    temperature,
    num_padding_ids,
    dtype,
    wants_hidden,
    wants_table,
    is_native,
):
    work = torch.promote_types(dtype, torch.float32)
    return (
        hidden_MD.new_empty((), dtype=work),
        hidden_MD.new_empty(hidden_MD.shape[0], dtype=work),
        torch.empty_like(target_M),
        like_wanted(hidden_MD, wants_hidden),
        like_wanted(table_VD, wants_table),
        like_wanted(bias_V, wants_table),
    )


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *_, ctx.wants_hidden, ctx.wants_table, _ = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[3:])


def _scale_gradients(ctx: Any, grad_sum: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    """The loss is a scalar: what arrives from above only scales the gradients that are there already."""
    grad_hidden_MD, grad_table_VD, grad_bias_V = ctx.saved_tensors
    grads: list[Tensor | None] = [None] * 13
    if grad_sum is not None and ctx.wants_hidden:
        grads[0] = grad_hidden_MD * grad_sum
    if grad_sum is not None and ctx.wants_table:
        grads[1], grads[2] = grad_table_VD * grad_sum, grad_bias_V * grad_sum
    return tuple(grads)


_masked_sample.register_autograd(_scale_gradients, setup_context=_keep_gradients)
