"""Dropout's patterns: SplitMix64 as it is published, the rate, the mean, no tie between neighbours."""

import pytest
import torch
from torch import Tensor

from electra_cli.kernels.dropout import draw_pattern, keep_scale, kept_by
from electra_cli.kernels.layer_passes import add_dropped, dropped


def splitmix64(start: int, count: int) -> list[int]:
    """The first numbers after a start, in Python's unlimited integers."""
    size = 2**64
    found = []
    for _ in range(count):
        start = (start + 0x9E3779B97F4A7C15) % size
        number = (start ^ (start >> 30)) * 0xBF58476D1CE4E5B9 % size
        number = (number ^ (number >> 27)) * 0x94D049BB133111EB % size
        found.append(number ^ (number >> 31))
    return found


def test_our_splitmix64_is_the_published_one():
    # The sequence of seed 1234567 that its public test vectors give.
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("numel", [1, 3, 4, 1_003])
def test_a_pattern_is_the_sequence_of_splitmix64(numel):
    pattern = draw_pattern(0.3)
    numbers = splitmix64(int(pattern[0]) % 2**64, -(-numel // 4))
    levels = [number >> 16 * lane & 0xFFFF for number in numbers for lane in range(4)]
    signed = [level - 2**16 if level >= 2**15 else level for level in levels]
    kept = kept_by(pattern, torch.Size([numel]))
    assert kept.tolist() == [level >= int(pattern[1]) for level in signed[:numel]]


def test_a_pattern_follows_the_seed_and_the_next_is_another():
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append([draw_pattern(0.1) for _ in range(2)])
    assert torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][0], found[0][1])


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.99999])
def test_dropout_keeps_the_rate_and_the_mean(rate):
    torch.manual_seed(0)
    kept = kept_by(draw_pattern(rate), torch.Size([1_000_003])).double()
    # Four standard errors of a share of a million.
    assert kept.mean().item() == pytest.approx(1 - rate, abs=4 * (rate * (1 - rate) / 1e6) ** 0.5 + 1e-5)
    assert keep_scale(rate) == pytest.approx(1 / (1 - rate), rel=1e-4 if rate < 0.9 else 1)
    # Neighbours come from one 64-bit number: their bits must not go together.
    centred = kept - kept.mean()
    for distance in (1, 2, 3, 4):
        covariance = (centred[:-distance] * centred[distance:]).mean().item()
        assert abs(covariance) < 4 * rate * (1 - rate) / 1e3 + 1e-5


def test_two_patterns_do_not_go_together():
    torch.manual_seed(0)
    first, second = (kept_by(draw_pattern(0.5), torch.Size([1_000_000])).double() - 0.5 for _ in range(2))
    assert abs((first * second).mean().item()) < 4 * 0.25 / 1e3


def test_gradient_of_dropout_against_central_differences():
    values = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)

    def seeded(residual: Tensor, values: Tensor) -> Tensor:
        torch.manual_seed(3)
        return add_dropped(residual, values, 0.4) + dropped(values, 0.4) ** 2

    assert torch.autograd.gradcheck(seeded, (residual, values))
