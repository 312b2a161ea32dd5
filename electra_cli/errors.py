"""Every error that a person can cause or cure, each with its exit code.

A message says what was read, where, and both values; the hint says what to do. `main.run` is the one
place that turns an `ElectraError` into text and an exit code; anything else that escapes is a bug (exit 1).
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """The exit codes of every command."""

    OK = 0
    BUG = 1
    USAGE = 2
    PROJECT = 3
    INPUT = 4
    CORRUPT = 5
    STORAGE = 6
    DIVERGED = 7
    MEMORY = 8
    BELOW_THRESHOLD = 9
    PREEMPTED = 75
    INTERRUPTED = 130


class ElectraError(Exception):
    """A failure with a cause that a person can understand and cure."""

    exit_code: ExitCode = ExitCode.BUG

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        path: Path | str | None = None,
        line: int | None = None,
        key: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = None if path is None else str(path)
        self.line = line
        self.key = key


class UsageError(ElectraError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a project file or an override."""

    key: str
    """Dotted name, `pretrain.batch_size`; empty for a syntax error."""
    message: str
    line: int | None = None
    source: str = ""
    """Where it stands: the file's path, `--set` or `ELECTRA_SET`."""
    value: str = ""
    """What was written there, shortened; empty where it must not or cannot be shown."""


class ProjectError(ElectraError):
    """The project file, or an override of it, is invalid; holds every problem at once."""

    exit_code = ExitCode.PROJECT

    def __init__(
        self,
        message: str,
        *,
        problems: tuple[Problem, ...] = (),
        hint: str = "",
        path: Path | str | None = None,
        line: int | None = None,
        key: str = "",
    ) -> None:
        super().__init__(message, hint=hint, path=path, line=line, key=key)
        self.problems = problems


def refusal(key: str, message: str, *, hint: str = "") -> ProjectError:
    """The error for one setting that does not go with the others."""
    return ProjectError(message, problems=(Problem(key, message),), key=key, hint=hint)


class InputError(ElectraError):
    """Something that a command needs is missing, or is in conflict with what is there."""

    exit_code = ExitCode.INPUT


class CorruptError(ElectraError):
    """A file is damaged: wrong hash, cut short, or in another encoding than it should be."""

    exit_code = ExitCode.CORRUPT


class StorageError(ElectraError):
    """The disk is full, or refuses to read or write."""

    exit_code = ExitCode.STORAGE


class DivergedError(ElectraError):
    """Training produced losses or gradients that are not finite."""

    exit_code = ExitCode.DIVERGED


class MemoryShortError(ElectraError):
    """The work does not fit into the memory of the machine or device."""

    exit_code = ExitCode.MEMORY


class BelowThresholdError(ElectraError):
    """A score is below the one that `--fail-under` asks for."""

    exit_code = ExitCode.BELOW_THRESHOLD


class PreemptedError(ElectraError):
    """SIGTERM arrived; the state is saved."""

    exit_code = ExitCode.PREEMPTED


class InterruptedRunError(ElectraError):
    """SIGINT arrived; the state is saved."""

    exit_code = ExitCode.INTERRUPTED
