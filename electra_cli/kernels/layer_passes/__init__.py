"""What stands between the matrix products of a transformer layer, in one pass each; rotary positions.

`reference.py` is the definition, in plain torch; `native` compiles the passes and serves a processor wherever
it can be built, in float32 and under bfloat16's autocast. docs/performance.md has what it gives.

Letters: D width of the input, F width of the product; leading dimensions are free.
"""

import torch
from torch import Tensor

from electra_cli.kernels.layer_passes import native, reference
from electra_cli.kernels.layer_passes.reference import Norm
from electra_cli.kernels.native_build import NUMBERS

__all__ = [
    "Norm",
    "add_dropped",
    "dropped",
    "linear_add_norm",
    "linear_gated_gelu",
    "linear_gelu",
    "rotated",
    "softened",
    "softened_back",
]


def linear_gelu(hidden: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """gelu(hidden · weightᵀ + bias)."""
    if _is_for_native((hidden, weight_FD), (bias_F,)):
        return native.linear_gelu(hidden, weight_FD, bias_F)
    return reference.linear_gelu(hidden, weight_FD, bias_F)


def linear_gated_gelu(hidden: Tensor, weight_GD: Tensor, rate: float) -> Tensor:
    """dropout(gelu(x) · gate), x and gate the halves of hidden · weightᵀ (G = 2·F); `rate`: of dropout."""
    if _is_for_native((hidden, weight_GD), ()):
        return native.linear_gated_gelu(hidden, weight_GD, rate)
    return reference.linear_gated_gelu(hidden, weight_GD, rate)


def dropped(values: Tensor, rate: float) -> Tensor:
    """`values` after dropout."""
    if rate and _can_be_native(values):
        return native.dropped(values, rate)
    return reference.dropped(values, rate)


def add_dropped(residual: Tensor, values: Tensor, rate: float) -> Tensor:
    """`residual` + `values` after dropout."""
    if rate and residual.dtype == values.dtype and _can_be_native(values):
        return native.add_dropped(residual, values, rate)
    return reference.add_dropped(residual, values, rate)


def linear_add_norm(
    hidden: Tensor, weight_FD: Tensor, bias_F: Tensor, rate: float, residual: Tensor, norm: Norm
) -> Tensor:
    """LayerNorm(residual + dropout(hidden · weightᵀ + bias)); `rate`: of dropout, 0 for none."""
    is_of_one_type = residual.dtype == native.product_type(hidden)
    exact = (bias_F, norm.gain_F, norm.shift_F)
    if is_of_one_type and _is_for_native((hidden, residual, weight_FD), exact):
        return native.linear_add_norm(hidden, weight_FD, bias_F, rate, residual, norm)
    return reference.linear_add_norm(hidden, weight_FD, bias_F, rate, residual, norm)


def rotated(qkv_BSL: Tensor, cos_BSK: Tensor, sin_BSK: Tensor) -> Tensor:
    """Query, key and value side by side (L = 3·D), query and key turned in each head; float32 inside."""
    if _can_be_native(qkv_BSL):
        return native.rotated(qkv_BSL, cos_BSK, sin_BSK)
    return reference.rotated(qkv_BSL, cos_BSK, sin_BSK)


def softened(score_BHSS: Tensor, mask_B1SS: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor]:
    """softmax(score + mask), and of that what dropout keeps, unscaled; takes the memory of the scores."""
    if score_BHSS.dtype == mask_B1SS.dtype and _can_be_native(score_BHSS):
        return native.softened(score_BHSS, mask_B1SS, pattern)
    return reference.softened(score_BHSS, mask_B1SS, pattern)


def softened_back(of_used_BHSS: Tensor, weight_BHSS: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor]:
    """What dropout kept once more, and the gradient of the scores in the memory of `of_used_BHSS`."""
    if _can_be_native(weight_BHSS):
        return native.softened_back(of_used_BHSS, weight_BHSS, pattern)
    return reference.softened_back(of_used_BHSS, weight_BHSS, pattern)


def _is_for_native(operands: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> bool:
    """Whether compiled passes serve a product of these inputs, here: float32, or bfloat16's autocast.

    `exact`: what is float32 in either.
    """
    if torch.is_autocast_enabled("cpu"):
        is_known = native.product_type(operands[0]) == torch.bfloat16
        is_known = is_known and all(one.dtype in NUMBERS for one in operands)
    else:
        is_known = all(one.dtype == torch.float32 for one in operands)
    return is_known and all(one.dtype == torch.float32 for one in exact) and _can_be_native(operands[0])


def _can_be_native(values: Tensor) -> bool:
    is_fit = values.dtype in NUMBERS and values.device.type == "cpu" and bool(values.numel())
    return is_fit and not torch.compiler.is_compiling() and not native.why_not()
