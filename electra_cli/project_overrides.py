"""`--set KEY=VALUE` and `ELECTRA_SET`: a dotted key and a TOML literal; a bare word is a string."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import tomli

from electra_cli.errors import Problem, ProjectError, UsageError

_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True)
class Override:
    """One setting given outside the project file."""

    key: str
    value: object
    source: str
    """`--set` or `ELECTRA_SET`."""


def read_flags(texts: Sequence[str]) -> tuple[Override, ...]:
    """The overrides of the command line, in their order."""
    overrides = []
    for text in texts:
        key, has_value, value = text.partition("=")
        if not has_value or not _KEY.fullmatch(key.strip()):
            raise UsageError(
                f"--set {text}: needs the form KEY=VALUE", hint="for example --set pretrain.steps=1000"
            )
        try:
            overrides.append(Override(key.strip(), read_value(value), "--set"))
        except ValueError as error:
            raise UsageError(f"--set {text}: {error}", hint=_QUOTES) from error
    return tuple(overrides)


def read_variable(text: str) -> tuple[Override, ...]:
    """The overrides of `ELECTRA_SET`, split by the shell's rules."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ProjectError(
            f"ELECTRA_SET is not readable: {error}", hint="it is split as a shell would: close the quotes"
        ) from error
    overrides, problems = [], []
    for word in words:
        key, has_value, value = word.partition("=")
        if not has_value or not _KEY.fullmatch(key):
            message = f"`{word}` needs the form KEY=VALUE, without blanks around ="
            problems.append(Problem(key="", message=message, source="ELECTRA_SET"))
            continue
        try:
            overrides.append(Override(key, read_value(value), "ELECTRA_SET"))
        except ValueError as error:
            problems.append(Problem(key=key, message=str(error), source="ELECTRA_SET", value=value))
    if problems:
        raise ProjectError("ELECTRA_SET is not readable", problems=tuple(problems), hint=_QUOTES)
    return tuple(overrides)


_QUOTES = """quote a list or text for the shell: -s 'corpus.files=["a/", "b/"]'"""


def read_value(text: str) -> object:
    """A TOML literal where the text is one, else the text itself.

    Raises `ValueError` where the text begins like a list, a table or a quoted text but is none.
    """
    text = text.strip()
    try:
        document = tomli.loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        if text[:1] in ("[", "{", '"', "'"):
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise ValueError(f"not a TOML value: {reason}") from error
        return text
    return document["value"] if len(document) == 1 and "\n" not in text else text
