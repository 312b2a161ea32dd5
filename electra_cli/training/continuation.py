"""Which run a command continues: the newest with the same identity, or a new one that says what differs."""

from dataclasses import dataclass
from pathlib import Path

from electra_cli.errors import CorruptError, InputError
from electra_cli.training.checkpoint import folder_name, newest_valid
from electra_cli.training.fingerprint import Difference, Identity, Kind, two_columns
from electra_cli.training.run_folder import Manifest, RunFolder, all_runs, open_run


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What `electra pretrain` does."""

    run: RunFolder | None = None
    """The run to continue; `None`: a new one."""
    manifest: Manifest | None = None
    is_finished: bool = False
    """The run is already at its last step: nothing is left to do."""
    differences: tuple[Difference, ...] = ()
    """What a new run does not share with the newest one, or the grown number of steps of a resumed one."""
    compared: RunFolder | None = None
    """The newest run, which `differences` speak of."""


def decide(
    runs: Path, identity: Identity, steps: int, *, resume: Path | None = None, force_new: bool = False
) -> Decision:
    """Look through the runs. Raises InputError for `--resume` with a fatal difference, as two columns."""
    if resume is not None:
        return _resumed(resume, identity, steps)
    if force_new:
        return Decision()
    newest: tuple[RunFolder, tuple[Difference, ...]] | None = None
    for run in all_runs(runs):
        try:
            manifest = run.manifest()
        except CorruptError:
            continue
        differences = manifest.identity.differences(identity)
        if not differences:
            return Decision(run=run, manifest=manifest, is_finished=is_finished(run, steps))
        if newest is None:
            newest = (run, differences)
    if newest is None:
        return Decision()
    return Decision(compared=newest[0], differences=newest[1])


def _resumed(path: Path, identity: Identity, steps: int) -> Decision:
    run = open_run(path)
    manifest = run.manifest()
    differences = manifest.identity.differences(identity)
    fatal = tuple(d for d in differences if d.kind is Kind.FATAL)
    if fatal:
        raise InputError(
            f"{run.path} cannot continue with these settings:\n{two_columns(fatal)}",
            path=run.path,
            key=fatal[0].key,
            hint="take the settings of the run (resolved.toml in its folder), or leave --resume out to begin "
            "a new run",
        )
    planned = manifest.values.get("pretrain.steps")
    if isinstance(planned, int) and steps < planned:
        raise InputError(
            f"{run.path} was planned for {planned:,} steps; pretrain.steps = {steps:,} would end it earlier, "
            "and its learning rate would jump",
            path=run.path,
            key="pretrain.steps",
            hint=f"the number of steps may only grow; touch {run.stop_request} ends a run with a checkpoint",
        )
    return Decision(
        run=run,
        manifest=manifest,
        is_finished=is_finished(run, steps),
        differences=differences,
        compared=run,
    )


def is_finished(run: RunFolder, steps: int) -> bool:
    """Whether a run says that it ended, and a sound checkpoint stands at the last step asked for."""
    status = run.status()
    if status is None or status.state != "finished":
        return False
    newest = newest_valid(run.checkpoints).folder
    return newest is not None and newest.name == folder_name(steps)
