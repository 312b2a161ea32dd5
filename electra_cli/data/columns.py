"""Parquet and Arrow files → documents: one column, row group by row group, checked before it is read."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

from electra_cli.data.documents import CorpusFile, Tally
from electra_cli.data.readers import COMPRESSIONS, decode_blocks, head_of, read_blocks, sniff
from electra_cli.errors import CorruptError, InputError

BATCH_ROWS = 256
_ARROW_FILE_MAGIC = b"ARROW1"


def column_texts(file: CorpusFile, kind: str, column: str, errors: str, tally: Tally) -> Iterator[str]:
    """The texts of one column; kind is `parquet`, `arrow` (IPC file) or `arrow-stream`.

    Null rows are dropped and counted. Raises `InputError` when the column is missing or no text, and
    `CorruptError` when the file is cut short or its data are not what its header says.
    """
    import pyarrow

    with ExitStack() as stack:
        raw = _seekable(file, stack)
        row = 0
        try:
            for values in _batches(raw, file, kind, column):
                for value in values:
                    row += 1
                    if value is None:
                        tally.drop("null")
                    else:
                        name = f"{file.name}, row {row}"
                        yield "".join(decode_blocks([value], name, errors, tally))
        except (pyarrow.ArrowException, OSError, EOFError) as error:
            raise CorruptError(
                f"{file.name}: the {kind} data are cut short or damaged after row {row} ({error})",
                path=file.name,
                hint="copy or download the file again",
            ) from error


def _seekable(file: CorpusFile, stack: ExitStack) -> IO[bytes]:
    """The file itself, or, where it is compressed as a whole, an unnamed temporary copy of its content."""
    raw = stack.enter_context(file.path.open("rb"))
    if sniff(head_of(file.path)) not in COMPRESSIONS:
        return raw
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed by the stack
    for block in read_blocks(file):
        copy.write(block)
    copy.seek(0)
    return copy


def _batches(raw: IO[bytes], file: CorpusFile, kind: str, column: str) -> Iterator[list[bytes | None]]:
    import pyarrow
    import pyarrow.parquet

    if kind == "parquet":
        parquet = pyarrow.parquet.ParquetFile(raw, pre_buffer=False)
        _check_column(parquet.schema_arrow, file, column)
        for batch in parquet.iter_batches(BATCH_ROWS, columns=[column], use_threads=False):
            yield from _values(batch.column(0))
        return
    if kind == "arrow":
        raw.seek(-len(_ARROW_FILE_MAGIC), 2)
        if raw.read() != _ARROW_FILE_MAGIC:
            raise pyarrow.ArrowInvalid("no ARROW1 at its end")
        # Between its two marks an Arrow file is an Arrow stream.
        raw.seek(8)
    # Types defined by whoever wrote the file stay plain storage: nothing in a file may choose code to run.
    with pyarrow.ipc.open_stream(raw) as stream:
        _check_column(stream.schema, file, column)
        index = stream.schema.get_field_index(column)
        for batch in stream:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield from _values(batch.column(index).slice(start, BATCH_ROWS))


def _check_column(schema: Any, file: CorpusFile, column: str) -> None:
    import pyarrow.types as types

    if schema.names.count(column) != 1:
        raise InputError(
            f"{file.name}: no single column {column!r}; it has {', '.join(schema.names[:10]) or 'none'}",
            path=file.name,
            key="corpus.text_column",
            hint="name the column that holds the text: corpus.text_column",
        )
    kind = schema.field(column).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise InputError(
            f"{file.name}: the column {column!r} holds {kind}, not text",
            path=file.name,
            key="corpus.text_column",
            hint="name the column that holds the text: corpus.text_column",
        )


def _values(array: Any) -> Iterator[list[bytes | None]]:
    import pyarrow

    if pyarrow.types.is_dictionary(array.type):
        array.validate(full=True)
        array = array.dictionary_decode()
    # As bytes, offsets are checked but not yet the encoding, which has its own rule and message.
    binary = array.cast(pyarrow.large_binary())
    binary.validate(full=True)
    yield binary.to_pylist()
