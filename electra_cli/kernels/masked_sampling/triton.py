"""The kernel on a GPU, in Triton: block statistics, one block computed again, gradients by recomputation.

What is kept for backward is two numbers a row. Triton itself is imported on the first call alone, since it
is optional.

Letters: M masked positions of the whole batch, D width, V vocabulary.
"""

import importlib.util
import os
from functools import cache
from typing import Any

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling import reference
from electra_cli.kernels.masked_sampling.proof import disagreement
from electra_cli.kernels.masked_sampling.reference import MaskedSample, matmul_dtype


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def why_not(device_type: str) -> str:
    """Why Triton cannot serve on a device, empty where it can; the first call compiles and proves it."""
    return _why_not(device_type)


@cache
def _why_not(device_type: str) -> str:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device_type == "cpu":
        is_interpreted = os.environ.get("TRITON_INTERPRET", "") == "1"
        return "" if is_interpreted else "triton runs on a CPU in its interpreter alone (TRITON_INTERPRET=1)"
    if device_type != "cuda":
        return f"triton has no {device_type}"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    from triton.errors import TritonError

    try:
        wrong = disagreement(masked_sample, token_log_prob, torch.device(device_type))
    except TritonError as error:
        return f"triton cannot compile for this GPU: {error}"
    return f"triton does not agree with the definition on this GPU: {wrong}" if wrong else ""


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
    """As in `reference`, which serves for float64; needs `why_not()` to be empty."""
    dtype = matmul_dtype(hidden_MD, table_VD)
    if dtype == torch.float64:
        return reference.masked_sample(
            hidden_MD,
            table_VD,
            bias_V,
            target_M,
            weight_M,
            uniform_M,
            temperature=temperature,
            forbidden_M=forbidden_M,
            num_padding_ids=num_padding_ids,
        )
    is_used_M = weight_M != 0
    hidden_MD = hidden_MD.masked_fill(~is_used_M[:, None], 0.0)
    row_loss_M, _, _, sampled_M = _token_loss(
        hidden_MD, table_VD, bias_V, target_M, uniform_M, forbidden_M, temperature, num_padding_ids, dtype
    )
    loss_M = row_loss_M.where(is_used_M, 0.0)
    loss_sum = (loss_M * weight_M.to(loss_M.dtype)).sum()
    return MaskedSample(loss_sum, loss_M.detach(), sampled_M.where(is_used_M, target_M))


def token_log_prob(
    hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor, target_M: Tensor, *, num_padding_ids: int = 0
) -> Tensor:
    """As in `reference`, which serves for float64; needs `why_not()` to be empty."""
    dtype = matmul_dtype(hidden_MD, table_VD)
    if dtype == torch.float64:
        return reference.token_log_prob(
            hidden_MD, table_VD, bias_V, target_M, num_padding_ids=num_padding_ids
        )
    results: tuple[Tensor, ...] = _token_loss(
        hidden_MD, table_VD, bias_V, target_M, None, None, 1.0, num_padding_ids, dtype
    )
    return -results[0]


@torch.library.custom_op("electra::token_loss_triton", mutates_args=())
def _token_loss(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    uniform_M: Tensor | None,
    forbidden_M: Tensor | None,
    temperature: float,
    num_padding_ids: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """loss_M, peak_M, log Σ exp(z - peak) and, with uniform numbers, the sampled ids."""
    from electra_cli.kernels.masked_sampling import triton_launch

    layer = triton_launch.Layer.prepare(hidden_MD, table_VD, bias_V, num_padding_ids, dtype)
    return triton_launch.forward(layer, target_M, uniform_M, forbidden_M, temperature)


@_token_loss.register_fake
def _(  # type: ignore[no-untyped-def]
    hidden_MD,
    table_VD,
    bias_V,
    target_M,
    uniform_M,
    forbidden_M,
    temperature,
    num_padding_ids,
    dtype,
):
    num_rows = hidden_MD.shape[0]
    row_M = (hidden_MD.new_empty(num_rows, dtype=torch.float32) for _ in range(3))
    return *row_M, target_M.new_empty(0 if uniform_M is None else num_rows)


@torch.library.custom_op("electra::token_loss_backward_triton", mutates_args=())
def _token_loss_backward(
    grad_M: Tensor,
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    peak_M: Tensor,
    log_total_M: Tensor,
    num_padding_ids: int,
    dtype: torch.dtype,
    wants_hidden: bool,
    wants_table: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Σ grad · loss in the types of the inputs; empty where not wanted."""
    from electra_cli.kernels.masked_sampling import triton_launch

    inputs = (hidden_MD, table_VD, bias_V)
    if hidden_MD.shape[0] == 0:
        wants = (wants_hidden, wants_table, wants_table)
        zeros = [
            torch.zeros_like(one) if wanted else one.new_empty(0)
            for one, wanted in zip(inputs, wants, strict=True)
        ]
        return zeros[0], zeros[1], zeros[2]
    layer = triton_launch.Layer.prepare(*inputs, num_padding_ids, dtype)
    found = triton_launch.gradients(
        layer, target_M, grad_M, peak_M, log_total_M, hidden=wants_hidden, table=wants_table
    )
    hidden, table, bias = (
        one.new_empty(0) if gradient is None else gradient.to(one.dtype)
        for one, gradient in zip(inputs, found, strict=True)
    )
    return hidden, table, bias


@_token_loss_backward.register_fake
def _(  # type: ignore[no-untyped-def]
    grad_M,
    hidden_MD,
    table_VD,
    bias_V,
    target_M,
    peak_M,
    log_total_M,
    num_padding_ids,
    dtype,
    wants_hidden,
    wants_table,
):
    wants = (wants_hidden, wants_table, wants_table)
    return tuple(
        torch.empty_like(one, memory_format=torch.contiguous_format) if wanted else one.new_empty(0)
        for one, wanted in zip((hidden_MD, table_VD, bias_V), wants, strict=True)
    )


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden_MD, table_VD, bias_V, target_M, _, _, _, ctx.num_padding_ids, ctx.dtype = inputs
    _, peak_M, log_total_M, sampled_M = output
    ctx.mark_non_differentiable(peak_M, log_total_M, sampled_M)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(hidden_MD, table_VD, bias_V, target_M, peak_M, log_total_M)


def _recompute(ctx: Any, grad_M: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    wants_hidden, wants_table = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:3])
    if grad_M is None:
        return (None,) * 9
    grads = _token_loss_backward(
        grad_M, *ctx.saved_tensors, ctx.num_padding_ids, ctx.dtype, wants_hidden, wants_table
    )
    wanted = (wants_hidden, wants_table, wants_table)
    return *(grad if wants else None for grad, wants in zip(grads, wanted, strict=True)), *(None,) * 6


_token_loss.register_autograd(_recompute, setup_context=_keep_inputs)
