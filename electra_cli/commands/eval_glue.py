"""`electra eval-glue`: fine-tune the encoder on tasks and score it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption
from electra_cli.commands._screen import Screen, open_screen
from electra_cli.commands._sigterm import sigterm_stops

if TYPE_CHECKING:
    from electra_cli.evaluation.results import TaskResult
    from electra_cli.evaluation.stage import Outcome

Names = list[str] | None


def eval_glue(
    task: Annotated[
        Names,
        typer.Option("--task", metavar="NAME[,NAME]", help="Tasks to run; default: evaluate.tasks."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="DIR", help="An export, a run or any ELECTRA or BERT folder."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Folder with a folder a task.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where results go; default: beside the model.")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="N|A,B", help="How many seeds, or which.")] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="Use N examples of each split; for trying out.")
    ] = 0,
    init_from: Annotated[
        str, typer.Option("--init-from", metavar="TASK", help="Start from a model kept by --save-model.")
    ] = "",
    save_model: Annotated[
        bool, typer.Option("--save-model", help="Keep the best fine-tuned model of each task.")
    ] = False,
    predict: Annotated[
        Path | None, typer.Option("--predict", metavar="FILE", help="Answer FILE with the kept model.")
    ] = None,
    submit: Annotated[
        bool, typer.Option("--submit", help="Write the leaderboard's zip; needs all test files.")
    ] = False,
    fail_under: Annotated[
        Names,
        typer.Option("--fail-under", metavar="NAME=PERCENT", help="Exit 9 below this score; glue=79."),
    ] = None,
    print_lrs: Annotated[
        bool, typer.Option("--print-lrs", help="List the learning rate of each layer and stop.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave unusable rows out, and list them in the results.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Use no network.")] = False,
    project: ProjectOption = None,
    sets: SetOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Fine-tune on GLUE or on tasks of your own, and write scores beside published ones."""
    from electra_cli.evaluation import request, stage
    from electra_cli.pipeline import evaluation_model
    from electra_cli.project import load_project

    with open_screen("eval-glue", output) as screen, sigterm_stops("finished runs are kept"):
        loaded = load_project(project, sets or [])
        wanted = request.Request(
            tasks=request.split_names(task or []),
            seeds=request.parse_seeds(seeds),
            limit=limit,
            data=data,
            out=out,
            init_from=init_from,
            save_models=save_model,
            submit=submit,
            predict=predict,
            skip_bad=skip_bad,
            is_offline=offline,
            thresholds=request.parse_thresholds(fail_under or []),
        )
        stage.check_tasks(loaded, wanted)
        folder = evaluation_model(loaded, model, screen)
        if print_lrs:
            rows = stage.list_rates(loaded, folder)
            screen.table(
                "learning rates at their peak",
                ("group", "factor", "rate"),
                [(row.group, f"{row.factor:.4f}", f"{row.learning_rate:.3e}") for row in rows],
            )
            screen.result({"rates": {row.group: row.learning_rate for row in rows}})
            return
        outcome = stage.eval_glue(loaded, folder, wanted, screen)
        _show(screen, outcome)
        if outcome.report is not None:
            request.check_thresholds(wanted.thresholds, outcome.report.results)


def _show(screen: Screen, outcome: "Outcome") -> None:
    lines: list[str] = []
    values: dict[str, object] = {}
    report = outcome.report
    if report is not None:
        from electra_cli.evaluation.published import ON_SCREEN
        from electra_cli.evaluation.results import percent

        results = report.results
        asked = [result for result in results.tasks if result.name in report.asked]
        limit = max((result.data.limit for result in asked), default=0)
        limited = f" (limited to {limit:,} examples a split)" if limit else ""
        screen.table(
            f"dev scores × 100{limited}; to the right published dev medians",
            ("task", "metric", "median", "min", "max", "done", *ON_SCREEN),
            [_row(result) for result in asked],
        )
        if results.glue is not None:
            part = " (limited)" if results.is_limited else ""
            lines.append(f"GLUE {percent(results.glue)}{part}, mean of eight medians")
        lines.append(
            f"{report.folder / 'results.json'}  results.md   finished runs are kept: a rerun is free"
        )
        values = {"folder": str(report.folder), "results": results.as_json()}
    if outcome.predictions is not None:
        lines.append(f"{outcome.predictions}   {outcome.num_predictions:,} predictions")
        values["predictions"] = str(outcome.predictions)
    if outcome.submission is not None:
        lines.append(f"{outcome.submission}   11 files for https://gluebenchmark.com/submit")
        values["submission"] = str(outcome.submission)
    screen.result(values, lines)


def _row(result: "TaskResult") -> list[object]:
    from electra_cli.evaluation.published import ON_SCREEN, published

    values = result.ok_values
    figures = [result.median, min(values, default=None), max(values, default=None)]
    shown: list[object] = [None if value is None else round(100 * value, 1) for value in figures]
    others = {one.system: round(100 * one.value, 1) for one in published(result.name)}
    done = f"{len(values)}/{len(result.runs)}"
    return [result.name, result.metric, *shown, done, *(others.get(name) for name in ON_SCREEN)]
