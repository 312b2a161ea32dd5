"""The Arrow files of shard-corpus: shards, and the part tables that its stages hand to each other.

Every file is Arrow IPC, uncompressed, one record batch, and read through a memory map. The map stays valid
after its file handle is closed, so a thousand open shards cost no file descriptor.
"""

# P parts, T tokens

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from electra_cli.durable import writing
from electra_cli.errors import CorruptError

Tokens = NDArray[np.uint16] | NDArray[np.uint32]


def token_type(vocabulary_size: int) -> str:
    """The smallest of the two types of a token stream that holds every id."""
    return "uint16" if vocabulary_size <= 1 << 16 else "uint32"


@dataclass(frozen=True, kw_only=True)
class PartTable:
    """Tokenised parts in the order (hash, file, offset), as the map stage leaves them for one chunk."""

    hash_P: NDArray[np.uint64]
    """The fixed-key hash of a part's text; its leading bits are its bucket."""
    check_P: NDArray[np.uint64]
    """A second hash of the text: texts equal in both are equal."""
    file_P: NDArray[np.int32]
    """Number of the part's file in the listing."""
    offset_P: NDArray[np.int64]
    """Running number of the part in its file."""
    source_P: NDArray[np.int16]
    """Number of the part's source."""
    start_P: NDArray[np.int64]
    """Where the tokens of each part begin in the stream; one more entry than parts."""
    stream_T: Tokens
    """`[CLS] … [SEP] [CLS] …`"""


@dataclass(frozen=True, kw_only=True)
class PartIndex:
    """The parts of one bucket that are kept, by source and in it by (hash, file, offset)."""

    hash_P: NDArray[np.uint64]
    source_P: NDArray[np.int16]
    chunk_P: NDArray[np.int32]
    """Number of the chunk whose table holds the part."""
    row_P: NDArray[np.int32]
    """The part's row in that table."""
    length_P: NDArray[np.int32]
    """Tokens of the part, [CLS] and [SEP] included."""


def _parts_column(start_P: NDArray[np.int64], stream_T: Tokens) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(start_P), pa.array(stream_T))


def _write(path: Path, names: list[str], columns: list[pa.Array], facts: dict[str, int]) -> None:
    batch = pa.record_batch(columns, names=names)
    schema = batch.schema.with_metadata({key: str(value) for key, value in facts.items()} or None)
    with writing(path) as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def _map(path: Path) -> pa.RecordBatch:
    """The one record batch of a file, memory-mapped."""
    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            if reader.num_record_batches != 1:
                raise CorruptError(
                    f"{path}: {reader.num_record_batches} record batches where one belongs", path=path
                )
            return reader.get_batch(0)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise CorruptError(f"{path} is no Arrow file that electra wrote: {error}", path=path) from error


def write_stream(path: Path, start_P: NDArray[np.int64], stream_T: Tokens) -> None:
    """Write one shard; `start_P` holds where each part begins, and the end."""
    _write(path, ["input_ids"], [_parts_column(start_P, stream_T)], {})


def map_stream(path: Path, dtype: str) -> Tokens:
    """The flat token stream of a shard, memory-mapped and read-only."""
    column = _map(path).column(0)
    values = column.values
    if str(values.type) != dtype:
        raise CorruptError(f"{path}: tokens of type {values.type}, the manifest says {dtype}", path=path)
    stream_T: Tokens = values.to_numpy(zero_copy_only=True)
    return stream_T


def write_parts(path: Path, table: PartTable, *, num_empty: int) -> None:
    """Write the table of one chunk; `num_empty` counts parts without a token, which it does not hold."""
    columns = [
        pa.array(a) for a in (table.hash_P, table.check_P, table.file_P, table.offset_P, table.source_P)
    ]
    columns.append(_parts_column(table.start_P, table.stream_T))
    _write(path, ["hash", "check", "file", "offset", "source", "input_ids"], columns, {"empty": num_empty})


def map_parts(path: Path) -> PartTable:
    """The table of one chunk, memory-mapped."""
    batch = _map(path)
    hash_P, check_P, file_P, offset_P, source_P = (
        batch.column(n).to_numpy(zero_copy_only=True) for n in range(5)
    )
    parts = batch.column(5)
    return PartTable(
        hash_P=hash_P,
        check_P=check_P,
        file_P=file_P,
        offset_P=offset_P,
        source_P=source_P,
        start_P=parts.offsets.to_numpy(zero_copy_only=True),
        stream_T=parts.values.to_numpy(zero_copy_only=True),
    )


def fact(path: Path, name: str) -> int:
    """A number noted in the header of a file of this module."""
    with pa.memory_map(str(path)) as source:
        metadata: dict[bytes, bytes] = pa.ipc.open_file(source).schema.metadata or {}
    return int(metadata[name.encode()])


def write_index(path: Path, index: PartIndex, *, num_duplicates: int, num_duplicate_tokens: int) -> None:
    """Write the index of one bucket and what it drops; tokens without [CLS] and [SEP]."""
    columns = [
        pa.array(a) for a in (index.hash_P, index.source_P, index.chunk_P, index.row_P, index.length_P)
    ]
    facts = {"duplicates": num_duplicates, "duplicate_tokens": num_duplicate_tokens}
    _write(path, ["hash", "source", "chunk", "row", "length"], columns, facts)


def map_index(path: Path) -> PartIndex:
    """The index of one bucket, memory-mapped."""
    batch = _map(path)
    hash_P, source_P, chunk_P, row_P, length_P = (
        batch.column(n).to_numpy(zero_copy_only=True) for n in range(5)
    )
    return PartIndex(hash_P=hash_P, source_P=source_P, chunk_P=chunk_P, row_P=row_P, length_P=length_P)


def ragged(start_P: NDArray[np.int64], length_P: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers start, start + 1, … of every part, one part after another, `length` of each."""
    ends_P = np.cumsum(length_P)
    shift_P = start_P - (ends_P - length_P)
    return np.repeat(shift_P, length_P) + np.arange(int(ends_P[-1]) if len(ends_P) else 0, dtype=np.int64)
