"""Patterns of dropout that cost little on a CPU.

torch draws one Bernoulli number an element there, about 13 ns, in one thread. Here one draw from torch's
default generator begins a pattern: value i is dropped where 16 of the bits of number i // 4 of SplitMix64,
begun at that draw, lie below a threshold (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators"). So a pattern can be made anywhere and again, in any number of threads, by compiled code as by
torch, and need not be kept for the way back.

Rates are rounded to 1/65536, and the scale belongs to the rounded rate, so means are kept.
"""

import torch
from torch import Tensor

LEVELS = 1 << 16
LANES = 4
"""16-bit numbers in a 64-bit one."""

# SplitMix64's increment, and its shifts, each with the multiplier that follows.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64), (31, 1))


def dropped_levels(rate: float) -> int:
    """How many of the 65536 values of a 16-bit number mean: drop."""
    return min(LEVELS - 1, round(rate * LEVELS))


def keep_scale(rate: float) -> float:
    """What kept values are multiplied by, so that the mean stays."""
    return LEVELS / (LEVELS - dropped_levels(rate))


def draw_pattern(rate: float) -> Tensor:
    """A new pattern on the CPU, int64 [2]: where its numbers begin, and the least level (signed) to keep."""
    pattern = torch.empty(2, dtype=torch.int64).random_(-(2**63), None)
    pattern[1] = dropped_levels(rate) - LEVELS // 2
    return pattern


def kept_by(pattern: Tensor, shape: torch.Size) -> Tensor:
    """uint8 1 where a value is kept, 0 where it is dropped."""
    start, least = pattern.unbind()
    numel = shape.numel()
    number = torch.arange(1, (numel + LANES - 1) // LANES + 1).mul_(_GAMMA).add_(start)
    for shift, factor in _ROUNDS:
        # The mask makes the shift of a signed number one without its sign.
        number.bitwise_xor_((number >> shift).bitwise_and_((1 << (64 - shift)) - 1)).mul_(factor)
    level = number.view(torch.int16)[:numel].view(shape)
    return (level >= least).view(torch.uint8)
