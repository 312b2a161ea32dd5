"""`electra export`: the newest run's networks as Hugging Face folders."""

from pathlib import Path
from typing import Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption
from electra_cli.commands._screen import open_screen

_WHAT = {
    "encoder": "AutoModel",
    "discriminator": "ElectraForPreTraining",
    "generator": "fill-mask",
}


def export(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="A run or one of its checkpoints; default: the newest run."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where to write; default: RUN/export.")
    ] = None,
    check: Annotated[
        bool, typer.Option(help="Load the folders in a fresh process and compare the outputs.")
    ] = True,
    project: ProjectOption = None,
    sets: SetOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Write encoder, discriminator and generator as Hugging Face folders."""
    from electra_cli.pipeline import export_run
    from electra_cli.project import load_project

    with open_screen("export", output) as screen:
        report = export_run(load_project(project, sets or []), run, out, screen, self_check=check)
        lines = []
        for kind, num_bytes in report.num_bytes.items():
            seen = (
                f"✓ loads silently, max difference {report.differences[kind]:.0e}"
                if report.differences
                else ""
            )
            lines.append(f"{kind:<15}{_WHAT[kind]:<24}{num_bytes / 1e6:7.1f} MB   {seen}".rstrip())
        if report.example:
            lines.append(f"{'':<15}{report.example}")
        if report.not_checked:
            lines.append(f"not checked: {report.not_checked}")
        lines.append(f"Upload: hf upload YOU/NAME {report.folder / 'encoder'}")
        screen.result(
            {
                "folder": str(report.folder),
                "bytes": dict(report.num_bytes),
                "differences": dict(report.differences),
                "not_checked": report.not_checked,
            },
            lines,
            next_command="electra eval-glue",
        )
