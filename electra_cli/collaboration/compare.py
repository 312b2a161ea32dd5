"""Scores of labels, their bootstrap intervals, and McNemar's test between two sets of labels.

A bootstrap sample draws as many rows as there are, with replacement. All strategies are scored on the same
samples, so the interval of a difference is that of paired labels.
"""

# N rows, C classes, R bootstrap samples, P distinct patterns of (gold, labels), K sets of labels

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from electra_cli import keyed
from electra_cli.collaboration.answers import Labels, Shares

_SAMPLES_AT_ONCE = 64
_LOWER, _UPPER = 0.025, 0.975


@dataclass(frozen=True)
class Interval:
    """Percentile bootstrap, 95 %."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class McNemar:
    """Rows on which exactly one of two strategies is right."""

    only_first: int
    only_second: int
    statistic: float
    """χ² with continuity correction, one degree of freedom."""
    p_value: float
    """Two-sided, exact (binomial)."""


def macro_f1(gold_N: Labels, label_N: Labels, num_classes: int) -> float:
    """Mean F1 over the classes that occur or are predicted."""
    count_CC = np.bincount(gold_N * num_classes + label_N, minlength=num_classes**2)
    return float(_macro_f1_of(count_CC.reshape(1, num_classes, num_classes))[0])


def _macro_f1_of(count_RCC: NDArray[np.int64]) -> Shares:
    """Macro-F1 of each confusion matrix; row: gold, column: label."""
    right_RC = np.diagonal(count_RCC, axis1=1, axis2=2)
    total_RC = count_RCC.sum(1) + count_RCC.sum(2)
    f1_RC = np.divide(2.0 * right_RC, total_RC, out=np.zeros(right_RC.shape), where=total_RC > 0)
    score_R: Shares = f1_RC.sum(1) / np.maximum(1, (total_RC > 0).sum(1))
    return score_R


def resampled_scores(
    gold_N: Labels, labels: Sequence[Labels], num_classes: int, *, num_samples: int, seed: int
) -> Shares:
    """Macro-F1 of every set of labels on every bootstrap sample, [K, R]."""
    joint_NK = np.stack([gold_N, *labels], axis=1)
    # Rows that agree in everything are counted together: there are far fewer patterns than rows.
    pattern_PK, pattern_N = np.unique(joint_NK, axis=0, return_inverse=True)
    pattern_N = pattern_N.reshape(-1)
    key = keyed.key(seed, "bootstrap of scores")
    num_rows, num_patterns = len(gold_N), len(pattern_PK)
    score_KR = np.empty((len(labels), num_samples))
    for start in range(0, num_samples, _SAMPLES_AT_ONCE):
        sample_R = np.arange(start, min(num_samples, start + _SAMPLES_AT_ONCE))
        place_RN = keyed.uniform(key, sample_R[:, None], np.arange(num_rows)[None, :]) * num_rows
        drawn_RN = pattern_N[place_RN.astype(np.int64)]
        offset_R = np.arange(len(sample_R)) * num_patterns
        flat = (drawn_RN + offset_R[:, None]).reshape(-1)
        count_RP = np.bincount(flat, minlength=len(sample_R) * num_patterns).reshape(-1, num_patterns)
        for number in range(len(labels)):
            cell_P = pattern_PK[:, 0] * num_classes + pattern_PK[:, number + 1]
            is_in_PX = np.zeros((num_patterns, num_classes**2))
            is_in_PX[np.arange(num_patterns), cell_P] = 1
            count_RCC = (count_RP @ is_in_PX).astype(np.int64).reshape(-1, num_classes, num_classes)
            score_KR[number, sample_R] = _macro_f1_of(count_RCC)
    return score_KR


def interval(value_R: Shares) -> Interval:
    """The middle 95 % of a bootstrapped figure."""
    low, high = np.quantile(value_R, [_LOWER, _UPPER])
    return Interval(float(low), float(high))


def mcnemar(gold_N: Labels, first_N: Labels, second_N: Labels) -> McNemar:
    """Whether two strategies err equally often (McNemar 1947)."""
    is_first_N, is_second_N = first_N == gold_N, second_N == gold_N
    only_first = int((is_first_N & ~is_second_N).sum())
    only_second = int((is_second_N & ~is_first_N).sum())
    total = only_first + only_second
    statistic = max(0, abs(only_first - only_second) - 1) ** 2 / total if total else 0.0
    return McNemar(
        only_first=only_first,
        only_second=only_second,
        statistic=statistic,
        p_value=_two_sided_binomial(min(only_first, only_second), total),
    )


def _two_sided_binomial(fewest: int, total: int) -> float:
    """Probability that of `total` fair coins at most `fewest` fall on one of the two sides."""
    if not total:
        return 1.0
    log_half = total * math.log(2)
    log_choose = (
        math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) for k in range(fewest + 1)
    )
    return min(1.0, 2 * math.fsum(math.exp(value - log_half) for value in log_choose))
