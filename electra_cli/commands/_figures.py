"""The table of a pre-training run: one line a record of metrics.jsonl, in the columns that fit the screen."""

from collections.abc import Mapping
from dataclasses import dataclass

from electra_cli.commands._safe import compact, duration, number, safe, size

GAP = 2


@dataclass(frozen=True)
class Column:
    """One column: where its value lies in the record and how it is written."""

    title: str
    width: int
    path: tuple[str, ...]
    form: str
    rank: int
    """Columns of higher rank go first when the screen is narrow."""


_FIXED = (
    Column("gen acc", 8, ("sampled_accuracy",), "percent", 5),
    Column("replaced", 8, ("replaced_fraction",), "percent", 6),
    Column("disc AUC", 8, ("disc_auc",), "share", 3),
    Column("recall", 6, ("disc_recall",), "share", 7),
    Column("lr", 7, ("lr",), "rate", 4),
    Column("tok/s", 7, ("clock", "tokens_per_second"), "compact", 2),
    Column("mem", 7, ("clock", "peak_bytes"), "size", 8),
    Column("eta", 7, ("clock", "eta_seconds"), "duration", 1),
)


def columns_for(record: Mapping[str, object], width: int) -> tuple[Column, ...]:
    """The columns of this record that fit into `width` characters."""
    losses = record.get("losses")
    terms = list(losses) if isinstance(losses, Mapping) else []
    columns = [
        Column("step", 9, ("step",), "count", 0),
        Column("loss", 7, ("loss",), "loss", 0),
        *(Column(str(term), 7, ("losses", str(term)), "loss", 1) for term in terms),
        *(column for column in _FIXED if _value(record, column.path) is not _ABSENT),
    ]
    while len(columns) > 2 and sum(column.width + GAP for column in columns) - GAP > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    return tuple(columns)


def header(columns: tuple[Column, ...]) -> str:
    """The line of column titles."""
    return (" " * GAP).join(f"{safe(column.title, one_line=True):>{column.width}}" for column in columns)


def row(columns: tuple[Column, ...], record: Mapping[str, object]) -> str:
    """One line of the table."""
    return (" " * GAP).join(f"{_cell(record, column):>{column.width}}" for column in columns)


def heldout_line(record: Mapping[str, object]) -> str:
    """`held-out 2,000   mlm 4.98  rtd 0.0669  AUC 0.864`."""
    parts = []
    losses = record.get("losses")
    for term, value in losses.items() if isinstance(losses, Mapping) else ():
        parts.append(f"{safe(str(term), one_line=True)} {_text(value, 'loss')}")
    for name, title, form in (
        ("sampled_accuracy", "gen acc", "percent"),
        ("disc_auc", "AUC", "share"),
        ("disc_recall", "recall", "share"),
    ):
        if record.get(name) is not None:
            parts.append(f"{title} {_text(record[name], form)}")
    return f" held-out {_text(record.get('step'), 'count')}   " + "  ".join(parts)


def plain_line(kind: str, record: Mapping[str, object]) -> str:
    """Any other record: names and values."""
    pairs = (f"{safe(str(key), one_line=True)} {number(value)}" for key, value in record.items())
    return f"{safe(kind, one_line=True)}   " + "  ".join(pairs)


_ABSENT = object()


def _value(record: Mapping[str, object], path: tuple[str, ...]) -> object:
    value: object = record
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _cell(record: Mapping[str, object], column: Column) -> str:
    value = _value(record, column.path)
    return "" if value is _ABSENT else _text(value, column.form)


def _text(value: object, form: str) -> str:
    if not isinstance(value, (int, float)):
        return number(value)
    match form:
        case "count":
            return f"{value:,.0f}"
        case "loss":
            return f"{value:.4f}" if abs(value) < 1 else f"{value:.3f}"
        case "percent":
            return f"{100 * value:.1f} %"
        case "share":
            return f"{value:.3f}"
        case "rate":
            return f"{value:.1e}"
        case "compact":
            return compact(value)
        case "size":
            return size(value)
        case "duration":
            return duration(value)
    return number(value)
