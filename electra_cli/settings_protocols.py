"""Named sets of fine-tuning conventions: what `evaluate.protocol` stands for.

A protocol is data. Whoever needs a convention reads its field; parts (heads, schedules) are looked up by the
name that stands there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

HeadName = Literal["cls", "mean", "mean-swishglu"]
ScheduleName = Literal["linear", "cosine-restarts"]
Exponent = Literal["top", "paper", "google"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Conventions that are no settings, and the defaults that it gives to settings."""

    name: str
    head: HeadName
    """What stands on the encoder."""
    head_dropout: float | None = None
    """Dropout inside the head; `None`: `evaluate.dropout`."""
    epochs: int
    """Passes over the training examples, at most, of a task that says nothing itself."""
    patience: int = 0
    """Epochs without a better dev score after which a run stops, keeping its best epoch; 0: to the end."""
    least_gain: float = 0.0
    """What a dev score must gain to count as better."""
    schedule: ScheduleName
    restart_epochs: int = 0
    """Length of one cosine, for "cosine-restarts"."""
    least_rate: float = 0.0
    """Learning rate, of every layer, at the end of a cosine."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float
    bias_correction: bool
    clip_norm: float
    """Largest global gradient norm; 0: no clipping."""
    decays_all: bool
    """Weight decay also on biases and LayerNorm."""
    layer_decay_exponent: Exponent | None = None
    """How often the top layer takes the factor; `None`: as `evaluate.layer_decay_exponent` says."""
    micro_batch_size: int = 0
    """Examples of one forward pass; a step adds up the gradients of its parts. 0: the whole batch."""
    keeps_answers: bool = False
    """Probabilities and pooled states of every scored example go to a file beside the results."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Settings of `[evaluate]` that follow from the protocol where nobody set them."""


ELECTRA = Protocol(
    name="electra",
    head="cls",
    epochs=3,
    schedule="linear",
    eps=1e-6,
    # The official code fine-tunes with the optimizer it pre-trains with, which has none.
    bias_correction=False,
    clip_norm=1.0,
    decays_all=False,
)
"""google-research/electra (Clark et al. 2020, Table 7)."""

ELECTRA_MEAN = replace(ELECTRA, name="electra-mean", head="mean")
"""The same with the mean of the states before the classifier, not [CLS].

Replaced-token detection gives [CLS] nothing to say: it is never replaced. A large encoder learns in
fine-tuning to gather a text there; a small one with a few hundred examples does not. docs/log.md has figures.
"""

SENTIMENT = Protocol(
    name="sentiment",
    head="mean-swishglu",
    head_dropout=0.3,
    epochs=50,
    patience=10,
    least_gain=1e-5,
    schedule="cosine-restarts",
    restart_epochs=5,
    least_rate=1e-7,
    eps=1e-8,
    bias_correction=True,
    clip_norm=0.0,
    decays_all=True,
    layer_decay_exponent="top",
    micro_batch_size=16,
    keeps_answers=True,
    defaults={
        "tasks": ["sentiment"],
        "batch_size": 256,
        "sequence_length": 512,
        "learning_rate": 1e-5,
        "layer_decay": 0.95,
        "weight_decay": 0.01,
        "warmup_fraction": 0.0,
    },
)
"""Beno 2024 (arXiv 2501.00062), the fine-tuned encoders; the training logs of jbeno/sentiment."""

PROTOCOLS = {protocol.name: protocol for protocol in (ELECTRA, ELECTRA_MEAN, SENTIMENT)}
