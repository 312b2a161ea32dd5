"""The time that is left, as a line of metrics.jsonl tells it."""

from types import SimpleNamespace

import pytest

from electra_cli.training import records


@pytest.mark.parametrize("first_step", [0, 900])
def test_case_D17_after_ten_steps_the_time_left_is_about_right(monkeypatch, first_step):
    now = 1000.0
    monkeypatch.setattr(records.time, "perf_counter", lambda: now)
    clock = records.Clock(first_step)
    # Loading takes its time and must not count.
    now += 60
    clock.begin(tokens=7)
    engine = SimpleNamespace(peak_bytes=lambda: 1)
    run = SimpleNamespace(step=first_step, steps=1000, tokens=7, plan=SimpleNamespace(engine=engine))
    for _ in range(10):
        now += 2
        run.step += 1
    left = clock.read(run, 0.0)["eta_seconds"]
    truth = 2 * (1000 - run.step)
    assert truth / 2 <= left <= 2 * truth
    now += 2 * (1000 - run.step)
    run.step = 1000
    assert clock.read(run, 0.0)["eta_seconds"] == 0
