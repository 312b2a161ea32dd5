"""The screen of every process of a run but the first."""

import sys
from collections.abc import Mapping, Sequence

from electra_cli.commands._error_text import error_lines
from electra_cli.commands._screen import Cells, Screen
from electra_cli.errors import ElectraError
from electra_cli.progress import Silent


class QuietScreen(Silent, Screen):
    """Shows errors only: what the other processes do, the first one tells."""

    def result(
        self, values: Mapping[str, object], lines: Sequence[str] = (), next_command: str = ""
    ) -> None: ...

    def table(self, title: str, columns: Sequence[str], rows: Cells) -> None: ...

    def error(self, error: ElectraError) -> None:
        print("\n".join(error_lines(error)), file=sys.stderr, flush=True)

    def close(self) -> None: ...
