"""What an exported model says about itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ChangedSetting:
    """A setting that differs from the recipe's."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class Score:
    """One evaluation result of this model."""

    task: str
    metric: str
    value: float
    """A share, 0 to 1."""
    num_runs: int
    statistic: str


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts of the run that the model card and the configuration carry."""

    name: str
    recipe: str
    objective: str
    run: str
    """Name of the run directory."""
    step: int
    steps: int
    tokens: int
    """Tokens seen in training, padding not counted."""
    sequence_length: int
    """Positions that were trained; the position table may be longer."""
    language: Sequence[str] = ()
    license: str = ""
    changed_settings: Sequence[ChangedSetting] = ()
    data: Mapping[str, object] = field(default_factory=dict)
    """Manifest of the shards."""
    heldout: Mapping[str, object] = field(default_factory=dict)
    """Last figures on held-out rows, by their metrics.jsonl names."""
    scores: Sequence[Score] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Networks that were trained and are in no folder, with the reason."""
    versions: Mapping[str, str] = field(default_factory=dict)
