"""`electra init`: a project file with the few settings that people change."""

from pathlib import Path
from typing import Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat
from electra_cli.commands._screen import open_screen

TEMPLATE = """\
# {headline}
# The few settings people change; `electra config show --all` prints the rest.
[project]
name = "my-encoder"
recipe = "{recipe}"
seed = 0

[corpus]
# .txt .jsonl .parquet .arrow, also .gz .zst .bz2 .xz, or hf://owner/name; a blank line ends a document
files = ["corpus/"]

[pretrain]
steps = {steps:_}
batch_size = {batch_size}  # sequences per optimizer step, over all processes

[evaluate]
tasks = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"]
seeds = 5
"""


def init(
    recipe: Annotated[
        str, typer.Option("--recipe", metavar="NAME", help="Ready-made pipeline to start from.")
    ] = "electra-small",
    list_recipes: Annotated[
        bool, typer.Option("--list", help="List the ready-made pipelines and exit.")
    ] = False,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Write a project.toml to start from; asks nothing."""
    from electra_cli.durable import write_text
    from electra_cli.errors import InputError, UsageError
    from electra_cli.project import DEFAULT_NAME, recipe_settings
    from electra_cli.project_recipes import headline, nearest_recipes, recipe_names
    from electra_cli.project_suggestions import did_you_mean

    with open_screen("init", output) as screen:
        names = recipe_names()
        if list_recipes:
            rows = [(name, headline(name)) for name in names]
            screen.table("", ("recipe", "what it is"), rows)
            screen.result({"recipes": dict(rows)}, next_command="electra init --recipe NAME")
            return
        if recipe not in names:
            meant = did_you_mean(nearest_recipes(recipe)) or f"there are {', '.join(names)}"
            raise UsageError(f"there is no recipe {recipe}; {meant}", hint="electra init --list shows them")
        path = Path(DEFAULT_NAME)
        if path.exists() or path.is_symlink():
            raise InputError(
                f"{path} exists and is not overwritten", path=path, hint="move it away, or edit it"
            )
        settings = recipe_settings(recipe)
        content = TEMPLATE.format(
            headline=headline(recipe),
            recipe=recipe,
            steps=settings.pretrain.steps,
            batch_size=settings.pretrain.batch_size,
        )
        write_text(path, content)
        screen.result({"path": path, "recipe": recipe}, [f"{path}   recipe {recipe}"], "electra check")
