"""`electra eval-blimp`: which sentence of a minimal pair does the model prefer?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption
from electra_cli.commands._screen import Screen, open_screen

if TYPE_CHECKING:
    from electra_cli.evaluation.blimp import BlimpReport


def eval_blimp(
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="DIR", help="A run, an export or the folder of one network."),
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            "--network",
            metavar="NAME",
            help="discriminator or generator; default: the first that is there.",
        ),
    ] = "",
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Judge every checkpoint of the run.")
    ] = False,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Folder, file or hf://owner/name; default: data/blimp, else the Hub.",
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where results go; default: beside the model.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="Use the first N pairs of each set.")
    ] = 0,
    fail_under: Annotated[
        list[str] | None,
        typer.Option("--fail-under", metavar="NAME=PERCENT", help="Exit 9 below this share; overall=60."),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use no network.")] = False,
    project: ProjectOption = None,
    sets: SetOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Judge minimal pairs without any training: does the good sentence score higher?"""
    from electra_cli.evaluation import blimp
    from electra_cli.evaluation.request import parse_thresholds
    from electra_cli.pipeline_blimp import checkpoints_to_judge, model_to_judge
    from electra_cli.project import load_project

    with open_screen("eval-blimp", output) as screen:
        loaded = load_project(project, sets or [])
        request = blimp.BlimpRequest(
            data=data, limit=limit, is_offline=offline, thresholds=parse_thresholds(fail_under or [])
        )
        pairs = blimp.load_sets(loaded, request)
        blimp.check_thresholds(request, pairs)
        found = (
            checkpoints_to_judge(loaded, model, network)
            if checkpoints
            else model_to_judge(loaded, model, network, screen)
        )
        report = blimp.eval_blimp(
            loaded, found.models, pairs, out or found.folder, screen, is_along_run=checkpoints
        )
        _show(screen, report)
        blimp.require_thresholds(request, report.results)


def _show(screen: Screen, report: "BlimpReport") -> None:
    from electra_cli.evaluation.blimp_results import shown

    results = report.results
    limited = f" (limited to {results.limit:,} pairs a set)" if results.limit else ""
    columns = ("right", "95 %", "pairs", "ties")
    if results.checkpoints:
        screen.table(
            f"minimal pairs along the run, % right{limited}; guessing gives 50",
            ("step", *columns),
            [
                [f"{one.step:,}", *shown(one.overall), one.overall.num_pairs, one.overall.num_ties]
                for one in results.checkpoints
            ],
        )
    tallies = {**results.scores.phenomena, "overall": results.scores.overall}
    screen.table(
        f"minimal pairs, % right{limited}; guessing gives 50",
        ("phenomenon", *columns),
        [[name, *shown(one), one.num_pairs, one.num_ties] for name, one in tallies.items()],
    )
    screen.result(
        {"folder": str(report.folder), "results": results.as_json()},
        [f"{report.folder / 'results.json'}  results.md   finished sets are kept: a rerun is free"],
    )
