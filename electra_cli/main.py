"""The `electra` command: its commands in pipeline order behind one error boundary."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, NoReturn

import typer

from electra_cli import __version__
from electra_cli.commands import _boundary, config, runs
from electra_cli.commands._help import SECTIONS, Sections

PURPOSE = "Pre-train ELECTRA-style text encoders, from a folder of text to a model with GLUE scores."


def _typer(name: str, purpose: str) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=purpose,
        cls=Sections,
        add_completion=False,
        # Markup would read `[x]` in a help text as a tag; plain help is also the fastest.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
    )


app = _typer("electra", PURPOSE)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"electra {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def board(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        from electra_cli.commands.status import status

        status()


def _group(name: str, purpose: str, commands: dict[str, Callable[..., None]]) -> None:
    group = _typer(name, purpose)
    for command, function in commands.items():
        group.command(command)(function)

    @group.callback(invoke_without_command=True)
    def list_commands(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    app.add_typer(group)


for _name in (*SECTIONS["Pipeline"], *SECTIONS["Project"]):
    _module = "electra_cli.commands." + _name.replace("-", "_")
    if _name not in ("config", "runs") and find_spec(_module):
        app.command(_name)(getattr(import_module(_module), _name.replace("-", "_")))
_group(
    "config",
    "Show, explain and describe the settings.",
    {"show": config.show, "explain": config.explain, "schema": config.schema},
)
_group("runs", "List runs, or compare two.", {"list": runs.list_runs, "compare": runs.compare})


def run() -> NoReturn:
    """Entry point of the console script and of `python -m electra_cli`."""
    sys.exit(_boundary.run(app, sys.argv[1:]))
