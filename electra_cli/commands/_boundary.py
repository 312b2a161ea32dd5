"""The error boundary: every way a command can end, as text and as an exit code."""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from electra_cli.commands._options import OutputFormat
from electra_cli.commands._safe import safe
from electra_cli.commands._screen import open_screen
from electra_cli.errors import (
    ElectraError,
    ExitCode,
    InterruptedRunError,
    MemoryShortError,
    StorageError,
    UsageError,
)

CLOSED_PIPE = 128 + 13
"""What a shell reports for a process that SIGPIPE ended."""


def run(
    app: Callable[..., object], arguments: Sequence[str], release: Callable[[], None] = lambda: None
) -> int:
    """Run the command line and return its exit code; never raises.

    `release` is called inside the boundary, before the command: it may raise a Ctrl-C that was held back.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal in another encoding gets escapes instead of a UnicodeEncodeError.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    words = [
        word
        for before, word in zip(("", *arguments), arguments, strict=False)
        if not word.startswith("-") and before != "--format"
    ]
    command = " ".join(words[: 2 if words[:1] in (["config"], ["runs"]) else 1]) or "electra"
    output = _wanted_format(arguments)
    try:
        release()
        code = app(args=list(arguments), prog_name="electra", standalone_mode=False)
        sys.stdout.flush()
        # Typer turns Ctrl-C into this code.
        return _show(_STOPPED, command, output) if code == ExitCode.INTERRUPTED else _code_of(code)
    except SystemExit as end:
        # Typer ends the process itself when a pipe is closed.
        return _closed_pipe() if isinstance(end.__context__, BrokenPipeError) else _code_of(end.code)
    except BrokenPipeError:
        return _closed_pipe()
    except (KeyboardInterrupt, typer.Abort):
        return _show(_STOPPED, command, output)
    except typer.TyperException as error:
        return _show(_as_usage_error(error), command, output)
    except ElectraError as error:
        return _show(error, command, output)
    except MemoryError as error:
        shown = MemoryShortError("out of memory", hint="use smaller batches, or close other programs")
        shown.__cause__ = error
        return _show(shown, command, output)
    except OSError as error:
        return _show(_as_storage_error(error), command, output)
    # Whatever else escapes is a bug; this is the one place that may catch everything.
    except Exception as error:
        return _show_crash(error, command, output)


_STOPPED = InterruptedRunError("stopped by Ctrl-C", hint="the same command goes on, or begins again")


def _code_of(value: object) -> int:
    return value if isinstance(value, int) else ExitCode.OK


def _wanted_format(arguments: Sequence[str]) -> OutputFormat:
    """`--format` as the command line has it, readable even where the command line is wrong."""
    for index, word in enumerate(arguments):
        value = word.removeprefix("--format=")
        if word == "--format" and index + 1 < len(arguments):
            value = arguments[index + 1]
        elif value == word:
            continue
        if value in list(OutputFormat):
            return OutputFormat(value)
    return OutputFormat.AUTO


def _show(error: ElectraError, command: str, output: OutputFormat) -> int:
    if os.environ.get("ELECTRA_DEBUG") == "1":
        import traceback

        print(safe("".join(traceback.format_exception(error))), file=sys.stderr)
    try:
        with open_screen(command, output) as screen:
            screen.error(error)
    except BrokenPipeError:
        _closed_pipe()
    return error.exit_code


def _as_usage_error(error: typer.TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "electra"
    return UsageError(
        error.format_message().replace("Value error, ", ""), hint=f"{path} --help tells what there is"
    )


def _as_storage_error(error: OSError) -> StorageError:
    place = f" {error.filename}" if error.filename else ""
    hint = "make room, then run the same command again" if error.errno == errno.ENOSPC else ""
    shown = StorageError(f"the operating system refused:{place}: {error.strerror or error}", hint=hint)
    shown.__cause__ = error
    return shown


def _show_crash(error: Exception, command: str, output: OutputFormat) -> int:
    import tempfile
    import traceback

    from electra_cli import __version__
    from electra_cli.durable import write_text

    note = Path(tempfile.mkdtemp(prefix="electra-crash-")) / "crash.txt"
    trace = "".join(traceback.format_exception(error))
    python = sys.version.split()[0]
    write_text(note, f"electra {__version__}  command {command}  python {python}\n\n{trace}")
    shown = ElectraError(
        f"this is a bug in electra: {type(error).__name__}: {error}",
        hint=f"the details are in {note}\nplease report it, with that file",
    )
    shown.__cause__ = error
    return _show(shown, command, output)


def _closed_pipe() -> int:
    # The interpreter would complain about the closed pipe when it flushes at exit.
    empty = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(empty, descriptor)
    os.close(empty)
    return CLOSED_PIPE
