"""On a terminal: bars that move, drawn by Rich on stderr. Text from data is never read as markup."""

import sys
import time
from collections.abc import Mapping, Sequence

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.progress import Task as RichTask
from rich.table import Column
from rich.text import Text

from electra_cli.commands import _figures
from electra_cli.commands._error_text import CROSS, error_lines
from electra_cli.commands._safe import safe
from electra_cli.commands._screen import Cells, Screen, has_colour
from electra_cli.commands._table import table_lines
from electra_cli.commands._task import Task
from electra_cli.errors import ElectraError

REFRESHES_A_SECOND = 8
SECONDS_BETWEEN_UPDATES = 0.1
BAR_WIDTH = 22


class LiveScreen(Screen):
    """Draws bars and coloured lines."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._console = _console(stderr=True)
        self._out = _console(stderr=False)
        # Colours may be forced into a pipe, a bar that moves the cursor may not.
        self._is_live = sys.stderr.isatty()
        self._task: Task | None = None
        self._drawn = 0.0
        self._columns: tuple[_figures.Column, ...] = ()
        self._bars: Progress | None = None

    def begin(self, task: str, total: int | None = None, unit: str = "") -> None:
        self.end()
        self._task = Task(task, total, unit)
        if not self._is_live:
            return
        self._bars = Progress(
            _NameColumn(table_column=Column(no_wrap=True)),
            BarColumn(bar_width=BAR_WIDTH, table_column=Column(width=BAR_WIDTH)),
            # What does not fit is cut here, never off the name or the bar.
            TextColumn(
                "{task.fields[facts]}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            expand=True,
            console=self._console,
            refresh_per_second=REFRESHES_A_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bars.add_task(safe(task, one_line=True), total=total, facts=Text())
        self._bars.start()

    def advance(self, amount: int = 1, *, note: str = "") -> None:
        if self._task is None:
            return
        self._task.done += amount
        self._task.note = note or self._task.note
        if time.monotonic() - self._drawn >= SECONDS_BETWEEN_UPDATES:
            self._draw()

    def end(self) -> None:
        if self._task is not None:
            self._task.complete()
        if self._bars is not None:
            self._draw()
            self._bars.stop()
        elif self._task is not None:
            self._print(Text(self._task.line()))
        self._bars = self._task = None

    def message(self, text: str) -> None:
        self._print(Text(safe(text)))

    def warning(self, text: str, *, code: str = "") -> None:
        self._print(Text(f"! {safe(text)}", style="yellow"))

    def figures(self, kind: str, values: Mapping[str, object]) -> None:
        if kind == "train":
            columns = _figures.columns_for(values, self._console.width)
            if columns != self._columns:
                self._columns = columns
                self._print(Text(_figures.header(columns), style="dim"))
            self._print(Text(_figures.row(columns, values)))
        elif kind == "heldout":
            self._print(Text(_figures.heldout_line(values), style="cyan"))
        else:
            self._print(Text(_figures.plain_line(kind, values)))

    def result(self, values: Mapping[str, object], lines: Sequence[str] = (), next_command: str = "") -> None:
        self.end()
        for line in lines:
            self._out.print(Text(safe(line)), soft_wrap=True)
        if next_command:
            self._print(Text.assemble("Next: ", (safe(next_command), "bold")))

    def table(self, title: str, columns: Sequence[str], rows: Cells) -> None:
        self.end()
        for line in table_lines(title, columns, rows):
            self._out.print(Text(line), soft_wrap=True)

    def error(self, error: ElectraError) -> None:
        self.close()
        for line in error_lines(error):
            self._print(Text(line, style="bold red" if line.startswith(CROSS) else ""))

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
        self._bars = self._task = None
        sys.stdout.flush()

    def _print(self, text: RenderableType) -> None:
        self._console.print(text, soft_wrap=True)

    def _draw(self) -> None:
        if self._bars is None or self._task is None:
            return
        self._drawn = time.monotonic()
        facts = Text(self._task.facts(), overflow="ellipsis", no_wrap=True)
        self._bars.update(
            self._bars.task_ids[0], total=self._task.total, completed=self._task.done, facts=facts
        )


class _NameColumn(ProgressColumn):
    """The task's name, as plain text."""

    def render(self, task: RichTask) -> Text:
        return Text(f"{task.description:<9}")


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream.isatty()
    coloured = has_colour(is_terminal)
    return Console(
        stderr=stderr,
        force_terminal=is_terminal or coloured,
        no_color=not coloured,
        markup=False,
        emoji=False,
        highlight=False,
    )
