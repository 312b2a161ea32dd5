"""The map function of shard-corpus: a chunk of documents' parts to one table in hash order.

A pure function of the chunk and the vocabulary: it may run twice, anywhere, and writes the same bytes. A
table in hash order holds its own buckets: the parts whose hash begins with the same bits stand together.
"""

# P parts, T tokens

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path

import numpy as np

from electra_cli.data.corpus import Listing, Tally, cut_into_parts, read_documents, text_hash
from electra_cli.data.part_tokens import PartTokenizer
from electra_cli.data.shard_files import PartTable, fact, map_parts, token_type, write_parts
from electra_cli.data.vocabulary import Vocabulary, load_vocabulary
from electra_cli.errors import InputError
from electra_cli.settings import Corpus

_MOST_PARTS = 100_000


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive parts of the corpus, read and cut but not tokenised."""

    number: int
    texts: tuple[str, ...]
    file: tuple[int, ...]
    offset: tuple[int, ...]
    source: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class MapJob:
    """One call of `map_chunk`; `chunk` is None where its table exists from an earlier, interrupted run."""

    number: int
    chunk: Chunk | None
    vocabulary_folder: Path
    vocabulary_sha256: str
    out: Path


@dataclass(frozen=True, kw_only=True)
class MapResult:
    """What one chunk came to."""

    num_parts: int
    num_tokens: int
    num_empty: int
    """Parts of which the tokenizer leaves nothing, such as a text of control characters."""


@dataclass
class Reading:
    """What reading the corpus has counted so far."""

    tally: Tally = field(default_factory=Tally)
    num_documents: int = 0
    num_files: int = 0
    num_bytes: int = 0
    """Of the text of the file being read, and on disk of those read before."""
    num_chunks: int = 0


def chunk_path(work: Path, number: int) -> Path:
    """Where the table of a chunk lies."""
    return work / f"chunk-{number:06d}.arrow"


def part_bytes(listing: Listing) -> int:
    """Largest part: 64 KiB, less for a small corpus, so that the one part held out stays a small share."""
    if any(file.is_remote for file in listing.files):
        return 1 << 16
    return min(1 << 16, max(128, listing.num_bytes // 24))


def read_chunks(
    listing: Listing, corpus: Corpus, reading: Reading, *, chunk_size: int, part_bytes: int
) -> Iterator[Chunk]:
    """The parts of the corpus in chunks of about `chunk_size` characters; the text alone decides the cuts."""
    sources = list(dict.fromkeys(file.source for file in listing.files))
    parts: list[tuple[str, int, int, int]] = []
    num_characters = 0
    num_bytes = 0
    for file_number, file in enumerate(listing.files):
        offset, last = count(), -1
        for document in read_documents(file, corpus, reading.tally):
            # A huge document comes in several stretches.
            reading.num_documents += document.offset != last
            last = document.offset
            reading.num_bytes += len(document.text.encode("utf-8"))
            for text in cut_into_parts(document.text, part_bytes):
                parts.append((text, file_number, next(offset), sources.index(file.source)))
                num_characters += len(text)
            if num_characters >= chunk_size or len(parts) >= _MOST_PARTS:
                yield _chunk(parts, reading)
                parts, num_characters = [], 0
        reading.num_files += 1
        num_bytes += file.num_bytes
        reading.num_bytes = num_bytes
    if parts:
        yield _chunk(parts, reading)


def _chunk(parts: list[tuple[str, int, int, int]], reading: Reading) -> Chunk:
    texts, file, offset, source = zip(*parts, strict=True)
    number = reading.num_chunks
    reading.num_chunks += 1
    return Chunk(number=number, texts=texts, file=file, offset=offset, source=source)


@lru_cache(maxsize=1)
def _tokenizer(folder: Path, sha256: str) -> tuple[Vocabulary, PartTokenizer]:
    vocabulary = load_vocabulary(folder)
    if vocabulary.sha256 != sha256:
        raise InputError(
            f"{folder} was replaced while shard-corpus ran: {sha256} became {vocabulary.sha256}",
            path=folder,
            hint="run electra shard-corpus again",
        )
    return vocabulary, PartTokenizer(vocabulary.tokenizer, token_type(vocabulary.size))


def map_chunk(job: MapJob) -> MapResult:
    """Tokenise a chunk and write its table; a table that is there already is only counted."""
    if job.chunk is None:
        table = map_parts(job.out)
        return _result(table, fact(job.out, "empty"))
    vocabulary, tokenizer = _tokenizer(job.vocabulary_folder, job.vocabulary_sha256)
    dtype = np.dtype(token_type(vocabulary.size))
    ids = tokenizer.encode(job.chunk.texts)
    hashes = [text_hash(text) for text in job.chunk.texts]
    kept = [n for n in range(len(ids)) if ids[n]]
    order = sorted(kept, key=hashes.__getitem__)
    first, last = (np.array([id], dtype=dtype).tobytes() for id in (vocabulary.cls_id, vocabulary.sep_id))
    stream = b"".join([piece for n in order for piece in (first, ids[n], last)])
    length_P = np.array([len(ids[n]) // dtype.itemsize + 2 for n in order], dtype=np.int64)
    table = PartTable(
        hash_P=np.array([hashes[n] for n in order], dtype=np.uint64),
        check_P=np.array([_check(job.chunk.texts[n]) for n in order], dtype=np.uint64),
        file_P=np.array(job.chunk.file, dtype=np.int32)[order],
        offset_P=np.array(job.chunk.offset, dtype=np.int64)[order],
        source_P=np.array(job.chunk.source, dtype=np.int16)[order],
        start_P=np.concatenate([np.zeros(1, np.int64), np.cumsum(length_P)]),
        stream_T=np.frombuffer(stream, dtype=dtype),
    )
    num_empty = len(ids) - len(kept)
    write_parts(job.out, table, num_empty=num_empty)
    return _result(table, num_empty)


def _check(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8, person=b"electra check")
    return int.from_bytes(digest.digest(), "little")


def _result(table: PartTable, num_empty: int) -> MapResult:
    num_parts = len(table.hash_P)
    return MapResult(num_parts=num_parts, num_tokens=len(table.stream_T) - 2 * num_parts, num_empty=num_empty)
