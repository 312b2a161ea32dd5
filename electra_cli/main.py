"""The `electra` command: its commands in pipeline order behind one error boundary."""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, NoReturn

import typer

from electra_cli import __version__
from electra_cli.commands import (
    _boundary,
    build_vocab,
    cache_samples,
    check,
    collaborate,
    config,
    eval_blimp,
    eval_glue,
    export,
    init,
    pretrain,
    report,
    runs,
    shard_corpus,
)
from electra_cli.commands._help import Sections
from electra_cli.commands._options import FormatOption, OutputFormat
from electra_cli.commands.status import status
from electra_cli.errors import UsageError

PURPOSE = "Pre-train ELECTRA-style text encoders, from a folder of text to a model with GLUE scores."

Commands = Mapping[str, Callable[..., None]]

COMMANDS: Commands = {
    "build-vocab": build_vocab.build_vocab,
    "shard-corpus": shard_corpus.shard_corpus,
    "pretrain": pretrain.pretrain,
    "export": export.export,
    "eval-glue": eval_glue.eval_glue,
    "cache-samples": cache_samples.cache_samples,
    "eval-blimp": eval_blimp.eval_blimp,
    "collaborate": collaborate.collaborate,
    "init": init.init,
    "check": check.check,
    "report": report.report,
}
GROUPS: Mapping[str, tuple[str, Commands]] = {
    "config": (
        "Show, explain and describe the settings.",
        {"show": config.show, "explain": config.explain, "schema": config.schema},
    ),
    "runs": ("List runs, or compare two.", {"list": runs.list_runs, "compare": runs.compare}),
}


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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"electra {__version__}")
        raise typer.Exit


def _board(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    if context.invoked_subcommand is None:
        status(output)
    elif output is not OutputFormat.AUTO:
        command = context.invoked_subcommand
        raise UsageError(
            f"--format {output} stands before {command}, where it has no effect",
            hint=f"electra {command} --format {output}",
        )


def _help_of_group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def build_app() -> typer.Typer:
    """The application with all its commands."""
    application = _typer("electra", PURPOSE)
    application.callback(invoke_without_command=True)(_board)
    for name, command in COMMANDS.items():
        application.command(name)(command)
    for name, (purpose, commands) in GROUPS.items():
        group = _typer(name, purpose)
        group.callback(invoke_without_command=True)(_help_of_group)
        for inner, command in commands.items():
            group.command(inner)(command)
        application.add_typer(group)
    return application


app = build_app()


def run(release: Callable[[], None] = lambda: None) -> NoReturn:
    """Run the command line and exit; `release` lets through what was held back until the boundary stands."""
    sys.exit(_boundary.run(app, sys.argv[1:], release))
