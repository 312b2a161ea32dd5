"""What the encoder and the language model say about rows, and what a strategy makes of both."""

# N rows, C classes, D hidden

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]
"""Class numbers; -1 in gold labels: none is known."""
Shares = NDArray[np.float64]
States = NDArray[np.float32]

Status = Literal["label", "fallback", "encoder"]
"""`label`: the model's answer; `fallback`: it was asked and gave none; `encoder`: it was not asked."""

NO_GOLD = -1


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The texts to classify, in file order."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    gold_N: Labels
    indices: tuple[str, ...]
    sources: tuple[str, ...]
    """Where each row comes from, for scores by source; empty texts where the data do not say."""

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def is_labelled(self) -> bool:
        """Whether every row has a gold label."""
        return bool(len(self)) and bool((self.gold_N != NO_GOLD).all())


@dataclass(frozen=True, kw_only=True)
class EncoderAnswers:
    """The encoder's view of rows."""

    name: str
    classes: tuple[str, ...]
    probability_NC: Shares
    sha256: str
    """Identifies the encoder, or the file that its answers were read from."""

    @property
    def label_N(self) -> Labels:
        """The most probable class of each row."""
        label_N: Labels = self.probability_NC.argmax(1)
        return label_N

    @property
    def confidence_N(self) -> Shares:
        """Its probability."""
        confidence_N: Shares = self.probability_NC.max(1)
        return confidence_N


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of one question."""

    label: int | None
    """`None`: no answer inside the label set came."""
    reason: str = ""
    """Why there is none."""
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    """How often it was sent, until an answer was final."""
    usd: float = 0.0
    is_kept: bool = False
    """Whether it came from the file of earlier answers."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A strategy's labels for all rows."""

    name: str
    label_N: Labels
    status_N: NDArray[np.str_]
    is_hinted: bool = False
    """Whether the model saw the encoder's answer."""
    threshold: float | None = None
    """Rows below it were asked; `None` outside a cascade."""
    inside: str = ""
    """The strategy that a cascade asks with."""
    encoder: str = ""
    reasons: tuple[tuple[str, int], ...] = ()
    """Fallbacks by reason."""
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    """What its own answers cost; `None`: no price is known."""

    @property
    def num_calls(self) -> int:
        """Rows for which the model was asked: labels and fallbacks."""
        return int((self.status_N != "encoder").sum())

    def count(self, status: Status) -> int:
        """Rows of a status."""
        return int((self.status_N == status).sum())


def encoder_outcome(name: str, encoder: EncoderAnswers) -> Outcome:
    """The encoder alone."""
    return Outcome(
        name=name,
        label_N=encoder.label_N,
        status_N=np.full(len(encoder.label_N), "encoder"),
        encoder=encoder.name,
        usd=0.0,
    )
