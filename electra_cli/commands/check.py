"""`electra check`: look at everything and rehearse the run, without training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption
from electra_cli.commands._screen import Screen, open_screen

if TYPE_CHECKING:
    from electra_cli.project import Project


def check(
    file: Annotated[Path | None, typer.Argument(metavar="[PROJECT]", help="Project file.")] = None,
    project: ProjectOption = None,
    sets: SetOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Check project, data, memory, time and disk by real steps; the same as pretrain --dry-run."""
    from electra_cli.project import load_project

    with open_screen("check", output) as screen:
        rehearse(load_project(file or project, sets or []), screen)


def rehearse(project: "Project", screen: Screen) -> None:
    """Show what a check finds; raises the first thing that would stop a run."""
    from dataclasses import asdict

    from electra_cli.pipeline_check import check_project

    report = check_project(project, screen)
    lines = [f"{'✓' if found.is_good else '✗'} {found.name:<12} {found.text}" for found in report.findings]
    screen.result(
        {
            "findings": [asdict(found) for found in report.findings],
            "rehearsal": None if report.rehearsal is None else asdict(report.rehearsal),
        },
        lines,
        "" if report.error else f"electra pretrain {project.path.name if project.path else ''}".rstrip(),
    )
    if report.error is not None:
        raise report.error
