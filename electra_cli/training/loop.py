"""The training loop: a step, then what is due after it."""

import time
from dataclasses import dataclass, field
from enum import IntEnum

from electra_cli.data.batches import Batch, BatchStream
from electra_cli.errors import (
    DivergedError,
    ElectraError,
    ExitCode,
    PreemptedError,
)
from electra_cli.progress import Progress
from electra_cli.training import checkpoint, records
from electra_cli.training.heldout import measure
from electra_cli.training.journal import Journal
from electra_cli.training.memory import naming_memory_shortage
from electra_cli.training.processes import largest_over_ranks
from electra_cli.training.run import Run
from electra_cli.training.run_folder import RunFolder, RunState, Status
from electra_cli.training.samples import Samples
from electra_cli.training.signals import StopRequest
from electra_cli.training.skips import SkipWatch, WatchedStep
from electra_cli.training.step import train_step
from electra_cli.training.weights import are_finite

_ENDS: dict[ExitCode, RunState] = {
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.PREEMPTED: "preempted",
    ExitCode.DIVERGED: "diverged",
}


class Request(IntEnum):
    """What a person, or the machine, asks of a running run; the larger wins."""

    NOTHING = 0
    SAVE = 1
    STOP = 2
    SIGNAL = 3


@dataclass(kw_only=True)
class Session:
    """One process's work on a run."""

    run: Run
    samples: Samples
    folder: RunFolder
    journal: Journal | None
    """`None` on all processes but the first, which writes for all."""
    stop: StopRequest
    progress: Progress
    clock: records.Clock = field(init=False)
    watch: SkipWatch = field(init=False)

    def __post_init__(self) -> None:
        self.clock = records.Clock(self.run.step)
        self.watch = SkipWatch(self.run.skipped)

    def write_status(self, state: RunState, exit_code: int | None = None) -> None:
        """status.json."""
        if self.journal is not None:
            run = self.run
            self.folder.write_status(Status(state=state, step=run.step, steps=run.steps, exit_code=exit_code))


def train(session: Session) -> RunState:
    """Step until the last step or until asked to end; the state is saved whenever it is worth saving."""
    run, ranks = session.run, session.run.plan.ranks
    pin_memory = run.plan.engine.device.type == "cuda"
    session.write_status("running")
    stream = session.samples.stream(run.samples, ranks, pin_memory=pin_memory)
    try:
        with session.stop.held(), naming_memory_shortage(run.plan.micro_batch_size):
            state = _loop(session, stream)
    except ElectraError as error:
        session.write_status(_ENDS.get(error.exit_code, "failed"), int(error.exit_code))
        raise
    finally:
        stream.close()
    session.write_status(state, int(ExitCode.OK))
    return state


def _loop(session: Session, stream: BatchStream) -> RunState:
    run, due = session.run, session.run.settings.pretrain
    session.progress.begin("pretrain", run.steps, "steps")
    session.progress.advance(run.step)
    session.clock.begin(run.tokens)
    if run.is_heldout_due:
        _measure(session)
    while run.step < run.steps:
        rate = run.learning_rate
        _step(session, next(stream), rate)
        is_last = run.step == run.steps
        if is_last or run.step % due.log_every == 0:
            _log(session, rate, stream.waited_seconds)
        if is_last or run.step % due.heldout_every == 0:
            run.is_heldout_due = True
            _measure(session)
        request = _request(session)
        if is_last or request or run.step % due.save_every == 0:
            _save(session)
        if request >= Request.STOP and not is_last:
            return _end(session, request)
    session.progress.end()
    return "finished"


def _step(session: Session, batch: Batch, rate: float) -> None:
    run = session.run
    figures = train_step(run.plan, batch, step=run.step, learning_rate=rate, progress=run.progress)
    session.watch.add(run.step, batch, figures)
    run.advance(batch, figures)
    session.progress.advance(1)
    _stop_if_diverged(session, session.watch.settle(wait=False))


def _log(session: Session, rate: float, waited_seconds: float) -> None:
    run = session.run
    _stop_if_diverged(session, session.watch.settle(wait=True))
    run.settle()
    steps = run.interval.num_steps
    means = run.interval.read()
    if session.journal is None:
        return
    health = records.health_figures(run, means)
    epochs = session.samples.epochs(run.samples)
    clock = session.clock.read(run, waited_seconds)
    session.journal.record(records.train_record(run, epochs, means, health, rate, clock))
    for concern in run.health.check(run.step, steps, health):
        session.journal.warning(concern, step=run.step)


def _measure(session: Session) -> None:
    """Held-out figures. A signal breaks it off; it is then still due when the run continues."""
    run = session.run
    run.settle()
    if session.journal is None:
        run.is_heldout_due = False
        return
    started = time.perf_counter()
    batches = session.samples.heldout_batches(run.plan.micro_batch_size)
    measured = measure(run.plan, batches, progress=run.progress, is_stopped=lambda: session.stop.signal)
    if session.stop.signal and not measured:
        return
    run.is_heldout_due = False
    if measured is not None:
        epochs = session.samples.epochs(run.samples)
        seconds = time.perf_counter() - started
        session.journal.record(records.heldout_record(run, epochs, measured, seconds))


def _save(session: Session) -> None:
    """A checkpoint of this step; never of weights that are not finite, never twice."""
    run, started = session.run, time.perf_counter()
    _stop_if_diverged(session, session.watch.settle(wait=True))
    run.settle()
    if session.journal is None:
        return
    if not are_finite(run.model_tensors().values()):
        _diverge(session, f"the weights are no longer finite after step {run.step:,}", {"step": run.step})
    session.journal.sync()
    folder = run.save(session.folder.checkpoints, session.journal.length)
    session.folder.save_request.unlink(missing_ok=True)
    session.write_status("running")
    session.journal.message(f"saved {folder.name} ({time.perf_counter() - started:.1f} s)")


def _request(session: Session) -> Request:
    asked = Request.NOTHING
    if session.stop.signal is not None:
        asked = Request.SIGNAL
    elif session.journal is not None and session.folder.stop_request.exists():
        asked = Request.STOP
    elif session.journal is not None and session.folder.save_request.exists():
        asked = Request.SAVE
    plan = session.run.plan
    return Request(largest_over_ranks(int(asked), plan.ranks, plan.engine.device))


def _end(session: Session, request: Request) -> RunState:
    run = session.run
    name = checkpoint.folder_name(run.step)
    session.folder.stop_request.unlink(missing_ok=True)
    session.progress.end()
    if request is Request.STOP:
        if session.journal is not None:
            session.journal.message(f"stopped at step {run.step:,} as asked; the same command continues")
        return "stopped"
    ended = session.stop.signal.name if session.stop.signal is not None else "another process's signal"
    error = session.stop.error_class or PreemptedError
    raise error(f"{ended}: saved {name}", hint="the same command continues")


def _stop_if_diverged(session: Session, seen: WatchedStep | None) -> None:
    if seen is None:
        return
    loss = float(seen.loss)
    _diverge(
        session,
        f"loss became {loss} at step {seen.step:,}"
        if loss != loss or abs(loss) == float("inf")
        else f"gradients became infinite or NaN at step {seen.step:,}",
        {
            "step": seen.step,
            "samples": seen.sample_B.tolist(),
            "loss": repr(loss),
            "grad_norm": [repr(norm) for norm in seen.grad_norm_N.tolist()],
            "skipped_in_a_row": session.run.skipped.in_a_row,
            "skipped_recently": list(session.run.skipped.recent),
        },
    )


def _diverge(session: Session, what: str, content: dict[str, object]) -> None:
    """Write down what is known, with the state before the bad step where it is finite, and end the run."""
    run = session.run
    step = int(str(content["step"]))
    found = checkpoint.newest_valid(session.folder.checkpoints).folder
    last = found.name if found is not None else "none"
    crash = session.folder.crash / f"step-{step}.json"
    if session.journal is not None:
        if are_finite(run.model_tensors().values()):
            folder = session.folder.crash / checkpoint.folder_name(step)
            checkpoint.write(
                folder, run.state(session.journal.length), run.model_tensors(), run.other_tensors()
            )
            content["state_before"] = folder.name
        session.folder.write_crash(step, content)
    raise DivergedError(
        f"{what}. Last good checkpoint: {last}",
        path=crash,
        hint="samples and gradient norms are in that file; a lower optimizer.learning_rate starts a new run",
    )
