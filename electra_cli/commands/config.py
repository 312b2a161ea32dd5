"""`electra config`: what the settings are, where each came from, and what it means."""

from typing import Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption
from electra_cli.commands._screen import open_screen


def show(
    project: ProjectOption = None,
    sets: SetOption = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value came from.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show the defaults, too.")] = False,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Show the settings that the project file, its recipe and the overrides set."""
    from electra_cli.project import load_project
    from electra_cli.project_dump import setting_lines

    with open_screen("config show", output) as screen:
        loaded = load_project(project, sets or [])
        origins = {
            key: place for key, place in loaded.origins.items() if every or not place.startswith("default")
        }
        lines = setting_lines(loaded.settings, origins, with_origins=origin)
        screen.result({"settings": loaded.settings.model_dump(), "origins": origins}, lines)


def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A setting, such as pretrain.steps, or a table.")],
    project: ProjectOption = None,
    sets: SetOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Say what a setting means, what it may be, and what it is now."""
    from electra_cli.project import load_project
    from electra_cli.project_explain import explanation

    with open_screen("config explain", output) as screen:
        facts = explanation(key, load_project(project, sets or []))
        screen.result(facts.values, facts.lines)


def schema(output: FormatOption = OutputFormat.AUTO) -> None:
    """Print the JSON schema of project files, for editors."""
    import json

    from electra_cli.project_explain import json_schema

    with open_screen("config schema", output) as screen:
        document = json_schema()
        screen.result({"schema": document}, json.dumps(document, indent=2).split("\n"))
