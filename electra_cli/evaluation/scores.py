"""Metrics, each with its reason where it is undefined."""

# N examples, C classes

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """A metric's value; `None` with the reason where it has none."""

    value: float | None
    reason: str = ""


def accuracy(truth_N: Numbers, predicted_N: Numbers) -> Score:
    """Share of equal pairs."""
    return Score(float(np.mean(truth_N == predicted_N)))


def f1(truth_N: Numbers, predicted_N: Numbers, positive: int = 1) -> Score:
    """Harmonic mean of precision and recall of one class: 2·TP / (2·TP + FP + FN)."""
    is_true, is_predicted = truth_N == positive, predicted_N == positive
    found = int(np.sum(is_true & is_predicted))
    total = int(np.sum(is_true)) + int(np.sum(is_predicted))
    if total == 0:
        return Score(None, "the class neither occurs nor is predicted")
    return Score(2 * found / total)


def macro_f1(truth_N: Numbers, predicted_N: Numbers) -> Score:
    """Mean F1 over the classes that occur or are predicted."""
    classes = np.union1d(truth_N, predicted_N)
    values = [f1(truth_N, predicted_N, int(one)).value for one in classes]
    return Score(float(np.mean([value for value in values if value is not None])))


def matthews(truth_N: Numbers, predicted_N: Numbers) -> Score:
    """Matthews correlation of any number of classes (Gorodkin 2004); 0 with a reason for constant input."""
    classes, number_2N = np.unique(np.concatenate([truth_N, predicted_N]), return_inverse=True)
    truth, predicted = number_2N[: len(truth_N)], number_2N[len(truth_N) :]
    count_CC = np.zeros((len(classes), len(classes)))
    np.add.at(count_CC, (truth, predicted), 1.0)
    true_C, predicted_C, total = count_CC.sum(1), count_CC.sum(0), count_CC.sum()
    covariance = count_CC.trace() * total - true_C @ predicted_C
    spread = (total**2 - true_C @ true_C) * (total**2 - predicted_C @ predicted_C)
    if spread == 0:
        which = "predictions" if len(np.unique(predicted)) == 1 else "labels"
        return Score(0.0, f"the {which} are all the same; the correlation is undefined and counts as 0")
    return Score(float(covariance / np.sqrt(spread)))


def pearson(truth_N: Numbers, predicted_N: Numbers) -> Score:
    """Pearson's correlation."""
    if truth_N.shape != predicted_N.shape or truth_N.ndim != 1:
        raise ValueError(f"shapes {truth_N.shape} and {predicted_N.shape}: two equal vectors are needed")
    if len(truth_N) < 2:
        return Score(None, "a correlation needs two examples")
    for which, values in (("labels", truth_N), ("predictions", predicted_N)):
        if np.all(values == values[0]):
            return Score(None, f"the {which} are all the same")
    truth, predicted = truth_N - truth_N.mean(), predicted_N - predicted_N.mean()
    # Each is scaled first, so that tiny values do not underflow when squared.
    truth, predicted = truth / np.abs(truth).max(), predicted / np.abs(predicted).max()
    value = truth @ predicted / np.sqrt((truth @ truth) * (predicted @ predicted))
    return Score(float(np.clip(value, -1.0, 1.0)))


def spearman(truth_N: Numbers, predicted_N: Numbers) -> Score:
    """Pearson's correlation of the ranks; equal values share their mean rank."""
    return pearson(_ranks(truth_N), _ranks(predicted_N))


def _ranks(value_N: Numbers) -> Numbers:
    _, inverse_N, count = np.unique(value_N, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    rank: Numbers = (last - (count - 1) / 2)[inverse_N]
    return rank


METRICS: dict[str, Callable[[Numbers, Numbers], Score]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "spearman": spearman,
    "pearson": pearson,
}
"""By the names that settings use; `f1` counts class 1 unless told otherwise."""


def compute(metric: str, truth_N: Numbers, predicted_N: Numbers, *, positive: int = 1) -> Score:
    """One metric by name; a non-finite prediction makes any metric undefined."""
    if not np.all(np.isfinite(predicted_N)):
        return Score(None, "a prediction is not finite")
    if metric == "f1":
        return f1(truth_N, predicted_N, positive)
    return METRICS[metric](truth_N, predicted_N)
