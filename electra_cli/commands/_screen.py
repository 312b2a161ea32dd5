"""What a command shows: results on stdout, progress and messages on stderr.

A terminal gets live bars, a pipe plain lines, `--format json` one event a line on stdout.
"""

import os
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from electra_cli.commands._options import OutputFormat
from electra_cli.distributed import from_environment
from electra_cli.errors import ElectraError
from electra_cli.progress import Progress

Cells = Sequence[Sequence[object]]


class Screen(Progress):
    """A `Progress` that a command opens, and that also takes its results."""

    @abstractmethod
    def result(self, values: Mapping[str, object], lines: Sequence[str] = (), next_command: str = "") -> None:
        """The last word of a command: `lines` for a person, `values` for a program."""

    @abstractmethod
    def table(self, title: str, columns: Sequence[str], rows: Cells) -> None:
        """A table of results; numbers are right-aligned."""

    @abstractmethod
    def error(self, error: ElectraError) -> None:
        """Why the command failed; the error boundary calls it."""

    @abstractmethod
    def close(self) -> None:
        """Take the bars off the screen."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_screen(command: str, output: OutputFormat = OutputFormat.AUTO) -> Screen:
    """The screen that fits `--format`, the terminal and this process's rank."""
    if not from_environment().is_first:
        from electra_cli.commands._screen_quiet import QuietScreen

        return QuietScreen()
    if output is OutputFormat.JSON:
        from electra_cli.commands._screen_json import JsonScreen

        return JsonScreen(command)
    if output is OutputFormat.RICH or (output is OutputFormat.AUTO and is_terminal()):
        from electra_cli.commands._screen_live import LiveScreen

        return LiveScreen(command)
    from electra_cli.commands._screen_plain import PlainScreen

    return PlainScreen(command)


def is_terminal() -> bool:
    """Whether progress may be drawn: stderr is a terminal that can move its cursor."""
    if os.environ.get("TERM", "") in ("dumb", "unknown"):
        return False
    return sys.stderr.isatty()


def has_colour(stream_is_terminal: bool) -> bool:
    """NO_COLOR wins, then FORCE_COLOR, then whether the stream is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream_is_terminal and os.environ.get("TERM", "") not in ("dumb", "unknown")
