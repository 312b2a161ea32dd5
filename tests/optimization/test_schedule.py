"""The learning rate of each step."""

import itertools
import math

import pytest

from electra_cli.optimization.schedule import learning_rate
from electra_cli.settings import Optimizer, Schedule

PEAK = Optimizer(learning_rate=5e-4)


def official(step: int, total: int, warmup: int) -> float:
    return 5e-4 * (1 - step / total) * min(1.0, step / warmup)


@pytest.mark.parametrize("step", [0, 1, 5000, 9999, 10_000, 500_000, 999_999])
def test_default_schedule_is_the_official_one(step):
    assert learning_rate(step, Schedule(), PEAK, 1_000_000) == pytest.approx(
        official(step, 1_000_000, 10_000), rel=1e-12, abs=0
    )


def test_overlapping_peak_stays_below_the_setting():
    rates = [learning_rate(step, Schedule(), PEAK, 1_000_000) for step in range(0, 1_000_000, 1000)]
    assert max(rates) == pytest.approx(4.95e-4)


GRID = list(
    itertools.product(
        (0, 1, 2, 7, 50, 99, 100, 101, 1000),
        (1, 2, 3, 8, 99, 100, 1000, 10_000, 100_000, 1_000_000),
        ("linear", "constant", "cosine"),
        (True, False),
    )
)


def test_input_I08_case_D12_every_rate_is_finite_and_the_last_as_documented():
    assert len(GRID) >= 500
    for warmup, total, decay, overlap in GRID:
        schedule = Schedule(warmup_steps=warmup, decay=decay, warmup_multiplies_decay=overlap)
        few = sorted({0, 1, total // 2, warmup - 1, warmup, warmup + 1, total - 1, total})
        steps = range(total + 1) if total <= 100 else [step for step in few if 0 <= step <= total]
        rates = [learning_rate(step, schedule, PEAK, total) for step in steps]
        assert all(math.isfinite(rate) and 0 <= rate <= 5e-4 for rate in rates), (warmup, total, decay)
        if decay != "constant" and warmup < total:
            assert rates[-1] == pytest.approx(0, abs=1e-18), (warmup, total, decay, overlap)
        if warmup == 0:
            assert rates[0] == 5e-4


def test_rate_is_continuous_at_the_end_of_warm_up():
    for warmup, total, decay, overlap in GRID:
        if not 0 < warmup < total - 1:
            continue
        schedule = Schedule(warmup_steps=warmup, decay=decay, warmup_multiplies_decay=overlap)
        before, at, after = (learning_rate(warmup + d, schedule, PEAK, total) for d in (-1, 0, 1))
        # One step changes the rise by peak / W and the decay by at most peak · π/2 / (T − W).
        bound = 5e-4 * (1 / warmup + math.pi / 2 / (total - warmup)) * (1 + 1e-9)
        assert abs(at - before) <= bound and abs(after - at) <= bound, (warmup, total, decay, overlap)
