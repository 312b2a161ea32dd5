"""Off a terminal: whole lines, no carriage return, no colour, and a sign of life every 30 seconds."""

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from electra_cli.commands import _figures
from electra_cli.commands._error_text import error_lines
from electra_cli.commands._safe import safe
from electra_cli.commands._screen import Cells, Screen
from electra_cli.commands._table import table_lines
from electra_cli.commands._task import Task
from electra_cli.errors import ElectraError

SECONDS_BETWEEN_LINES = 10.0
SECONDS_OF_SILENCE = 25.0
SECONDS_WORTH_A_LAST_LINE = 1.0
SECONDS_BETWEEN_LOOKS = 1.0


class PlainScreen(Screen):
    """Writes lines."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._task: Task | None = None
        self._columns: tuple[_figures.Column, ...] = ()
        self._last = time.monotonic()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None

    def begin(self, task: str, total: int | None = None, unit: str = "") -> None:
        self.end()
        self._task = Task(task, total, unit)
        if self._watch is None:
            self._watch = threading.Thread(target=self._break_silence, daemon=True)
            self._watch.start()

    def advance(self, amount: int = 1, *, note: str = "") -> None:
        task = self._task
        if task is None:
            return
        task.done += amount
        task.note = note or task.note
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._write(task.line())

    def end(self) -> None:
        task, self._task = self._task, None
        if task is not None and (task.done or task.seconds >= SECONDS_WORTH_A_LAST_LINE):
            task.complete()
            self._write(task.line())

    def message(self, text: str) -> None:
        self._write(safe(text))

    def warning(self, text: str, *, code: str = "") -> None:
        self._write(f"! {safe(text)}")

    def figures(self, kind: str, values: Mapping[str, object]) -> None:
        if kind == "train":
            columns = _figures.columns_for(values, width=200)
            if columns != self._columns:
                self._columns = columns
                self._write(_figures.header(columns))
            self._write(_figures.row(columns, values))
        elif kind == "heldout":
            self._write(_figures.heldout_line(values))
        else:
            self._write(_figures.plain_line(kind, values))

    def result(self, values: Mapping[str, object], lines: Sequence[str] = (), next_command: str = "") -> None:
        self.end()
        for line in lines:
            self._write(safe(line), sys.stdout)
        if next_command:
            self._write(f"Next: {safe(next_command)}")

    def table(self, title: str, columns: Sequence[str], rows: Cells) -> None:
        self.end()
        for line in table_lines(title, columns, rows):
            self._write(line, sys.stdout)

    def error(self, error: ElectraError) -> None:
        self._task = None
        self._write("\n".join(error_lines(error)))

    def close(self) -> None:
        self._closed.set()
        self._task = None
        sys.stdout.flush()

    def _write(self, line: str, stream: TextIO | None = None) -> None:
        with self._lock:
            self._last = time.monotonic()
            print(line, file=stream or sys.stderr, flush=True)

    def _break_silence(self) -> None:
        while not self._closed.wait(SECONDS_BETWEEN_LOOKS):
            task = self._task
            if task is not None and time.monotonic() - self._last >= SECONDS_OF_SILENCE:
                try:
                    self._write(task.line())
                except BrokenPipeError:
                    # Nobody listens; the command itself will notice at its next line.
                    return
