"""The `electra` command: its commands in pipeline order behind one error boundary."""

import sys
from importlib.util import find_spec
from typing import Annotated, NoReturn

import typer

from electra_cli import __version__
from electra_cli.commands import _boundary

app = typer.Typer(
    name="electra",
    help="Pre-train ELECTRA-style text encoders, from a folder of text to a model with GLUE scores.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"electra {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def status_board(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Pre-train ELECTRA-style text encoders, from a folder of text to a model with GLUE scores."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _name in ("build-vocab", "shard-corpus", "pretrain", "export", "eval-glue", "init", "check", "report"):
    _module = "electra_cli.commands." + _name.replace("-", "_")
    if find_spec(_module):
        _function = getattr(__import__(_module, fromlist=["x"]), _name.replace("-", "_"))
        app.command(_name)(_function)


def run() -> NoReturn:
    """Entry point of the console script and of `python -m electra_cli`."""
    sys.exit(_boundary.run(app, sys.argv[1:]))
