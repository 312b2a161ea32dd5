"""Rows of a labelled file, whatever its format; each is usable, or named by its line with what is wrong."""

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from electra_cli.errors import CorruptError, InputError
from electra_cli.evaluation.tasks import Headerless

ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet", ".txt")
"""What a labelled file may end in; all but .parquet also with `.gz`."""

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Row:
    """A row that has its columns. The label is `None` where the file holds none or a null."""

    line: int
    text: str
    pair: str | None
    label: str | None
    index: str | None
    source: str | None = None


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used."""

    line: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Alternative names of the columns to read, and the columns of a file without a header."""

    text: tuple[str, ...]
    pair: tuple[str, ...]
    label: tuple[str, ...]
    source: tuple[str, ...] = ()
    headerless: tuple[Headerless, ...] = ()


@dataclass(frozen=True)
class _Places:
    text: int
    pair: int | None
    label: int | None
    index: int | None
    source: int | None
    num_columns: int
    num_optional: int = 0


@dataclass(frozen=True)
class Table:
    """An opened file: whether it has a label column, and its rows."""

    path: Path
    has_labels: bool
    rows: Iterator[Row | BadRow]


def open_table(path: Path, columns: Columns) -> Table:
    """Open a .tsv, .csv, .jsonl or .parquet file; the text formats also compressed with gzip.

    Raises InputError for a file without the text columns, CorruptError for one that is cut short or is not
    UTF-8. A tab-separated file knows no quoting: a quotation mark is a character like any other.
    """
    ending = _ending(path)
    if ending == ".parquet":
        return _parquet(path, columns)
    lines = text_lines(path)
    if ending == ".jsonl":
        return _json_lines(path, lines, columns)
    # The STS benchmark calls its tab-separated files .csv.
    if ending == ".csv" and not _stem(path).startswith("sts-"):
        return _delimited(path, _comma_separated(path, lines), columns)
    return _delimited(path, ((number, line.split("\t")) for number, line in lines), columns)


def column_names(path: Path) -> list[str]:
    """The names in a file's first line, or of its first object or schema; raises as `open_table` does."""
    ending = _ending(path)
    if ending == ".parquet":
        import pyarrow.parquet as pq

        # Only its footer is read.
        return [str(name) for name in pq.read_schema(path).names]
    first = next(text_lines(path), (0, ""))[1]
    if ending == ".jsonl":
        try:
            fields = json.loads(first)
        except (ValueError, RecursionError):
            return []
        return [str(name) for name in fields] if isinstance(fields, dict) else []
    return next(csv.reader([first]), []) if ending == ".csv" else first.split("\t")


def _stem(path: Path) -> str:
    return path.name.casefold().removesuffix(".gz").rpartition(".")[0]


def _ending(path: Path) -> str:
    return "." + path.name.casefold().removesuffix(".gz").rpartition(".")[2]


def _open_bytes(path: Path) -> IO[bytes]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", path=path) from error
    is_packed = file.read(2) == _GZIP_MAGIC
    file.seek(0)
    if not is_packed:
        return file
    file.close()
    return cast(IO[bytes], gzip.open(path, "rb"))


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1; only `\\n` and `\\r\\n` end one, and a byte order mark is dropped."""
    with _open_bytes(path) as file:
        number = 0
        try:
            for number, raw in enumerate(file, start=1):
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                yield number, raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptError(
                f"{path} is not UTF-8: byte {error.start} of line {number} "
                f"is 0x{error.object[error.start]:02x}",
                path=path,
                line=number,
                hint="convert it, for example: iconv -f latin1 -t utf-8",
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorruptError(
                f"{path} is damaged or cut short after line {number}: {error}",
                path=path,
                line=number,
                hint="copy or download it again",
            ) from error


def _comma_separated(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    # The module's limit is global and defaults to 131,072 characters, which real fields exceed.
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(line + "\n" for _, line in lines)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise CorruptError(
            f"{path} line {reader.line_num} is no comma-separated line: {error}",
            path=path,
            line=reader.line_num,
        ) from error


def _place(header: Sequence[str], names: Sequence[str]) -> int | None:
    folded = [name.strip().casefold() for name in header]
    for name in names:
        if name.casefold() in folded:
            return folded.index(name.casefold())
    return None


def _places(header: Sequence[str], columns: Columns) -> _Places | None:
    text = _place(header, columns.text)
    pair = _place(header, columns.pair)
    if text is None or (columns.pair and pair is None):
        return None
    label = _place(header, columns.label)
    index = _place(header, ("index", "idx", "id"))
    return _Places(text, pair, label, index, _place(header, columns.source), len(header))


def _delimited(path: Path, records: Iterator[tuple[int, list[str]]], columns: Columns) -> Table:
    first = next(records, None)
    if first is None:
        raise InputError(f"{path} is empty", path=path, hint="expected a header line and rows")
    places = _places(first[1], columns)
    if places is not None:
        return Table(path, places.label is not None, _checked(records, places))
    for layout in columns.headerless:
        num_columns = len(layout.columns)
        if num_columns <= len(first[1]) <= num_columns + layout.num_optional:
            found = _places(layout.columns, columns)
            assert found is not None
            places = replace(found, num_optional=layout.num_optional)
            return Table(path, places.label is not None, _checked(_again(first, records), places))
    raise _no_columns(path, first[1], columns)


def _again(
    first: tuple[int, list[str]], rest: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    yield first
    yield from rest


def _no_columns(path: Path, found: Sequence[str], columns: Columns) -> InputError:
    wanted = " and ".join(
        " or ".join(repr(name) for name in names) for names in (columns.text, columns.pair) if names
    )
    shown = ", ".join(repr(name[:40]) for name in found[:12])
    return InputError(
        f"{path} has no column {wanted}; its first line holds {len(found)} fields: {shown}",
        path=path,
        line=1,
        hint="columns are found by the names in the first line",
    )


def _checked(records: Iterable[tuple[int, list[str]]], places: _Places) -> Iterator[Row | BadRow]:
    least, most = places.num_columns, places.num_columns + places.num_optional
    for line, fields in records:
        if not least <= len(fields) <= most:
            found = f"{len(fields)} columns" if any(fields) else "an empty line"
            yield BadRow(line, f"{found} instead of {places.num_columns} columns")
            continue
        yield Row(
            line,
            fields[places.text],
            None if places.pair is None else fields[places.pair],
            None if places.label is None else fields[places.label],
            None if places.index is None else fields[places.index],
            None if places.source is None else fields[places.source],
        )


def _json_lines(path: Path, lines: Iterator[tuple[int, str]], columns: Columns) -> Table:
    """One object a line. The first object decides whether the file has labels."""
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path} is empty", path=path, hint="expected one JSON object a line")
    try:
        fields = json.loads(first[1])
    except (ValueError, RecursionError):
        fields = None
    has_labels = not isinstance(fields, dict) or any(name in fields for name in columns.label)

    def rows() -> Iterator[Row | BadRow]:
        yield _json_row(*first, columns)
        for number, line in lines:
            yield _json_row(number, line, columns)

    return Table(path, has_labels, rows())


def _json_row(number: int, line: str, columns: Columns) -> Row | BadRow:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRow(number, f"not JSON: {error}")
    if not isinstance(fields, dict):
        return BadRow(number, "not a JSON object")
    found: list[str | None] = []
    for names in (columns.text, columns.pair):
        name = next((name for name in names if name in fields), None)
        if names and name is None:
            return BadRow(number, f"no field {names[0]!r}")
        value = fields[name] if name is not None else None
        if name is not None and not isinstance(value, str):
            return BadRow(number, f"field {name!r} is no text")
        if value is not None and _has_lone_surrogate(value):
            return BadRow(number, f"field {name!r} holds half of a surrogate pair")
        found.append(value)
    label = next((fields[name] for name in columns.label if name in fields), None)
    index = next((fields[name] for name in ("index", "idx", "id") if name in fields), None)
    source = next((fields[name] for name in columns.source if name in fields), None)
    text, pair = found
    assert text is not None
    return Row(number, text, pair, _as_text(label), _as_text(index), _as_text(source))


def _has_lone_surrogate(text: str) -> bool:
    # JSON can spell characters that are none; no tokenizer takes them.
    return any("\ud800" <= character <= "\udfff" for character in text)


def _as_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(value)


def _parquet(path: Path, columns: Columns) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error}", path=path) from error
    except pa.ArrowInvalid as error:
        raise CorruptError(f"{path} is no readable Parquet file: {error}", path=path) from error
    places = _places(file.schema_arrow.names, columns)
    if places is None:
        raise _no_columns(path, file.schema_arrow.names, columns)
    wanted = (places.text, places.pair, places.label, places.index, places.source)
    names = [None if place is None else file.schema_arrow.names[place] for place in wanted]

    def rows() -> Iterator[Row | BadRow]:
        line = 0
        try:
            for batch in file.iter_batches(columns=[name for name in names if name is not None]):
                values = [
                    [None] * batch.num_rows if n is None else batch.column(n).to_pylist() for n in names
                ]
                for text, pair, label, index, source in zip(*values, strict=True):
                    line += 1
                    if not isinstance(text, str) or (columns.pair and not isinstance(pair, str)):
                        yield BadRow(line, "a text is null or no text")
                    else:
                        yield Row(line, text, pair, _as_text(label), _as_text(index), _as_text(source))
        except OSError as error:
            raise CorruptError(f"{path} is damaged after row {line}: {error}", path=path) from error

    return Table(path, places.label is not None, rows())
