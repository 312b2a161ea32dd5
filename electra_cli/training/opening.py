"""From the decision which run it is to a session that can step: lock, folder, checkpoint, first words."""

from contextlib import ExitStack
from pathlib import Path

from electra_cli import durable
from electra_cli.errors import CorruptError
from electra_cli.progress import Progress
from electra_cli.project import dump_toml
from electra_cli.training import checkpoint
from electra_cli.training.continuation import Decision
from electra_cli.training.device import computing
from electra_cli.training.fingerprint import Difference, Kind, two_columns
from electra_cli.training.journal import Journal
from electra_cli.training.loop import Session
from electra_cli.training.memory import CHECKPOINT_BYTES_PER_PARAMETER
from electra_cli.training.processes import shared_text
from electra_cli.training.run import Run
from electra_cli.training.run_folder import Manifest, RunFolder, create_run
from electra_cli.training.signals import StopRequest
from electra_cli.training.start import Job, concerns_of, make_engine, make_manifest, make_run, sampler_of
from electra_cli.training.warm_start import start_from
from electra_cli.training.weights import count_parameters, in_words

_FREE_CHECKPOINTS = 2.2


def open_session(job: Job, decision: Decision, stop: StopRequest, stack: ExitStack) -> Session:
    """A session on the run that `decision` means; `stack` holds the lock, the files and torch's settings."""
    if decision.run is not None:
        _lock(job, decision.run, stack)
    engine = make_engine(job, decision.manifest)
    stack.enter_context(computing(engine))
    run = make_run(job, engine, decision.manifest)
    saved = None if decision.run is None else _newest_checkpoint(job, decision.run)
    started_from = ""
    if saved is None and job.settings.pretrain.init_from:
        source = job.project.resolve(job.settings.pretrain.init_from)
        length = job.settings.rows.sequence_length
        started_from = start_from(source, run.plan.objective, job.vocabulary, length)
    metrics_bytes = 0
    if saved is not None:
        loaded = checkpoint.load(saved, device=engine.device)
        run.restore(loaded)
        metrics_bytes = loaded.state.metrics_bytes
    folder = decision.run or _new_folder(job, run, stack)
    journal = None
    if job.ranks.is_first:
        journal = _open_journal(folder, job.progress, metrics_bytes)
        stack.callback(journal.close)
        _grow(folder, decision, job)
        _introduce(job, run, folder, decision, journal)
        if started_from:
            journal.message(started_from)
    return Session(
        run=run, samples=job.samples, folder=folder, journal=journal, stop=stop, progress=job.progress
    )


def _lock(job: Job, run: RunFolder, stack: ExitStack) -> None:
    if job.ranks.is_first:
        stack.enter_context(durable.locked(run.path, "electra pretrain"))
        durable.remove_leftovers(run.path)
        durable.remove_leftovers(run.checkpoints)
        # Requests to a process that is gone: whoever starts the run again wants it to run.
        run.save_request.unlink(missing_ok=True)
        run.stop_request.unlink(missing_ok=True)


def _new_folder(job: Job, run: Run, stack: ExitStack) -> RunFolder:
    path = ""
    if job.ranks.is_first:
        path = str(create_run(job.project, make_manifest(job, run), job.project.runs_dir).path)
    folder = RunFolder(Path(shared_text(path, job.ranks, run.plan.engine.device)))
    _lock(job, folder, stack)
    return folder


def _newest_checkpoint(job: Job, run: RunFolder) -> Path | None:
    """The newest valid checkpoint; says which damaged ones it passes over."""
    found = checkpoint.newest_valid(run.checkpoints, fingerprint=job.identity.fingerprint)
    checkpoint.say_damaged(found, job.progress)
    if found.folder is None and found.damaged:
        raise CorruptError(
            f"{run.path} has no valid checkpoint: {found.damaged[0].message}",
            path=run.path,
            hint="restore the folder from a copy, or begin a new run with --force",
        )
    return found.folder


def _open_journal(folder: RunFolder, progress: Progress, metrics_bytes: int) -> Journal:
    size = folder.metrics.stat().st_size if folder.metrics.is_file() else 0
    if size < metrics_bytes:
        progress.warning(
            f"{folder.metrics} has {size:,} bytes, the checkpoint knows of {metrics_bytes:,}: lines are lost",
            code="metrics-cut",
        )
    return Journal(folder, progress, length=min(size, metrics_bytes))


def _grow(folder: RunFolder, decision: Decision, job: Job) -> None:
    """Write down that a resumed run has more steps now, so that the same command continues it."""
    if decision.manifest is None or not decision.differences:
        return
    grown = decision.manifest.model_copy(update={"values": dict(job.identity.values)})
    durable.write_json(folder.path / "manifest.json", Manifest.model_dump(grown, mode="json"))
    durable.write_text(folder.path / "resolved.toml", dump_toml(job.settings))


def _introduce(job: Job, run: Run, folder: RunFolder, decision: Decision, journal: Journal) -> None:
    """The first lines: which run, which model, what differs, what is probably not meant."""
    settings = job.settings
    name = _shown(job, folder.path)
    if decision.run is None:
        git = f"   git {commit}" if (commit := folder.manifest().git) else ""
        journal.message(f"run    {name} (runs/latest)   seed {settings.project.seed}{git}")
        if decision.compared is not None and decision.differences:
            journal.message(
                f"a new run, because these settings differ from {_shown(job, decision.compared.path)}:\n"
                f"{two_columns(decision.differences)}"
            )
            if _only_grows(decision.differences):
                journal.message(
                    f"to give that run more steps instead: electra pretrain --resume "
                    f"{_shown(job, decision.compared.path)}"
                )
    else:
        journal.message(f"continuing {name} from step {run.step:,}")
        for difference in decision.differences:
            journal.message(
                f"{difference.key} grows from {difference.old} to {difference.new}: the learning rate "
                f"follows the new total from here on, {run.learning_rate:.3g} at step {run.step:,}"
            )
    networks = in_words(count_parameters(run.plan.objective))
    sampler, reason = sampler_of(job, run.plan.engine)
    journal.message(
        f"model  {networks} · sampler: {sampler} ({reason}) · {run.plan.engine.describe()} · "
        f"micro-batch {run.plan.micro_batch_size}"
    )
    if run.step == 0:
        for concern in concerns_of(job):
            journal.warning(concern, step=0)
    _check_disk(run, folder, journal)


def _only_grows(differences: tuple[Difference, ...]) -> bool:
    """Whether `--resume` would continue the run that differs."""
    return all(
        one.kind is Kind.GUARDED
        and isinstance(one.old, int)
        and isinstance(one.new, int)
        and one.old < one.new
        for one in differences
    )


def _check_disk(run: Run, folder: RunFolder, journal: Journal) -> None:
    """A checkpoint is written before an old one goes: warn where there is no room for two."""
    parameters = sum(parameter.numel() for parameter in run.plan.objective.parameters())
    needed = int(_FREE_CHECKPOINTS * CHECKPOINT_BYTES_PER_PARAMETER * parameters)
    free = durable.free_bytes(folder.path)
    if free < needed:
        journal.notice(
            f"{free:,} bytes are free in {folder.path}; saving a checkpoint safely needs {needed:,}",
            code="disk",
        )


def _shown(job: Job, path: Path) -> str:
    return str(path.relative_to(job.project.root)) if path.is_relative_to(job.project.root) else str(path)
