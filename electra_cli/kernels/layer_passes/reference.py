"""What the passes compute, in plain torch, for any device, type and precision.

Letters: D width of the input, F width of the product; leading dimensions are free.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from electra_cli.kernels.dropout import add_dropped


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A LayerNorm over the last dimension."""

    gain_F: Tensor
    shift_F: Tensor
    eps: float


def linear_gelu(hidden: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """gelu(hidden · weightᵀ + bias), the exact gelu: x · P(X ≤ x) of the normal distribution."""
    return functional.gelu(functional.linear(hidden, weight_FD, bias_F))


def linear_add_norm(
    hidden: Tensor, weight_FD: Tensor, bias_F: Tensor, rate: float, residual: Tensor, norm: Norm
) -> Tensor:
    """LayerNorm(residual + dropout(hidden · weightᵀ + bias)); `rate`: of dropout, 0 for none."""
    change = functional.linear(hidden, weight_FD, bias_F)
    added = add_dropped(residual, change, rate, training=True)
    return functional.layer_norm(added, added.shape[-1:], norm.gain_F, norm.shift_F, norm.eps)
