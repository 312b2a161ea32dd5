"""`electra cache-samples`: what a frozen model would draw in a run, drawn before it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption, VerifyOption
from electra_cli.commands._safe import compact, size
from electra_cli.commands._screen import open_screen

if TYPE_CHECKING:
    from electra_cli.training.drawing import DrawnReport


def cache_samples(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write; default: objective.samples, or samples/."),
    ] = None,
    project: ProjectOption = None,
    sets: SetOption = None,
    verify: VerifyOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Draw again, replacing the samples of another plan.")
    ] = False,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Draw a run's samples from its frozen model beforehand; Fast-ELECTRA alone can."""
    from electra_cli.project import load_project
    from electra_cli.training.signals import handling_signals

    with open_screen("cache-samples", output) as screen, handling_signals():
        from electra_cli.pipeline import ensure_shards
        from electra_cli.training.drawing import draw_samples

        loaded = load_project(project, sets or [])
        vocabulary, shards = ensure_shards(loaded, screen, verify=verify)
        named = (loaded.settings.objective.model_extra or {}).get("samples")
        folder = loaded.resolve(str(named or "samples")) if out is None else out
        report = draw_samples(loaded, vocabulary, shards, screen, folder, force=force)
        screen.result(
            {
                "folder": str(report.folder),
                "is_fresh": report.is_fresh,
                "samples": report.num_samples,
                "bytes": report.num_bytes,
            },
            [_line(report)],
            next_command=f"electra pretrain -s objective.samples={folder}",
        )


def _line(report: "DrawnReport") -> str:
    if not report.is_fresh:
        return f"{report.folder} is up to date"
    return f"{report.folder}   {compact(report.num_samples)} samples, {size(report.num_bytes)}"
