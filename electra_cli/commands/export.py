"""`electra export`: the networks of a run, or the average of several, as Hugging Face folders."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption
from electra_cli.commands._screen import Screen, open_screen

if TYPE_CHECKING:
    from electra_cli.evaluation.request import Request
    from electra_cli.export.model import ExportReport
    from electra_cli.pipeline_soup import SoupReport

_LOADED_BY = {"encoder": "AutoModel", "generator": "fill-mask"}


class SoupMode(StrEnum):
    """How the runs of a soup are chosen."""

    UNIFORM = "uniform"
    GREEDY = "greedy"


def export(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]", help="A run or one of its checkpoints; default: the newest run. Several: --soup."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write; default: RUN/export, soup/ for a soup."),
    ] = None,
    check: Annotated[
        bool, typer.Option(help="Load the folders in a fresh process and compare the outputs.")
    ] = True,
    soup: Annotated[bool, typer.Option("--soup", help="Average the weights of several runs.")] = False,
    soup_mode: Annotated[
        SoupMode, typer.Option(help="All runs, or those that do not lower the dev score of --task.")
    ] = SoupMode.UNIFORM,
    task: Annotated[
        str, typer.Option("--task", metavar="NAME", help="Task that a greedy soup is judged by.")
    ] = "",
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N|A,B", help="Fine-tuning runs of a greedy soup's candidates.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="Examples of each split used for that; 0: all.")
    ] = 0,
    project: ProjectOption = None,
    sets: SetOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Write encoder, discriminator and generator as Hugging Face folders."""
    from electra_cli.pipeline import export_run, export_soup
    from electra_cli.project import load_project

    with open_screen("export", output) as screen:
        greedy = _greedy(soup and soup_mode is SoupMode.GREEDY, task, seeds, limit)
        loaded, named = load_project(project, sets or []), runs or []
        if soup:
            done = export_soup(loaded, named, out, screen, greedy=greedy, self_check=check)
            _show(screen, done.export, done)
            return
        _refuse_several(named)
        _show(screen, export_run(loaded, named[0] if named else None, out, screen, self_check=check))


def _greedy(is_greedy: bool, task: str, seeds: str, limit: int) -> "Request | None":
    from electra_cli.errors import UsageError
    from electra_cli.evaluation.request import Request, parse_seeds, split_names

    if is_greedy:
        return Request(tasks=split_names([task]), seeds=parse_seeds(seeds), limit=limit)
    if task or seeds or limit:
        raise UsageError(
            "--task, --seeds and --limit choose the runs of a greedy soup",
            hint="electra export --soup --soup-mode greedy --task sst2 RUN RUN …",
        )
    return None


def _refuse_several(runs: list[Path]) -> None:
    from electra_cli.errors import UsageError

    if len(runs) > 1:
        raise UsageError(
            f"{len(runs)} runs are named, but one is exported at a time",
            hint="--soup averages the weights of several",
        )


def _show(screen: Screen, report: "ExportReport", soup: "SoupReport | None" = None) -> None:
    lines = []
    loaded_by = {**report.classes, **_LOADED_BY}
    width = max(map(len, loaded_by.values())) + 2
    for kind, num_bytes in report.num_bytes.items():
        seen = (
            f"✓ loads silently, max difference {report.differences[kind]:.0e}" if report.differences else ""
        )
        lines.append(f"{kind:<15}{loaded_by[kind]:<{width}}{num_bytes / 1e6:7.1f} MB   {seen}".rstrip())
    if report.example:
        lines.append(f"{'':<15}{report.example}")
    lines += [f"{kind:<15}not exported: {reason}" for kind, reason in report.left_out.items()]
    if report.not_checked:
        lines.append(f"not checked: {report.not_checked}")
    values: dict[str, object] = {
        "folder": str(report.folder),
        "bytes": dict(report.num_bytes),
        "differences": dict(report.differences),
        "left_out": dict(report.left_out),
        "not_checked": report.not_checked,
    }
    if soup is not None:
        lines.append(f"a soup of {len(soup.runs)} runs: {', '.join(soup.runs)}")
        values["runs"] = list(soup.runs)
    if soup is not None and soup.choice is not None and soup.choice.score is not None:
        best = max(score for score in soup.choice.alone if score is not None)
        lines.append(f"dev score {100 * soup.choice.score:.1f}, of the best run alone {100 * best:.1f}")
        values |= {"score": soup.choice.score, "alone": list(soup.choice.alone)}
    lines.append(f"Upload: hf upload YOU/NAME {report.folder / 'encoder'}")
    screen.result(
        values,
        lines,
        next_command="electra eval-glue" if soup is None else f"electra eval-glue --model {report.folder}",
    )
