"""Warnings in plain words."""

import math

import pytest

from electra_cli.settings import ProjectSettings
from electra_cli.training.health import Health, usual_rate, warnings_before_training


def codes(settings: ProjectSettings, *, hidden_size=256, num_rows=1_000_000, num_tokens=128_000_000):
    found = warnings_before_training(
        settings, hidden_size=hidden_size, num_rows=num_rows, num_tokens=num_tokens
    )
    return [concern.code for concern in found]


def with_values(**tables):
    return ProjectSettings.model_validate(tables)


def test_the_defaults_on_enough_text_are_silent():
    # 1M steps of 128 rows over 20M rows: 6.4 passes, as the paper's small run.
    assert codes(with_values(), num_rows=20_000_000) == []


@pytest.mark.parametrize(("warmup", "expected"), [(9_999, []), (10_000, ["warmup"]), (10_001, ["warmup"])])
def test_a_warm_up_as_long_as_the_run_is_named(warmup, expected):
    settings = with_values(schedule={"warmup_steps": warmup}, pretrain={"steps": 10_000})
    assert codes(settings) == expected


def test_50_kilobytes_for_a_million_steps_are_named_with_tokens_and_epochs():
    found = warnings_before_training(with_values(), hidden_size=256, num_rows=100, num_tokens=12_500)
    assert [concern.code for concern in found] == ["epochs", "corpus"]
    assert "12,500 tokens" in found[0].text and "1,280,000 epochs" in found[0].text


@pytest.mark.parametrize(
    ("hidden_size", "rate", "batch_size", "is_named"),
    [
        (768, 2e-4, 256, False),
        (1024, 2e-4, 2048, False),
        # The setting of the reports of NaN in google-research/electra (#36, #70).
        (768, 5e-4, 128, True),
        (1024, 5e-4, 128, True),
        (768, 5e-4, 2048, False),
        (256, 5e-4, 128, False),
        (256, 5e-3, 128, True),
        (128, 3e-3, 64, False),
    ],
)
def test_a_high_learning_rate_is_named(hidden_size, rate, batch_size, is_named):
    settings = with_values(
        optimizer={"learning_rate": rate}, pretrain={"batch_size": batch_size, "steps": 20_000}
    )
    assert ("learning_rate" in codes(settings, hidden_size=hidden_size)) is is_named


def test_toy_networks_may_learn_at_any_rate():
    assert usual_rate(32, 8) == math.inf


def test_a_blind_discriminator_is_named_once_after_500_steps():
    health, told = Health(), []
    for step in range(100, 1500, 100):
        told += [(step, one.code) for one in health.check(step, 100, {"disc_recall": 0.0})]
    assert told == [(500, "recall")]


def test_a_discriminator_that_sees_again_starts_the_count_anew():
    health = Health()
    recalls = [0.0, 0.0, 0.0, 0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 0.0]
    told = [
        (step, one.code)
        for step, recall in zip(range(100, 1100, 100), recalls, strict=True)
        for one in health.check(step, 100, {"disc_recall": recall})
    ]
    assert told == [(1000, "recall")]


def test_what_health_remembers_survives_a_restart():
    straight, told = Health(), []
    resumed, again = Health(), []
    for step in range(100, 700, 100):
        told += straight.check(step, 100, {"disc_recall": 0.0})
        resumed = Health(resumed.record)
        again += resumed.check(step, 100, {"disc_recall": 0.0})
    assert told == again and len(told) == 1


@pytest.mark.parametrize("figures", [{}, {"disc_recall": None}])
def test_an_objective_without_recall_is_never_blind(figures):
    health = Health()
    assert all(health.check(step, 100, figures) == [] for step in range(100, 2000, 100))
