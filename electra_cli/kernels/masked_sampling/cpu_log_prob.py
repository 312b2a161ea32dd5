"""`token_log_prob` on CPU through the same tiles; two operators, the second computes the logits again.

Letters: M rows of the whole batch, R rows of a tile, D width, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.cpu import like_wanted, shaped_as_inputs
from electra_cli.kernels.masked_sampling.gradients import Gradients
from electra_cli.kernels.masked_sampling.native_rows import make_passes
from electra_cli.kernels.masked_sampling.reference import matmul_dtype
from electra_cli.kernels.masked_sampling.tiles import Product, Rows


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
    log_prob_M: Tensor = _token_log_prob(
        hidden_MD,
        table_VD,
        bias_V,
        target_M,
        num_padding_ids,
        matmul_dtype(hidden_MD, table_VD),
        is_native,
    )
    return log_prob_M


@torch.library.custom_op("electra::token_log_prob_cpu", mutates_args=(), device_types="cpu")
def _token_log_prob(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    num_padding_ids: int,
    dtype: torch.dtype,
    is_native: bool,
) -> Tensor:
    with torch.autocast("cpu", enabled=False), torch.no_grad():
        product = Product.prepare(table_VD, bias_V, num_padding_ids, dtype)
        log_prob_M = torch.empty(len(hidden_MD), dtype=product.work)
        rows = Rows(hidden_MD=hidden_MD.to(dtype), target_M=target_M, uniform_M=None, forbidden_M=None)
        passes = make_passes(product, rows.hidden_MD, is_native=is_native)
        for part in product.row_tiles(len(rows)):
            weighed = passes.weigh(rows[part], keep=False)
            log_prob_M[part] = weighed.target_R - weighed.largest_R - weighed.total_R.log()
        return log_prob_M


@_token_log_prob.register_fake
def _(hidden_MD, table_VD, bias_V, target_M, num_padding_ids, dtype, is_native):  # type: ignore[no-untyped-def]
    return hidden_MD.new_empty(hidden_MD.shape[0], dtype=torch.promote_types(dtype, torch.float32))


@torch.library.custom_op("electra::token_log_prob_backward_cpu", mutates_args=(), device_types="cpu")
def _token_log_prob_backward(
    grad_M: Tensor,
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
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
        rows = Rows(
            hidden_MD=hidden_MD[used_M].to(dtype),
            target_M=target_M[used_M],
            uniform_M=None,
            forbidden_M=None,
        )
        passes = make_passes(product, rows.hidden_MD, is_native=is_native)
        gradients = Gradients(
            product, passes, len(used_M), table_VD.shape[0], hidden=wants_hidden, table=wants_table
        )
        used_grad_M = grad_M[used_M].to(product.work)
        for part in product.row_tiles(len(rows)):
            tile, grad_R = rows[part], used_grad_M[part]
            weighed = passes.weigh(tile)
            scale_R = -grad_R / weighed.total_R.to(product.work)
            gradients.add_tile(part, tile.hidden_MD, weighed.tile_RU, scale_R)
            gradients.add_single(part, tile.hidden_MD, tile.target_M, grad_R)
        return shaped_as_inputs(gradients, used_M, hidden_MD, table_VD, bias_V)


@_token_log_prob_backward.register_fake
def _(  # type: ignore[no-untyped-def]
    grad_M,
    hidden_MD,
    table_VD,
    bias_V,
    target_M,
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


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.num_padding_ids, ctx.dtype, ctx.is_native = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _recompute(ctx: Any, grad_M: Tensor | None) -> tuple[Tensor | None, ...]:
    wants_hidden, wants_table = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:3])
    if grad_M is None:
        return (None,) * 7
    how = ctx.num_padding_ids, ctx.dtype, ctx.is_native
    grads = _token_log_prob_backward(grad_M, *ctx.saved_tensors, *how, wants_hidden, wants_table)
    wanted = (wants_hidden, wants_table, wants_table)
    return (
        *(grad if wants else None for grad, wants in zip(grads, wanted, strict=True)),
        None,
        None,
        None,
        None,
    )


_token_log_prob.register_autograd(_recompute, setup_context=_keep_inputs)
