"""`electra runs`: which runs there are, and how two of them differ."""

from pathlib import Path
from typing import Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption
from electra_cli.commands._screen import open_screen

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or its name below runs/.")]


def list_runs(project: ProjectOption = None, output: FormatOption = OutputFormat.AUTO) -> None:
    """List the runs, the newest first."""
    from electra_cli.pipeline_runs import find_runs, flat_figures, last_record
    from electra_cli.project import load_project

    with open_screen("runs list", output) as screen:
        loaded = load_project(project)
        rows, facts = [], []
        for run in find_runs(loaded.runs_dir):
            held_out = flat_figures(last_record(run.path, "heldout"))
            figures = {name: held_out.get(name) for name in ("mlm", "rtd", "disc_auc")}
            rows.append((run.path.name, run.state, run.step, run.steps, *figures.values()))
            facts.append(
                {"run": run.path.name, "state": run.state, "step": run.step, "steps": run.steps} | figures
            )
        if rows:
            screen.table("", ("run", "state", "step", "of", "mlm", "rtd", "disc AUC"), rows)
        lines = [] if rows else [f"no runs in {loaded.runs_dir}"]
        screen.result({"runs": facts}, lines, "" if rows else "electra pretrain")


def compare(
    first: RunArgument,
    second: RunArgument,
    project: ProjectOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Compare two runs: the settings that differ, and their last figures."""
    from electra_cli.pipeline_runs import compare_runs, named_run
    from electra_cli.project import load_project

    with open_screen("runs compare", output) as screen:
        runs_dir = load_project(project).runs_dir
        paths = [named_run(runs_dir, name) for name in (first, second)]
        comparison = compare_runs(*paths)
        names = [path.name for path in paths]
        for title, values in (("settings", comparison.settings), ("figures", comparison.figures)):
            rows = [(key, *both) for key, both in values.items()]
            if rows:
                screen.table("", (title, *names), rows)
        lines = [] if comparison.settings else ["the settings are equal"]
        screen.result({"settings": comparison.settings, "figures": comparison.figures}, lines)
