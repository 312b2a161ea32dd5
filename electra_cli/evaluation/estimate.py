"""How long an evaluation will take, before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from electra_cli.evaluation.encoding import TextEncoder, encode
from electra_cli.evaluation.examples import Examples
from electra_cli.evaluation.finetune import Pace

_SAMPLED = 500
_PADDING = 1.1
"""Padded tokens a real one, about, in batches sorted by length."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is still to be run of one task."""

    train: Examples
    dev: Sequence[Examples]
    num_passes: int
    """Passes over the training examples, all seeds together; both orders of a pair count twice."""
    num_scorings: int
    """Passes over the dev examples, all seeds together."""


def _tokens(examples: Examples, encoder: TextEncoder, max_length: int) -> float:
    sample = encode(examples.first(_SAMPLED), encoder, max_length)
    return _PADDING * float(sample.length_N.mean()) * len(examples)


def estimate_seconds(works: Sequence[Work], encoder: TextEncoder, max_length: int, pace: Pace) -> float:
    """Seconds for all of `works` at this pace, from the lengths of the first examples of each split."""
    seconds = 0.0
    for work in works:
        seconds += pace.train * work.num_passes * _tokens(work.train, encoder, max_length)
        seconds += sum(
            pace.score * work.num_scorings * _tokens(examples, encoder, max_length) for examples in work.dev
        )
    return seconds


def in_words(seconds: float) -> str:
    """A duration as a person says it: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
