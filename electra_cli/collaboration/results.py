"""What strategies are worth: scores, intervals, comparisons, costs; as results.json and as a table."""

# N rows, R bootstrap samples, K strategies

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from electra_cli.collaboration.answers import EncoderAnswers, Outcome, Rows
from electra_cli.collaboration.cascade import Curve
from electra_cli.collaboration.compare import (
    Interval,
    McNemar,
    interval,
    macro_f1,
    mcnemar,
    resampled_scores,
)

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Followed:
    """Rows on which the model alone and the encoder disagree, and how many a strategy gives the latter."""

    rows: int
    with_encoder: int


@dataclass(frozen=True, kw_only=True)
class StrategyResult:
    """One strategy's figures. Scores are `None` for unlabelled data."""

    outcome: Outcome
    macro_f1: float | None
    accuracy: float | None
    interval: Interval | None
    sources: Mapping[str, float]
    """Macro-F1 by source."""
    agreement: float | None
    """Share of the rows asked whose label is the encoder's."""
    followed: Followed | None

    @property
    def usd_per_point(self) -> float | None:
        """What a point (one hundredth) of macro-F1 cost."""
        if self.outcome.usd is None or not self.macro_f1:
            return None
        return self.outcome.usd / (100 * self.macro_f1)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two strategies on the same rows."""

    first: str
    second: str
    difference: float
    """Macro-F1 of the first less that of the second."""
    interval: Interval
    mcnemar: McNemar


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that a run of collaborate found."""

    strategies: tuple[StrategyResult, ...]
    comparisons: tuple[Comparison, ...]
    curves: tuple[Curve, ...]

    def compared(self, name: str, reference: str) -> Comparison | None:
        """A strategy against a reference."""
        for one in self.comparisons:
            if (one.first, one.second) == (name, reference):
                return one
            if (one.second, one.first) == (name, reference):
                return _turned(one)
        return None


def judge(
    rows: Rows,
    outcomes: Sequence[Outcome],
    encoders: Mapping[str, EncoderAnswers],
    curves: Sequence[Curve],
    *,
    alone: Mapping[str, Outcome],
    num_samples: int,
    seed: int,
) -> Results:
    """Score and compare; `alone` gives for each encoder the model's own answers to every row, where known."""
    num_classes = len(next(iter(encoders.values())).classes)
    labels = [outcome.label_N for outcome in outcomes]
    score_KR = None
    if rows.is_labelled:
        score_KR = resampled_scores(rows.gold_N, labels, num_classes, num_samples=num_samples, seed=seed)
    results = []
    for number, outcome in enumerate(outcomes):
        encoder = encoders.get(outcome.encoder)
        score = accuracy = spread = None
        if score_KR is not None:
            score = macro_f1(rows.gold_N, outcome.label_N, num_classes)
            accuracy = float((outcome.label_N == rows.gold_N).mean())
            spread = interval(score_KR[number])
        results.append(
            StrategyResult(
                outcome=outcome,
                macro_f1=score,
                accuracy=accuracy,
                interval=spread,
                sources=_by_source(rows, outcome, num_classes) if rows.is_labelled else {},
                agreement=_agreement(outcome, encoder),
                followed=_followed(outcome, encoder, alone.get(outcome.encoder)),
            )
        )
    comparisons = []
    for first, second in combinations(range(len(outcomes)), 2):
        if score_KR is not None:
            one, other = results[first], results[second]
            assert one.macro_f1 is not None and other.macro_f1 is not None
            comparisons.append(
                Comparison(
                    first=one.outcome.name,
                    second=other.outcome.name,
                    difference=one.macro_f1 - other.macro_f1,
                    interval=interval(score_KR[first] - score_KR[second]),
                    mcnemar=mcnemar(rows.gold_N, labels[first], labels[second]),
                )
            )
    return Results(strategies=tuple(results), comparisons=tuple(comparisons), curves=tuple(curves))


def _by_source(rows: Rows, outcome: Outcome, num_classes: int) -> dict[str, float]:
    names = [name for name in dict.fromkeys(rows.sources) if name]
    source_N = np.array(rows.sources)
    return {
        name: macro_f1(rows.gold_N[source_N == name], outcome.label_N[source_N == name], num_classes)
        for name in names
    }


def _agreement(outcome: Outcome, encoder: EncoderAnswers | None) -> float | None:
    is_asked_N = outcome.status_N != "encoder"
    if encoder is None or not is_asked_N.any():
        return None
    return float((outcome.label_N == encoder.label_N)[is_asked_N].mean())


def _followed(outcome: Outcome, encoder: EncoderAnswers | None, alone: Outcome | None) -> Followed | None:
    if encoder is None or alone is None or not outcome.is_hinted:
        return None
    differs_N = (alone.label_N != encoder.label_N) & (outcome.status_N != "encoder")
    sides_N = outcome.label_N == encoder.label_N
    return Followed(rows=int(differs_N.sum()), with_encoder=int((differs_N & sides_N).sum()))


def _turned(one: Comparison) -> Comparison:
    test = one.mcnemar
    return Comparison(
        first=one.second,
        second=one.first,
        # Less than 0, so that no difference is none and not "-0".
        difference=0.0 - one.difference,
        interval=Interval(0.0 - one.interval.high, 0.0 - one.interval.low),
        mcnemar=McNemar(
            only_first=test.only_second,
            only_second=test.only_first,
            statistic=test.statistic,
            p_value=test.p_value,
        ),
    )
