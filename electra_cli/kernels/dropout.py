"""Dropout that costs little on a CPU.

torch draws one Bernoulli number an element there, about 13 ns; one 64-bit draw gives four 16-bit numbers to
compare with a threshold, 4 ns an element with the multiplication. Rates are rounded to 1/65536, and the scale
belongs to the rounded rate, so means are kept. The bits come from torch's default generator, drawn serially:
they follow `torch.manual_seed` and do not depend on the number of threads.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

LEVELS = 1 << 16


def dropped_levels(rate: float) -> int:
    """How many of the 65536 values of a 16-bit number mean: drop."""
    return min(LEVELS - 1, round(rate * LEVELS))


def keep_scale(rate: float) -> float:
    """What kept values are multiplied by, so that the mean stays."""
    return LEVELS / (LEVELS - dropped_levels(rate))


def draw_kept(shape: torch.Size, rate: float) -> Tensor:
    """uint8 1 where a value is kept, 0 where it is dropped; on the CPU."""
    numel = shape.numel()
    bits = torch.empty((numel + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    level = bits.view(torch.int16)[:numel].view(shape)
    return (level >= dropped_levels(rate) - LEVELS // 2).view(torch.uint8)


def dropped(values: Tensor, rate: float, *, training: bool) -> Tensor:
    """`values` after dropout."""
    if not training or rate == 0:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, rate)
    result: Tensor = _Dropped.apply(None, values, rate)  # type: ignore[no-untyped-call]
    return result


def add_dropped(residual: Tensor, values: Tensor, rate: float, *, training: bool) -> Tensor:
    """`residual` + `values` after dropout."""
    if not training or rate == 0:
        return residual + values
    if values.device.type != "cpu":
        return residual + F.dropout(values, rate)
    result: Tensor = _Dropped.apply(residual, values, rate)  # type: ignore[no-untyped-call]
    return result


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, values: Tensor, rate: float) -> Tensor:
        kept = draw_kept(values.shape, rate)
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
