"""What stands between the matrix products of a transformer layer, in one pass each; rotary positions.

`reference.py` is the definition, in plain torch; `native` compiles the passes and serves float32 on a
processor wherever it can be built. docs/performance.md has what it gives.

Letters: D width of the input, F width of the product; leading dimensions are free.
"""

import torch
from torch import Tensor

from electra_cli.kernels.layer_passes import native, reference
from electra_cli.kernels.layer_passes.reference import Norm

__all__ = ["Norm", "linear_add_norm", "linear_gelu", "rotated"]


def linear_gelu(hidden: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """gelu(hidden · weightᵀ + bias)."""
    if _is_for_native(hidden, weight_FD):
        return native.linear_gelu(hidden, weight_FD, bias_F)
    return reference.linear_gelu(hidden, weight_FD, bias_F)


def linear_add_norm(
    hidden: Tensor, weight_FD: Tensor, bias_F: Tensor, rate: float, residual: Tensor, norm: Norm
) -> Tensor:
    """LayerNorm(residual + dropout(hidden · weightᵀ + bias)); `rate`: of dropout, 0 for none."""
    if _is_for_native(hidden, residual, weight_FD):
        return native.linear_add_norm(hidden, weight_FD, bias_F, rate, residual, norm)
    return reference.linear_add_norm(hidden, weight_FD, bias_F, rate, residual, norm)


def rotated(qkv_BSL: Tensor, cos_BSK: Tensor, sin_BSK: Tensor) -> Tensor:
    """Query, key and value side by side (L = 3·D), query and key turned in each head; float32 inside."""
    if _is_for_native(qkv_BSL, cos_BSK):
        return native.rotated(qkv_BSL, cos_BSK, sin_BSK)
    return reference.rotated(qkv_BSL, cos_BSK, sin_BSK)


def _is_for_native(*tensors: Tensor) -> bool:
    """Whether compiled passes serve these inputs, here."""
    are_fit = all(one.dtype == torch.float32 and one.device.type == "cpu" and one.numel() for one in tensors)
    if not are_fit or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    return not native.why_not()
