"""`electra report`: one HTML page about a run."""

from pathlib import Path
from typing import Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption
from electra_cli.commands._screen import open_screen


def report(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="A run directory; default: the newest run.")
    ] = None,
    project: ProjectOption = None,
    sets: SetOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Write report.html: curves, held-out figures, scores and settings of a run."""
    from electra_cli.pipeline import newest_run
    from electra_cli.project import load_project
    from electra_cli.report.page import write_report

    with open_screen("report", output) as screen:
        path = write_report(run or newest_run(load_project(project, sets or [])))
        screen.result({"report": str(path)}, [str(path)])
