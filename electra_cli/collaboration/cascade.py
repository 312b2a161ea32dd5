"""The confidence cascade: the model is asked only where the encoder is unsure.

A row is asked when the encoder's top probability is strictly below the threshold, so a threshold of 0 asks
nobody and one above 1 everybody.
"""

# N rows, V rows of the validation data, P points of a curve

from dataclasses import dataclass

import numpy as np

from electra_cli.collaboration.answers import EncoderAnswers, Labels, Outcome, Shares
from electra_cli.collaboration.compare import macro_f1


@dataclass(frozen=True)
class Point:
    """One threshold of a cascade."""

    threshold: float
    calls_fraction: float
    macro_f1: float


@dataclass(frozen=True)
class Curve:
    """A cascade over its threshold, from nobody asked to everybody whose answer is known."""

    name: str
    encoder: str
    inside: str
    """Whose answers it takes below the threshold."""
    points: tuple[Point, ...]


def quantile_threshold(confidence_V: Shares, quantile: float) -> float:
    """The quantile (linear between neighbours) of the encoder's top probability on validation data."""
    return float(np.quantile(confidence_V, quantile))


def budget_threshold(confidence_N: Shares, num_calls: int) -> float:
    """The largest threshold below which at most `num_calls` rows lie; uses no label.

    With a budget for every row it is just above the greatest confidence.
    """
    sorted_N = np.sort(confidence_N)
    if num_calls >= len(sorted_N):
        return float(np.nextafter(sorted_N[-1], np.inf)) if len(sorted_N) else 0.0
    return float(sorted_N[num_calls])


def below(confidence_N: Shares, threshold: float) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
    """Which rows a cascade asks about."""
    return confidence_N < threshold


def cascade_of(inner: Outcome, encoder: EncoderAnswers, threshold: float, name: str) -> Outcome:
    """A cascade whose answers are all known already from a strategy that asked about every row."""
    is_asked_N = below(encoder.confidence_N, threshold)
    return Outcome(
        name=name,
        label_N=np.where(is_asked_N, inner.label_N, encoder.label_N),
        status_N=np.where(is_asked_N, inner.status_N, "encoder"),
        is_hinted=inner.is_hinted,
        threshold=threshold,
        inside=inner.name,
        encoder=encoder.name,
    )


def curve(
    name: str, gold_N: Labels, encoder: EncoderAnswers, known: Outcome, *, num_points: int = 40
) -> Curve:
    """Score against calls, for thresholds from 0 up to where `known` holds answers.

    `known` is a strategy that asked about every row, or a cascade; beyond its threshold nothing is known.
    """
    confidence_N = encoder.confidence_N
    order_N = np.argsort(confidence_N, kind="stable")
    num_known = known.num_calls if known.threshold is not None else len(confidence_N)
    points = []
    for num_calls in sorted({round(num_known * step / num_points) for step in range(num_points + 1)}):
        threshold = budget_threshold(confidence_N, num_calls)
        # Equal confidences are asked together or not at all.
        asked_N = order_N[: int(below(confidence_N, threshold).sum())]
        label_N = encoder.label_N.copy()
        label_N[asked_N] = known.label_N[asked_N]
        score = macro_f1(gold_N, label_N, len(encoder.classes))
        points.append(Point(threshold, len(asked_N) / max(1, len(confidence_N)), score))
    return Curve(name, encoder.name, known.inside or known.name, tuple(dict.fromkeys(points)))
