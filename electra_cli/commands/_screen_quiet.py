"""The screen of every process of a run but the first."""

import sys
from collections.abc import Mapping, Sequence

from electra_cli.commands._error_text import error_lines
from electra_cli.commands._screen import Cells, Screen
from electra_cli.errors import ElectraError


class QuietScreen(Screen):
    """Shows errors only: what the other processes do, the first one tells."""

    def begin(self, task: str, total: int | None = None, unit: str = "") -> None: ...

    def advance(self, amount: int = 1, *, note: str = "") -> None: ...

    def end(self) -> None: ...

    def message(self, text: str) -> None: ...

    def warning(self, text: str, *, code: str = "") -> None: ...

    def figures(self, kind: str, values: Mapping[str, object]) -> None: ...

    def result(
        self, values: Mapping[str, object], lines: Sequence[str] = (), next_command: str = ""
    ) -> None: ...

    def table(self, title: str, columns: Sequence[str], rows: Cells) -> None: ...

    def error(self, error: ElectraError) -> None:
        print("\n".join(error_lines(error)), file=sys.stderr, flush=True)

    def close(self) -> None: ...
