"""A table of results in plain characters: words left, numbers right."""

from collections.abc import Sequence

from electra_cli.commands._safe import number


def table_lines(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of the table; a column is right-aligned when all its cells are numbers or empty."""
    cells = [[number(cell) if cell is not None else "" for cell in line] for line in rows]
    widths = [max([len(name), *(len(line[index]) for line in cells)]) for index, name in enumerate(columns)]
    numeric = [_is_numeric([line[index] for line in rows]) for index in range(len(columns))]

    def joined(line: Sequence[str]) -> str:
        parts = [
            f"{cell:>{width}}" if is_number else f"{cell:<{width}}"
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    lines = [number(title)] if title else []
    if any(columns):
        lines.append(joined([number(name) for name in columns]))
    return lines + [joined(line) for line in cells]


def _is_numeric(cells: Sequence[object]) -> bool:
    present = [cell for cell in cells if cell is not None]
    return bool(present) and all(isinstance(cell, (int, float)) for cell in present)
