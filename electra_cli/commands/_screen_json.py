"""`--format json`: one event a line on stdout, strict JSON; the last line is the result or the error."""

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from electra_cli.commands._screen import Cells, Screen
from electra_cli.errors import ElectraError, ProjectError

SECONDS_BETWEEN_EVENTS = 1.0


class JsonScreen(Screen):
    """Writes events for a program."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._task = ""
        self._total: int | None = None
        self._unit = ""
        self._done = 0
        self._note = ""
        self._last = 0.0
        self._tables: list[dict[str, object]] = []

    def begin(self, task: str, total: int | None = None, unit: str = "") -> None:
        self._task, self._total, self._unit, self._done, self._note = task, total, unit, 0, ""
        self._report()

    def advance(self, amount: int = 1, *, note: str = "") -> None:
        self._done += amount
        self._note = note or self._note
        if time.monotonic() - self._last >= SECONDS_BETWEEN_EVENTS:
            self._report()

    def end(self) -> None:
        if self._task:
            self._report()
        self._task = ""

    def message(self, text: str) -> None:
        self._emit("progress", {"message": text})

    def warning(self, text: str, *, code: str = "") -> None:
        self._emit("warning", {"code": code, "message": text})

    def figures(self, kind: str, values: Mapping[str, object]) -> None:
        self._emit("progress", {"kind": kind, **values})

    def result(self, values: Mapping[str, object], lines: Sequence[str] = (), next_command: str = "") -> None:
        facts: dict[str, object] = dict(values)
        if self._tables:
            facts.setdefault("tables", self._tables)
        if next_command:
            facts["next"] = next_command
        self._emit("result", facts)

    def table(self, title: str, columns: Sequence[str], rows: Cells) -> None:
        self._tables.append({"title": title, "columns": list(columns), "rows": [list(row) for row in rows]})

    def error(self, error: ElectraError) -> None:
        self._emit("error", error_event(error))

    def close(self) -> None:
        sys.stdout.flush()

    def _report(self) -> None:
        self._last = time.monotonic()
        values: dict[str, object] = {
            "task": self._task,
            "done": self._done,
            "total": self._total,
            "unit": self._unit,
        }
        if self._note:
            values["note"] = self._note
        self._emit("progress", values)

    def _emit(self, event: str, values: Mapping[str, object]) -> None:
        print(event_line(event, self.command, values), flush=True)


def error_event(error: ElectraError) -> dict[str, object]:
    """The fields of an error event."""
    values: dict[str, object] = {
        "code": type(error).__name__.removesuffix("Error").lower(),
        "exit_code": int(error.exit_code),
        "message": error.message,
        "path": error.path,
        "line": error.line,
        "key": error.key,
        "hint": error.hint,
    }
    if isinstance(error, ProjectError) and error.problems:
        values["problems"] = [
            {"key": p.key, "message": p.message, "line": p.line, "source": p.source} for p in error.problems
        ]
    return values


def event_line(event: str, command: str, values: Mapping[str, object]) -> str:
    """One event as ASCII JSON, so that nothing in it can reach a terminal as a control sequence."""
    facts = {str(key): _strict(item) for key, item in values.items()}
    line = json.dumps({"event": event, "command": command, **facts}, allow_nan=False)
    return line.replace("\x7f", "\\u007f")


def _strict(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    # NumPy scalars and 0-d tensors know how to become Python numbers.
    item = getattr(value, "item", None)
    return _strict(item()) if callable(item) else str(value)
