"""Drawing before a run: the frozen models' ids for every sample of a plan, in order, file after file.

A file appears when it is whole, so the command can be stopped at any time and goes on behind the last one.
Batches are cut as the run cuts them, so on one machine the ids are those that it would draw itself.
"""

# B batch, K slots of a row, N samples of a file

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import electra_cli
from electra_cli import durable
from electra_cli.corruption import num_chosen
from electra_cli.data import drawn
from electra_cli.data.batches import Batch
from electra_cli.data.drawn import Int64, Plan
from electra_cli.data.shards import ShardSet
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.distributed import Ranks
from electra_cli.errors import InputError
from electra_cli.objectives import find
from electra_cli.objectives.base import DrawingObjective
from electra_cli.progress import Progress
from electra_cli.project import Project
from electra_cli.training.device import Engine, computing
from electra_cli.training.fingerprint import two_columns
from electra_cli.training.memory import naming_memory_shortage
from electra_cli.training.plan import differences, plan_of
from electra_cli.training.start import Job, make_engine, make_job, make_objective, micro_batch_size
from electra_cli.training.step import cut

SAMPLES_PER_FILE = 1 << 16
"""About 2.5 MB a file at 128 tokens a row."""


@dataclass(frozen=True, kw_only=True)
class DrawnReport:
    """What `draw_samples` did."""

    folder: Path
    num_samples: int
    num_bytes: int
    is_fresh: bool
    """False: all of it was there."""


def draw_samples(
    project: Project,
    vocabulary: Vocabulary,
    shards: ShardSet,
    progress: Progress,
    folder: Path,
    *,
    force: bool = False,
    samples_per_file: int = SAMPLES_PER_FILE,
) -> DrawnReport:
    """Draw for every sample of the project's run into `folder`; goes on where an earlier call stopped.

    InputError where the folder holds another plan's ids, unless `force`, or files that are not ours;
    ProjectError where the objective trains the network that it samples from.
    """
    job = make_job(project, vocabulary, shards, progress, Ranks(), reads_samples=False)
    plan = plan_of(job.identity, find(project.settings.objective.use, project.root))
    drawn.refuse_foreign(folder)
    with durable.locked(folder, drawn.COMMAND):
        durable.remove_leftovers(folder)
        if force:
            drawn.clear(folder)
        is_finished = _is_finished(folder, plan)
        if not is_finished:
            _draw_all(job, plan, folder, samples_per_file)
        manifest = drawn.open_drawn(folder).manifest
    num_bytes = sum(facts["bytes"] for facts in manifest["files"])
    return DrawnReport(
        folder=folder, num_samples=manifest["num_samples"], num_bytes=num_bytes, is_fresh=not is_finished
    )


def _is_finished(folder: Path, plan: Plan) -> bool:
    """Whether all is there; InputError where what is there belongs to another plan."""
    finished = drawn.finished_plan(folder)
    stored = finished if finished is not None else drawn.unfinished_plan(folder)
    differing = () if stored is None else differences(stored, plan)
    if differing:
        raise InputError(
            f"{folder} holds samples of another plan:\n{two_columns(differing, theirs='there')}",
            path=folder,
            key=differing[0].key,
            hint="name another folder with --out, or replace them with --force",
        )
    return finished is not None


def _draw_all(job: Job, plan: Plan, folder: Path, samples_per_file: int) -> None:
    pretrain = job.settings.pretrain
    # Whole steps a file.
    per_file = max(1, samples_per_file // pretrain.batch_size) * pretrain.batch_size
    total = pretrain.steps * pretrain.batch_size
    with ExitStack() as stack:
        engine = make_engine(job)
        stack.enter_context(computing(engine))
        drawer = _Drawer.of(job, engine)
        stack.enter_context(naming_memory_shortage(drawer.micro_batch_size))
        drawer.write_heldout(folder / drawn.HELDOUT, plan)
        job.progress.begin("draw", total, "rows")
        for number, first in enumerate(range(0, total, per_file)):
            count, path = min(per_file, total - first), folder / drawn.file_name(number)
            if drawn.is_drawn(path, plan, first, count):
                job.progress.advance(count)
            else:
                drawer.write(path, drawer.draw_samples(first, count), np.arange(first, first + count), plan)
        drawn.finish(
            folder,
            plan=plan,
            slots=drawer.num_slots,
            samples_per_file=per_file,
            num_samples=total,
            made_with={
                "electra-cli": electra_cli.__version__,
                "torch": str(torch.__version__),
                "device": str(engine.device),
                "precision": engine.precision,
                "micro_batch_size": drawer.micro_batch_size,
            },
        )
        job.progress.end()


@dataclass(frozen=True, kw_only=True)
class _Drawer:
    """The frozen models at work."""

    job: Job
    engine: Engine
    objective: DrawingObjective
    micro_batch_size: int
    num_slots: int

    @classmethod
    def of(cls, job: Job, engine: Engine) -> "_Drawer":
        objective = make_objective(job, engine)
        assert isinstance(objective, DrawingObjective)
        return cls(
            job=job,
            engine=engine,
            objective=objective,
            micro_batch_size=micro_batch_size(job, objective, engine),
            num_slots=num_chosen(job.settings.rows.sequence_length, job.settings.masking.fraction),
        )

    def write_heldout(self, path: Path, plan: Plan) -> None:
        """The held-out rows that a run measures."""
        batches = list(self.job.samples.heldout_batches(self.micro_batch_size))
        drawn_NK = self._joined(self._draw(batch, 1.0) for batch in batches)
        numbers = [batch.sample_B.numpy() for batch in batches]
        row_N = np.concatenate([np.empty(0, np.int64), *numbers])
        self.write(path, drawn_NK, row_N, plan)

    def draw_samples(self, first: int, count: int) -> Int64:
        """The ids [N, K] of samples in a row, whole steps of them."""
        pretrain = self.job.settings.pretrain
        stream = self.job.samples.stream(first, Ranks(), pin_memory=self.engine.device.type == "cuda")
        first_step = first // pretrain.batch_size
        try:
            return self._joined(
                # The share of the run that is done, as the run itself counts it.
                self._draw(next(stream), (first_step + number) / pretrain.steps)
                for number in range(count // pretrain.batch_size)
            )
        finally:
            stream.close()

    def write(self, path: Path, ids_NK: Int64, sample_N: Int64, plan: Plan) -> None:
        """One file."""
        size = self.job.vocabulary.size
        drawn.write_drawn(path, ids_NK, sample_N, vocabulary_size=size, plan=plan)

    def _draw(self, batch: Batch, progress: float) -> Int64:
        device = self.engine.device
        progress_now = torch.tensor(progress, dtype=torch.float32, device=device)
        parts = []
        for micro_batch in cut(batch, self.micro_batch_size, device):
            with self.engine.autocast():
                parts.append(self.objective.draw(micro_batch, progress_now))
        self.job.progress.advance(0 if batch.is_heldout else len(batch.sample_B))
        ids_BK: Int64 = torch.cat(parts).cpu().numpy()
        return ids_BK

    def _joined(self, parts: Iterator[Int64]) -> Int64:
        return np.concatenate([np.empty((0, self.num_slots), np.int64), *parts])
