"""A rehearsal of a run: real steps on real rows, a save and a resume, and nothing left behind."""

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from electra_cli import durable
from electra_cli.data.batches import Batch, changed, joined
from electra_cli.data.shards import ShardSet
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.distributed import Ranks
from electra_cli.progress import Progress
from electra_cli.project import Project
from electra_cli.training import checkpoint
from electra_cli.training.contract import Contract, check_contract
from electra_cli.training.device import computing
from electra_cli.training.health import Concern
from electra_cli.training.memory import naming_memory_shortage
from electra_cli.training.run import Run
from electra_cli.training.start import Job, concerns_of, make_engine, make_job, make_run, sampler_of
from electra_cli.training.step import train_step
from electra_cli.training.warm_start import start_from
from electra_cli.training.weights import count_parameters

# A rehearsed batch has this many micro-batches at most; the time of a step is scaled to the whole batch.
_MICRO_BATCHES = 2
_CONTRACT_ROWS = 4
_MOST_STEPS = 60
_ENOUGH_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a rehearsal measured."""

    parameters: Mapping[str, int]
    """By network; a shared table counts in each."""
    engine: str
    """Device, threads, precision and why, in words."""
    precision: str
    sampler: str
    sampler_reason: str
    micro_batch_size: int
    peak_bytes: int
    """Most memory of the process (CPU) or device while stepping."""
    seconds_per_step: float
    tokens_per_second: float
    steps_timed: int
    total_seconds: float
    """For all steps of the run."""
    num_tokens: int
    num_rows: int
    epochs: float
    """Passes over the rows that the run makes."""
    checkpoint_bytes: int
    keep_checkpoints: int
    free_bytes: int
    is_resume_identical: bool
    """Two steps in one go, and a step, save, load, step, gave the same losses and weights."""
    contract: Contract
    concerns: tuple[Concern, ...]


def dry_run(project: Project, vocabulary: Vocabulary, shards: ShardSet, progress: Progress) -> DryRun:
    """Build the networks, take real steps, save and resume in a temporary folder, and report.

    Raises what `pretrain` would: MemoryShortError, InputError, ProjectError.
    """
    job = make_job(project, vocabulary, shards, progress, Ranks())
    settings = project.settings
    with ExitStack() as stack:
        engine = make_engine(job)
        stack.enter_context(computing(engine))
        run = make_run(job, engine)
        stack.enter_context(naming_memory_shortage(run.plan.micro_batch_size))
        if settings.pretrain.init_from:
            source = project.resolve(settings.pretrain.init_from)
            progress.message(
                start_from(source, run.plan.objective, vocabulary, settings.rows.sequence_length)
            )
        rows = min(settings.pretrain.batch_size, _MICRO_BATCHES * run.plan.micro_batch_size)
        stream = replace(job.samples, batch_size=rows).stream(0, Ranks(), pin_memory=False)
        stack.callback(stream.close)
        batches = [next(stream) for _ in range(3)]
        contract = check_contract(run.plan.objective, _first_rows(batches, engine.device))
        is_identical, checkpoint_bytes = _rehearse_resume(job, run, batches)
        steps_timed, seconds, tokens = _time_steps(run, batches, progress)
        sampler, reason = sampler_of(job, engine)
        seconds_per_step = seconds / steps_timed * settings.pretrain.batch_size / rows
        return DryRun(
            parameters=count_parameters(run.plan.objective),
            engine=engine.describe(),
            precision=engine.precision,
            sampler=sampler,
            sampler_reason=reason,
            micro_batch_size=run.plan.micro_batch_size,
            peak_bytes=engine.peak_bytes(),
            seconds_per_step=seconds_per_step,
            tokens_per_second=tokens / seconds,
            steps_timed=steps_timed,
            total_seconds=seconds_per_step * settings.pretrain.steps,
            num_tokens=shards.num_content_tokens,
            num_rows=job.samples.rows.num_rows,
            epochs=job.samples.epochs(settings.pretrain.steps * settings.pretrain.batch_size),
            checkpoint_bytes=checkpoint_bytes,
            keep_checkpoints=settings.pretrain.keep_checkpoints,
            free_bytes=durable.free_bytes(project.runs_dir),
            is_resume_identical=is_identical,
            contract=contract,
            concerns=tuple(concerns_of(job)),
        )


def _first_rows(batches: list[Batch], device: torch.device) -> Batch:
    """A few rows of several batches, which may be of one row each."""
    return changed(joined(batches), lambda tensor: tensor[:_CONTRACT_ROWS].to(device))


def _rehearse_resume(job: Job, run: Run, batches: list[Batch]) -> tuple[bool, int]:
    """Whether two steps equal a step, a save, a load and a step; and the size of the checkpoint."""
    engine = run.plan.engine
    with tempfile.TemporaryDirectory(prefix="electra-check-") as name:
        _step(run, batches[0])
        folder = Path(name) / checkpoint.folder_name(run.step)
        checkpoint.write(folder, run.state(0), run.model_tensors(), run.other_tensors())
        size = sum(file.stat().st_size for file in folder.iterdir())
        straight = _step(run, batches[1])
        resumed = make_run(job, engine)
        resumed.restore(checkpoint.load(folder, device=engine.device))
    again = _step(resumed, batches[1])
    other = resumed.model_tensors()
    is_identical = straight == again and all(
        torch.equal(value, other[name]) for name, value in run.model_tensors().items()
    )
    return is_identical, size


def _time_steps(run: Run, batches: list[Batch], progress: Progress) -> tuple[int, float, int]:
    """Steps, their seconds, and their tokens; one step, or as many as fit into a few seconds."""
    progress.begin("rehearse", None, "steps")
    steps, tokens, started = 0, 0, time.perf_counter()
    while steps < _MOST_STEPS and (steps == 0 or time.perf_counter() - started < _ENOUGH_SECONDS):
        batch = batches[steps % len(batches)]
        _step(run, batch)
        steps += 1
        tokens += int((batch.piece_BS > 0).sum())
        progress.advance()
    seconds = time.perf_counter() - started
    progress.end()
    return steps, seconds, tokens


def _step(run: Run, batch: Batch) -> float:
    """One step; reading the loss waits for the device."""
    figures = train_step(
        run.plan,
        batch,
        step=min(run.step, run.steps - 1),
        # The rate of a step far into the run, so that the weights move.
        learning_rate=run.settings.optimizer.learning_rate,
        progress=0.0,
    )
    run.advance(batch, figures)
    return float(figures.loss)
