"""All of a run that survives a restart: weights, optimizer, position in the data, figures not yet logged."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from electra_cli.data.batches import Batch
from electra_cli.errors import CorruptError
from electra_cli.optimization.schedule import learning_rate
from electra_cli.optimization.update import SkippedSteps
from electra_cli.settings import ProjectSettings
from electra_cli.training import checkpoint
from electra_cli.training.checkpoint import Checkpoint, SkippedRecord, State
from electra_cli.training.figures import Interval, StepFigures
from electra_cli.training.health import Health
from electra_cli.training.processes import sum_over_ranks
from electra_cli.training.step import StepPlan
from electra_cli.training.weights import load_module_tensors, module_tensors


@dataclass(kw_only=True)
class Run:
    """The state of a run between two steps."""

    plan: StepPlan
    settings: ProjectSettings
    fingerprint: str
    vocabulary_sha256: str
    interval: Interval
    health: Health = field(default_factory=Health)
    skipped: SkippedSteps = field(default_factory=SkippedSteps)
    step: int = 0
    """Steps done."""
    samples: int = 0
    """Rows consumed, over all processes: the whole state of the data."""
    tokens: int = 0
    """Real tokens consumed, over all processes, up to the last `settle`."""
    is_heldout_due: bool = False
    """A signal broke the measurement of this step off."""
    uncounted_tokens: int = 0
    """Those of this process since then."""

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.settings.pretrain.steps

    @property
    def progress(self) -> float:
        """Share of the steps done."""
        return self.step / self.steps

    @property
    def learning_rate(self) -> float:
        """That of the next step."""
        return learning_rate(self.step, self.settings.schedule, self.settings.optimizer, self.steps)

    def advance(self, batch: Batch, figures: StepFigures) -> None:
        """Count a step that was taken. `batch` still lies in the memory of the CPU."""
        self.interval.add(figures)
        self.step += 1
        self.samples += self.settings.pretrain.batch_size
        self.uncounted_tokens += int((batch.piece_BS > 0).sum())

    def settle(self) -> None:
        """Bring the counts of all processes together; each must call it."""
        counted = torch.tensor(self.uncounted_tokens, device=self.plan.engine.device)
        sum_over_ranks([counted], self.plan.ranks)
        self.tokens += int(counted)
        self.uncounted_tokens = 0
        self.interval.combine(self.plan.ranks)

    def state(self, metrics_bytes: int) -> State:
        """What is no tensor."""
        return State(
            fingerprint=self.fingerprint,
            step=self.step,
            samples=self.samples,
            tokens=self.tokens,
            metrics_bytes=metrics_bytes,
            is_heldout_due=self.is_heldout_due,
            interval_steps=self.interval.num_steps,
            skipped=SkippedRecord(
                total=self.skipped.total, in_a_row=self.skipped.in_a_row, recent=list(self.skipped.recent)
            ),
            health=self.health.record,
            vocabulary_sha256=self.vocabulary_sha256,
            settings=self.settings.model_dump(mode="json"),
        )

    def model_tensors(self) -> dict[str, Tensor]:
        """The weights."""
        return module_tensors(self.plan.objective)

    def other_tensors(self) -> dict[str, Tensor]:
        """Optimizer state, and the figures since the last log line."""
        tensors = self.interval.tensors()
        for update in self.plan.updates:
            tensors |= update.tensors()
        return tensors

    def save(self, checkpoints: Path, metrics_bytes: int) -> Path:
        """Write a checkpoint of this step and remove those beyond the number to keep."""
        return checkpoint.save(
            checkpoints,
            self.state(metrics_bytes),
            self.model_tensors(),
            self.other_tensors(),
            keep=self.settings.pretrain.keep_checkpoints,
        )

    def restore(self, saved: Checkpoint) -> None:
        """Become what was saved; CorruptError where the tensors do not fit."""
        load_module_tensors(self.plan.objective, saved.model, str(saved.folder))
        try:
            for update in self.plan.updates:
                update.load_tensors(dict(saved.optimizer))
        except (KeyError, RuntimeError) as error:
            raise CorruptError(
                f"{saved.folder}: the optimizer state does not fit the model: {error}", path=saved.folder
            ) from error
        state = saved.state
        self.interval.load_tensors(saved.optimizer, state.interval_steps, self.plan.ranks)
        self.health = Health(state.health)
        self.skipped = SkippedSteps(
            total=state.skipped.total, in_a_row=state.skipped.in_a_row, recent=list(state.skipped.recent)
        )
        self.step, self.samples, self.tokens = state.step, state.samples, state.tokens
        self.is_heldout_due = state.is_heldout_due
