"""Options that several commands share, spelled and explained once."""

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from electra_cli.errors import InputError


class OutputFormat(StrEnum):
    """How a command shows what it does."""

    AUTO = "auto"
    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"


ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", metavar="FILE", help="Project file; ./project.toml is used when present."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override one setting; may be repeated."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Build again, replacing what is there.")]
FormatOption = Annotated[
    OutputFormat, typer.Option("--format", help="auto: rich on a terminal, plain lines elsewhere.")
]
VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Hash every shard again instead of trusting a remembered hash.")
]
CorpusArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="CORPUS", help="Files, folders and hf://owner/name, in place of corpus.files."),
]


def corpus_override(paths: list[str] | None) -> list[str]:
    """The text named on the command line as overrides for `load_project`."""
    for path in paths or []:
        if re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", path):
            raise InputError(
                f"the name {path} holds bytes that no setting can hold",
                path=path,
                key="corpus.files",
                hint="name the folder around it: what lies inside is read whatever its name",
            )
    return [f"corpus.files={json.dumps(paths)}"] if paths else []
