"""`electra pretrain`: train the model, or go on where it stopped."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from electra_cli.commands._options import (
    FormatOption,
    OutputFormat,
    ProjectOption,
    SetOption,
    VerifyOption,
)
from electra_cli.commands._screen import Screen, open_screen
from electra_cli.errors import UsageError

if TYPE_CHECKING:
    from electra_cli.project import Project
    from electra_cli.training.pretrain import RunResult


def pretrain(
    project_file: Annotated[
        Path | None, typer.Argument(metavar="PROJECT", help="Project file; ./project.toml when present.")
    ] = None,
    project: ProjectOption = None,
    sets: SetOption = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="RUN", help="Continue this run; refused if the settings differ."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:N or mps.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and rehearse as electra check does; write nothing.")
    ] = False,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Fail instead of building a missing vocabulary or shards.")
    ] = False,
    verify: VerifyOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Begin a new run even where one could be continued.")
    ] = False,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Pre-train the model; the same command goes on after an interruption."""
    from electra_cli.project import load_project

    if project_file is not None and project is not None and project_file != project:
        raise UsageError(f"two project files: {project_file} and --project {project}")
    named = [f"pretrain.device={json.dumps(device)}"] if device else []
    with open_screen("pretrain", output) as screen:
        loaded = load_project(project_file or project, [*(sets or []), *named])
        if dry_run:
            from electra_cli.commands.check import rehearse

            rehearse(loaded, screen)
        else:
            result = _train(loaded, screen, resume, build=not no_build, verify=verify, force=force)
            screen.result(
                {
                    "run": str(result.folder),
                    "state": result.state,
                    "step": result.step,
                    "steps": result.steps,
                    "is_fresh": result.is_fresh,
                },
                [f"{result.folder}   {result.state} at step {result.step:,} of {result.steps:,}"],
                next_command="electra export" if result.state == "finished" else "electra pretrain",
            )


def _train(
    project: "Project", screen: Screen, resume: Path | None, *, build: bool, verify: bool, force: bool
) -> "RunResult":
    from electra_cli.training.signals import handling_signals

    with handling_signals() as stop:
        from electra_cli import pipeline
        from electra_cli.training.pretrain import pretrain as train

        vocabulary, shards = pipeline.ensure_shards(project, screen, build=build, verify=verify)
        return train(project, vocabulary, shards, screen, resume=resume, force_new=force, stop=stop)
