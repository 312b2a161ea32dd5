"""What the passes compute, in plain torch, for any device, type and precision.

Letters: D width of the input, F width of the product; leading dimensions are free. For attention: B batch,
S sequence, H heads, K width of a head, L = 3·D (query, key, value).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from electra_cli.kernels.dropout import draw_pattern, keep_scale, kept_by


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A LayerNorm over the last dimension."""

    gain_F: Tensor
    shift_F: Tensor
    eps: float


def linear_gelu(hidden: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """gelu(hidden · weightᵀ + bias), the exact gelu: x · P(X ≤ x) of the normal distribution."""
    return functional.gelu(functional.linear(hidden, weight_FD, bias_F))


def linear_gated_gelu(hidden: Tensor, weight_GD: Tensor, rate: float) -> Tensor:
    """dropout(gelu(x) · gate), x and gate the two halves of hidden · weightᵀ (G = 2·F)."""
    opened, gate = functional.linear(hidden, weight_GD).chunk(2, dim=-1)
    return dropped(functional.gelu(opened) * gate, rate)


def dropped(values: Tensor, rate: float) -> Tensor:
    """`values` after dropout."""
    if not rate:
        return values
    if values.device.type != "cpu":
        return functional.dropout(values, rate)
    result: Tensor = _Dropped.apply(None, values, rate)  # type: ignore[no-untyped-call]
    return result


def add_dropped(residual: Tensor, values: Tensor, rate: float) -> Tensor:
    """`residual` + `values` after dropout."""
    if not rate:
        return residual + values
    if values.device.type != "cpu":
        return residual + functional.dropout(values, rate)
    result: Tensor = _Dropped.apply(residual, values, rate)  # type: ignore[no-untyped-call]
    return result


def linear_add_norm(
    hidden: Tensor, weight_FD: Tensor, bias_F: Tensor, rate: float, residual: Tensor, norm: Norm
) -> Tensor:
    """LayerNorm(residual + dropout(hidden · weightᵀ + bias)); `rate`: of dropout, 0 for none."""
    change = functional.linear(hidden, weight_FD, bias_F)
    added = add_dropped(residual, change, rate)
    return functional.layer_norm(added, added.shape[-1:], norm.gain_F, norm.shift_F, norm.eps)


def rotated(qkv_BSL: Tensor, cos_BSK: Tensor, sin_BSK: Tensor) -> Tensor:
    """Query, key and value side by side, query and key turned in each head; float32 inside.

    Both halves of K hold the same cosines and sines.
    """
    batch, sequence, width = qkv_BSL.shape
    query_key, value = qkv_BSL[..., : 2 * width // 3], qkv_BSL[..., 2 * width // 3 :]
    turning = query_key.float().view(batch, sequence, -1, cos_BSK.shape[-1])
    first, second = turning.chunk(2, dim=-1)
    turned = turning * cos_BSK.unsqueeze(2) + torch.cat((-second, first), dim=-1) * sin_BSK.unsqueeze(2)
    return torch.cat((turned.flatten(2).to(qkv_BSL.dtype), value), dim=-1)


def softened(score_BHSS: Tensor, mask_B1SS: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor]:
    """softmax(score + mask), and of that what dropout keeps, unscaled; takes the memory of the scores.

    `pattern`: as `draw_pattern` gives it; without it all is kept, and the two results are one.
    """
    weight_BHSS = torch.softmax(score_BHSS.add_(mask_B1SS), dim=-1)
    if pattern is None:
        return weight_BHSS, weight_BHSS
    return weight_BHSS, torch.mul(weight_BHSS, kept_by(pattern, weight_BHSS.shape), out=score_BHSS)


def softened_back(of_used_BHSS: Tensor, weight_BHSS: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor]:
    """What dropout kept once more, and the gradient of the scores; may take the memory of `of_used_BHSS`."""
    used_BHSS = weight_BHSS
    if pattern is not None:
        kept_BHSS = kept_by(pattern, weight_BHSS.shape).to(weight_BHSS.dtype)
        used_BHSS = weight_BHSS * kept_BHSS
        of_used_BHSS.mul_(kept_BHSS)
    return used_BHSS, torch._softmax_backward_data(of_used_BHSS, weight_BHSS, -1, weight_BHSS.dtype)


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, values: Tensor, rate: float) -> Tensor:
        kept = kept_by(draw_pattern(rate), values.shape)
        ctx.save_for_backward(kept)
        ctx.rate = rate
        ctx.dtype = values.dtype
        ctx.has_residual = residual is not None
        scaled = torch.mul(values, kept)
        if residual is None:
            return scaled.mul_(keep_scale(rate))
        return torch.add(residual, scaled, alpha=keep_scale(rate))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (kept,) = ctx.saved_tensors
        of_values = torch.mul(gradient, kept).mul_(keep_scale(ctx.rate)).to(ctx.dtype)
        return (gradient if ctx.has_residual else None), of_values, None
