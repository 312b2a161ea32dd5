"""Text from data on a page: escaped, and freed of control and direction characters."""

from collections.abc import Sequence
from html import escape


def safe(value: object, *, keep_lines: bool = False) -> str:
    """HTML text of any value; what is not printable becomes U+FFFD, `None` nothing."""
    text = "" if value is None else str(value)
    shown = (
        c if c.isprintable() or (keep_lines and c in "\n\t") else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return escape("".join(shown), quote=True)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """An HTML table; every cell is made safe."""
    lines = ["<table><tr>" + "".join(f"<th>{safe(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{safe(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "".join([*lines, "</table>"])


def share(value: object) -> str:
    """A share × 100 with one decimal; a dash for anything else."""
    return f"{100 * value:.1f}" if isinstance(value, int | float) else "–"
