"""Options that several commands share, spelled and explained once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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
