"""Metrics against independent implementations, and what happens where they are undefined."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.evaluation.scores import accuracy, compute, f1, macro_f1, matthews, pearson, spearman

CLASSES = st.integers(0, 3)
PAIRS = st.lists(st.tuples(CLASSES, CLASSES), min_size=1, max_size=40)
NUMBERS = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3, width=32))


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    truth, predicted = np.array(pairs, dtype=np.float64).T
    return truth, predicted


def test_case_K28_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    # y = [1,1,1,0], p = [1,0,0,0]: precision 1, recall 1/3. The official class gives 1.0.
    assert f1(np.array([1.0, 1, 1, 0]), np.array([1.0, 0, 0, 0])).value == 0.5


def test_case_K28_matthews_of_one_class_is_0_with_a_reason() -> None:
    score = matthews(np.array([1.0, 0, 1]), np.array([1.0, 1, 1]))
    assert score.value == 0.0
    assert "predictions are all the same" in score.reason


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_case_K28_constant_predictions_leave_a_correlation_undefined(metric: str) -> None:
    score = compute(metric, np.array([1.0, 2, 3]), np.array([2.5, 2.5, 2.5]))
    assert score.value is None
    assert "predictions are all the same" in score.reason


def test_a_prediction_that_is_not_finite_makes_every_metric_undefined() -> None:
    for metric in ("accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"):
        assert compute(metric, np.array([0.0, 1]), np.array([np.nan, 1])).value is None


def test_two_shapes_are_refused_and_never_broadcast() -> None:
    with pytest.raises(ValueError, match="two equal vectors"):
        pearson(np.zeros(3), np.zeros((3, 1)))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(PAIRS)
def test_case_P32_class_metrics_equal_sklearn(pairs: list[tuple[float, float]]) -> None:
    truth, predicted = columns(pairs)
    assert accuracy(truth, predicted).value == pytest.approx(
        sklearn.metrics.accuracy_score(truth, predicted), abs=1e-12
    )
    assert macro_f1(truth, predicted).value == pytest.approx(
        sklearn.metrics.f1_score(truth, predicted, average="macro", zero_division=0), abs=1e-12
    )
    if len(set(truth)) > 1 or len(set(predicted)) > 1:
        ours = matthews(truth, predicted).value
        assert ours == pytest.approx(sklearn.metrics.matthews_corrcoef(truth, predicted), abs=1e-9)
    binary = f1(truth == 1, predicted == 1)
    if binary.value is not None:
        assert binary.value == pytest.approx(
            sklearn.metrics.f1_score(truth == 1, predicted == 1, zero_division=0), abs=1e-12
        )
    else:
        assert not np.any(truth == 1) and not np.any(predicted == 1)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=30))
def test_case_P32_correlations_equal_scipy_ties_included(pairs: list[tuple[float, float]]) -> None:
    truth, predicted = columns(pairs)
    if np.all(truth == truth[0]) or np.all(predicted == predicted[0]):
        assert pearson(truth, predicted).value is None
        assert spearman(truth, predicted).value is None
        return
    assert spearman(truth, predicted).value == pytest.approx(
        scipy.stats.spearmanr(truth, predicted).statistic, abs=1e-9
    )
    # The reference loses digits where one column hardly varies, and says so by a warning.
    if np.std(truth) > 1e-3 and np.std(predicted) > 1e-3:
        assert pearson(truth, predicted).value == pytest.approx(
            scipy.stats.pearsonr(truth, predicted).statistic, abs=1e-6
        )


@settings(max_examples=50, deadline=None, derandomize=True)
@given(PAIRS.filter(lambda pairs: len(pairs) > 2), st.integers(1, 5))
def test_case_P32_the_order_of_rows_changes_nothing(pairs: list[tuple[float, float]], turn: int) -> None:
    truth, predicted = columns(pairs)
    for metric in ("accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"):
        here = compute(metric, truth, predicted).value
        there = compute(metric, np.roll(truth, turn), np.roll(predicted, turn)).value
        assert here == there or here == pytest.approx(there, abs=1e-12)
