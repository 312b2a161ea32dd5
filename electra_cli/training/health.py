"""Warnings in plain words: settings that rarely work, and a run that does not learn."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from electra_cli.settings import ProjectSettings
from electra_cli.training.checkpoint import HealthRecord

BLIND_STEPS = 500
MANY_EPOCHS = 40
FEW_BATCHES = 20

# Published pairs of width, batch size and learning rate (Clark et al. 2020, Table 6); the rate that is still
# usual grows with the root of the batch.
_BASE_WIDTH, _BASE_RATE, _BASE_BATCH, _BASE_SLACK = 512, 2e-4, 256, 1.5
_SMALL_WIDTH, _SMALL_RATE, _SMALL_BATCH, _SMALL_SLACK = 256, 5e-4, 128, 4.0


@dataclass(frozen=True)
class Concern:
    """One thing that is probably not meant."""

    code: str
    text: str


def warnings_before_training(
    settings: ProjectSettings, *, hidden_size: int, num_rows: int, num_tokens: int
) -> list[Concern]:
    """What can be said of the settings and the data before the first step."""
    pretrain, warmup = settings.pretrain, settings.schedule.warmup_steps
    found = []
    if warmup >= pretrain.steps:
        found.append(
            Concern(
                "warmup",
                f"schedule.warmup_steps = {warmup:,} is not below pretrain.steps = {pretrain.steps:,}: the "
                "learning rate rises to the end and never reaches its peak",
            )
        )
    epochs = pretrain.steps * pretrain.batch_size / num_rows
    if epochs > MANY_EPOCHS:
        found.append(
            Concern(
                "epochs",
                f"{num_tokens:,} tokens fill {num_rows:,} rows: {pretrain.steps:,} steps are about "
                f"{epochs:,.0f} epochs, and beyond {MANY_EPOCHS} a model learns the text by heart",
            )
        )
    if num_rows < FEW_BATCHES * pretrain.batch_size:
        found.append(
            Concern(
                "corpus",
                f"the corpus is tiny: {num_tokens:,} tokens are {num_rows / pretrain.batch_size:,.1f} "
                f"batches of {pretrain.batch_size} rows",
            )
        )
    if settings.model.relative_buckets:
        found.append(
            Concern(
                "no-export",
                f"model.relative_buckets = {settings.model.relative_buckets}: what this run trains cannot be "
                "exported, and so not be fine-tuned: no class of transformers has such a bias",
            )
        )
    limit = usual_rate(hidden_size, pretrain.batch_size)
    rate = settings.optimizer.learning_rate
    if rate > limit:
        found.append(
            Concern(
                "learning_rate",
                f"optimizer.learning_rate = {rate:g} is high for a width of {hidden_size} and batches of "
                f"{pretrain.batch_size}: such runs were reported to end in NaN; {limit:.1e} is the most that "
                "is usual",
            )
        )
    return found


def usual_rate(hidden_size: int, batch_size: int) -> float:
    """Highest learning rate that is usual at this width and batch size; infinite for very small networks."""
    if hidden_size >= _BASE_WIDTH:
        return _BASE_SLACK * _BASE_RATE * math.sqrt(batch_size / _BASE_BATCH)
    if hidden_size >= _SMALL_WIDTH:
        return _SMALL_SLACK * _SMALL_RATE * math.sqrt(max(1.0, batch_size / _SMALL_BATCH))
    return math.inf


class Health:
    """Watches the log lines of a run; what it remembers survives a restart."""

    def __init__(self, record: HealthRecord | None = None) -> None:
        record = record or HealthRecord()
        self._blind_since = record.blind_since
        self._warned = list(record.warned)

    @property
    def record(self) -> HealthRecord:
        """For state.json."""
        return HealthRecord(blind_since=self._blind_since, warned=list(self._warned))

    def check(self, step: int, interval_steps: int, figures: Mapping[str, float | None]) -> list[Concern]:
        """What the line of `step`, which speaks of the last `interval_steps`, gives reason to say; once each.

        Figures are found by name: an objective without a discriminator has none of them.
        """
        recall = figures.get("disc_recall")
        if recall is not None and recall > 0.0:
            self._blind_since = None
        elif recall is not None and self._blind_since is None:
            self._blind_since = step - interval_steps
        blind = 0 if self._blind_since is None else step - self._blind_since
        if blind < BLIND_STEPS or "recall" in self._warned:
            return []
        self._warned.append("recall")
        return [
            Concern(
                "recall",
                f"the discriminator finds no replaced token (recall 0.00 for {blind} steps): normal early in "
                "a run; if it stays, the generator may be too strong; see docs/troubleshooting",
            )
        ]
