"""Scores, intervals and McNemar's test against other libraries, and the cascade's definition."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import f1_score

from electra_cli.collaboration.answers import EncoderAnswers, Outcome
from electra_cli.collaboration.cascade import (
    below,
    budget_threshold,
    cascade_of,
    curve,
    quantile_threshold,
)
from electra_cli.collaboration.compare import interval, macro_f1, mcnemar, resampled_scores
from electra_cli.evaluation.scores import macro_f1 as evaluation_macro_f1

RANDOM = np.random.default_rng(0)
GOLD = RANDOM.integers(0, 3, 200)
FIRST = np.where(RANDOM.random(200) < 0.7, GOLD, RANDOM.integers(0, 3, 200))
SECOND = np.where(RANDOM.random(200) < 0.6, GOLD, RANDOM.integers(0, 3, 200))


def encoder(*confidences: float) -> EncoderAnswers:
    top = np.array(confidences)
    return EncoderAnswers(
        name="e", classes=("a", "b"), probability_NC=np.stack([top, 1 - top], axis=1), sha256=""
    )


def asked_all(*labels: int) -> Outcome:
    return Outcome(name="llm", label_N=np.array(labels), status_N=np.full(len(labels), "label"))


def test_macro_f1_is_that_of_scikit_learn_and_of_the_evaluation() -> None:
    expected = f1_score(GOLD, FIRST, average="macro")
    assert macro_f1(GOLD, FIRST, 3) == pytest.approx(expected, abs=1e-12)
    assert evaluation_macro_f1(GOLD.astype(float), FIRST.astype(float)).value == pytest.approx(expected)


def test_a_class_that_neither_occurs_nor_is_predicted_does_not_count() -> None:
    gold, label = np.array([0, 0, 1]), np.array([0, 1, 1])
    assert macro_f1(gold, label, 5) == pytest.approx(f1_score(gold, label, average="macro"))


def test_resampled_scores_are_those_of_the_drawn_rows() -> None:
    from electra_cli import keyed

    score_KR = resampled_scores(GOLD, [FIRST, SECOND], 3, num_samples=70, seed=5)
    key = keyed.key(5, "bootstrap of scores")
    for sample in (0, 63, 64, 69):
        share = keyed.uniform(key, np.array([[sample]]), np.arange(200)[None, :])[0]
        rows = (share * 200).astype(int)
        assert score_KR[0, sample] == pytest.approx(f1_score(GOLD[rows], FIRST[rows], average="macro"))
        assert score_KR[1, sample] == pytest.approx(f1_score(GOLD[rows], SECOND[rows], average="macro"))


def test_the_interval_holds_the_middle_and_follows_the_seed() -> None:
    score_KR = resampled_scores(GOLD, [FIRST], 3, num_samples=400, seed=0)
    spread = interval(score_KR[0])
    assert spread.low < macro_f1(GOLD, FIRST, 3) < spread.high
    again = resampled_scores(GOLD, [FIRST], 3, num_samples=400, seed=0)
    other = resampled_scores(GOLD, [FIRST], 3, num_samples=400, seed=1)
    assert (again == score_KR).all()
    assert (other != score_KR).any()


def test_mcnemar_is_the_exact_binomial_test() -> None:
    test = mcnemar(GOLD, FIRST, SECOND)
    only_first = int(((FIRST == GOLD) & (SECOND != GOLD)).sum())
    only_second = int(((SECOND == GOLD) & (FIRST != GOLD)).sum())
    assert (test.only_first, test.only_second) == (only_first, only_second)
    expected = binomtest(only_first, only_first + only_second).pvalue
    assert test.p_value == pytest.approx(expected, rel=1e-9)
    assert test.statistic == pytest.approx(
        (abs(only_first - only_second) - 1) ** 2 / (only_first + only_second)
    )


def test_equal_strategies_differ_in_nothing() -> None:
    assert mcnemar(GOLD, FIRST, FIRST).p_value == 1.0


def test_a_cascade_asks_strictly_below_its_threshold() -> None:
    answers = encoder(0.6, 0.7, 0.7, 0.9)
    assert below(answers.confidence_N, 0.7).tolist() == [True, False, False, False]
    made = cascade_of(asked_all(1, 1, 1, 1), answers, 0.7, "c")
    assert made.label_N.tolist() == [1, 0, 0, 0]
    assert made.status_N.tolist() == ["label", "encoder", "encoder", "encoder"]
    assert made.num_calls == 1


@pytest.mark.parametrize(("calls", "asked"), [(0, 0), (1, 1), (2, 1), (3, 3), (4, 4), (9, 4)])
def test_a_budget_is_never_passed_and_equal_rows_are_asked_together(calls: int, asked: int) -> None:
    confidence_N = encoder(0.6, 0.7, 0.7, 0.9).confidence_N
    assert below(confidence_N, budget_threshold(confidence_N, calls)).sum() == asked


def test_a_quantile_is_linear_between_neighbours() -> None:
    assert quantile_threshold(np.array([0.5, 0.6, 0.9]), 0.25) == pytest.approx(0.55)


def test_a_curve_runs_from_the_encoder_alone_to_everybody_asked() -> None:
    gold_N = np.array([1, 1, 0, 0])
    answers = encoder(0.6, 0.7, 0.8, 0.9)
    drawn = curve("c", gold_N, answers, asked_all(1, 1, 1, 1))
    assert [point.calls_fraction for point in drawn.points] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert drawn.points[0].macro_f1 == pytest.approx(f1_score(gold_N, [0, 0, 0, 0], average="macro"))
    assert drawn.points[2].macro_f1 == 1.0
    assert drawn.points[-1].macro_f1 == pytest.approx(f1_score(gold_N, [1, 1, 1, 1], average="macro"))


def test_the_curve_of_a_cascade_ends_at_its_threshold() -> None:
    gold_N, answers = np.array([1, 1, 0, 0]), encoder(0.6, 0.7, 0.8, 0.9)
    known = cascade_of(asked_all(1, 1, 1, 1), answers, 0.75, "c")
    assert curve("c", gold_N, answers, known).points[-1].calls_fraction == 0.5
