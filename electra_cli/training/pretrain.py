"""The stage: settings, vocabulary and shards become a run; a run that was interrupted goes on.

make_job → decide which run it is → open_session: networks, checkpoint, journal → train: step, step, step
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from electra_cli.data.shards import ShardSet
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.distributed import from_environment
from electra_cli.progress import Progress, Silent
from electra_cli.project import Project
from electra_cli.training.continuation import decide
from electra_cli.training.loop import train
from electra_cli.training.opening import open_session
from electra_cli.training.processes import joined, wait_for_all
from electra_cli.training.run_folder import RunState
from electra_cli.training.signals import StopRequest
from electra_cli.training.start import make_engine, make_job


@dataclass(frozen=True)
class RunResult:
    """How a call of `pretrain` ended."""

    folder: Path
    step: int
    steps: int
    state: RunState
    is_fresh: bool = True
    """False: the run was finished before, and nothing was written."""


def pretrain(
    project: Project,
    vocabulary: Vocabulary,
    shards: ShardSet,
    progress: Progress,
    *,
    resume: Path | None = None,
    force_new: bool = False,
    stop: StopRequest | None = None,
) -> RunResult:
    """Train until the last step, continuing the newest run of the same fingerprint.

    Raises PreemptedError or InterruptedRunError after a signal (the state is saved), DivergedError,
    MemoryShortError, StorageError; InputError when `resume` names a run that differs, or when another
    process writes the run.
    """
    ranks = from_environment()
    steps = project.settings.pretrain.steps
    job = make_job(project, vocabulary, shards, progress if ranks.is_first else Silent(), ranks)
    with ExitStack() as stack:
        stack.enter_context(joined(ranks, make_engine(job).device))
        decision = decide(project.runs_dir, job.identity, steps, resume=resume, force_new=force_new)
        wait_for_all(ranks)
        if decision.run is not None and decision.is_finished:
            job.progress.message(
                f"already finished: {decision.run.path.name} is at {steps:,}/{steps:,} steps"
            )
            return RunResult(decision.run.path, steps, steps, "finished", is_fresh=False)
        session = open_session(job, decision, stop or StopRequest(), stack)
        state = train(session)
        return RunResult(session.folder.path, session.run.step, steps, state)
