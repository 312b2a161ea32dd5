"""The reduce functions of shard-corpus: tables in hash order to shards in the order (hash, file, offset).

`index_bucket` sees all parts of one range of hashes, so equal texts meet there: it drops duplicates and
notes who stays, without touching a token. `plan_shards` decides the held-out cut and the shards from those
notes. `write_shard` gathers the tokens of one shard. All are pure functions of the map stage's tables.
"""

# P parts, T tokens

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from electra_cli.data.shard_files import (
    PartIndex,
    Tokens,
    map_index,
    map_parts,
    ragged,
    write_index,
    write_stream,
)
from electra_cli.data.shard_map import chunk_path
from electra_cli.durable import sha256_file
from electra_cli.errors import InputError

MAX_BUCKETS = 256
_PARTS_PER_BUCKET = 1 << 20

Split = Literal["train", "heldout"]


def num_buckets(num_parts: int) -> int:
    """Buckets that keep the notes of one below some 40 MB: a power of two up to 256."""
    wanted = -(-num_parts // _PARTS_PER_BUCKET)
    return min(MAX_BUCKETS, 1 << max(0, wanted - 1).bit_length())


@dataclass(frozen=True, kw_only=True)
class IndexJob:
    """One call of `index_bucket`."""

    bucket: int
    num_buckets: int
    num_chunks: int
    drop_duplicates: bool
    work: Path


def index_path(work: Path, bucket: int) -> Path:
    """Where the index of a bucket lies."""
    return work / f"bucket-{bucket:03d}.arrow"


def index_bucket(job: IndexJob) -> int:
    """Note which parts of a bucket stay, and in which order; returns the bucket's number."""
    found = [_slice_of_chunk(chunk_path(job.work, chunk), chunk, job) for chunk in range(job.num_chunks)]
    hash_P, check_P, file_P, offset_P, source_P, length_P, chunk_P, row_P = (
        np.concatenate(columns) for columns in zip(*found, strict=True)
    )
    order = np.lexsort((offset_P, file_P, check_P, hash_P))
    is_again = np.zeros(len(order), dtype=bool)
    if job.drop_duplicates:
        same = (hash_P[order][1:] == hash_P[order][:-1]) & (check_P[order][1:] == check_P[order][:-1])
        is_again[1:] = same
    dropped, order = order[is_again], order[~is_again]
    # What stays stands by (hash, file, offset) inside its source.
    order = order[np.lexsort((offset_P[order], file_P[order], hash_P[order], source_P[order]))]
    index = PartIndex(
        hash_P=hash_P[order],
        source_P=source_P[order],
        chunk_P=chunk_P[order].astype(np.int32),
        row_P=row_P[order].astype(np.int32),
        length_P=length_P[order].astype(np.int32),
    )
    write_index(
        index_path(job.work, job.bucket),
        index,
        num_duplicates=len(dropped),
        num_duplicate_tokens=int(length_P[dropped].sum()) - 2 * len(dropped),
    )
    return job.bucket


def _slice_of_chunk(
    path: Path, chunk: int, job: IndexJob
) -> tuple[NDArray[np.int64] | NDArray[np.uint64], ...]:
    table = map_parts(path)
    size = (1 << 64) // job.num_buckets
    low = int(np.searchsorted(table.hash_P, np.uint64(job.bucket * size)))
    high = len(table.hash_P)
    if job.bucket + 1 < job.num_buckets:
        high = int(np.searchsorted(table.hash_P, np.uint64((job.bucket + 1) * size)))
    return (
        table.hash_P[low:high],
        table.check_P[low:high],
        table.file_P[low:high].astype(np.int64),
        table.offset_P[low:high],
        table.source_P[low:high].astype(np.int64),
        np.diff(table.start_P[low : high + 1]),
        np.full(high - low, chunk, dtype=np.int64),
        np.arange(low, high, dtype=np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class ShardJob:
    """One call of `write_shard`: which parts a shard holds."""

    file: str
    split: Split
    source: int
    slices: tuple[tuple[int, int, int], ...]
    """(bucket, first, behind the last) of the bucket's index."""
    num_parts: int
    num_tokens: int
    dtype: str
    work: Path
    folder: Path


@dataclass(frozen=True, kw_only=True)
class ShardFacts:
    """A finished shard, as its record and the manifest say it."""

    file: str
    sha256: str
    bytes: int
    num_parts: int
    num_stream_tokens: int
    split: Split
    source: int


def heldout_cut(work: Path, buckets: int, fraction: float) -> int:
    """The hash below which parts are held out: the lowest up to the fraction, at least one part.

    Parts of one hash stay on one side. Raises `InputError` where that leaves nothing to train on.
    """
    sizes = [len(map_index(index_path(work, bucket)).hash_P) for bucket in range(buckets)]
    wanted = max(1, int(fraction * sum(sizes)))
    before = 0
    for bucket, size in enumerate(sizes):
        hashes = np.sort(map_index(index_path(work, bucket)).hash_P)
        inside = max(0, wanted - before)
        if inside < size:
            # The first part behind the cut; if it has its hash in common with all before it, the next hash.
            cut = hashes[inside]
            if before or hashes[0] < cut:
                return int(cut)
            later = hashes[hashes > cut]
            if len(later):
                return int(later[0])
        before += size
    raise InputError(
        f"the corpus comes to {sum(sizes)} different part of text: one is held out, and nothing is left to "
        "train on",
        hint="add text: a document of its own, or a longer one",
        key="corpus.files",
    )


def plan_shards(
    work: Path,
    folder: Path,
    buckets: int,
    *,
    num_sources: int,
    heldout_fraction: float,
    shard_bytes: int,
    dtype: str,
) -> list[ShardJob]:
    """Which parts each shard holds: training shards by source, then held-out ones, none larger than asked
    by more than its last part."""
    cut = heldout_cut(work, buckets, heldout_fraction)
    jobs: list[ShardJob] = []
    splits: tuple[Split, ...] = ("train", "heldout")
    for split in splits:
        number = 0
        for source in range(num_sources):
            runs = [_run(work, bucket, source, cut, split) for bucket in range(buckets)]
            for slices, num_parts, num_tokens in _cut_runs(runs, shard_bytes, np.dtype(dtype).itemsize):
                name = "shard" if split == "train" else "heldout"
                jobs.append(
                    ShardJob(
                        file=f"{name}-{number:05d}.arrow",
                        split=split,
                        source=source,
                        slices=slices,
                        num_parts=num_parts,
                        num_tokens=num_tokens,
                        dtype=dtype,
                        work=work,
                        folder=folder,
                    )
                )
                number += 1
    return jobs


@dataclass(frozen=True)
class _Run:
    """Consecutive entries of one bucket's index: one source, one split."""

    bucket: int
    first: int
    end_P: NDArray[np.int64]
    """Tokens of the run up to and with each part."""


def _run(work: Path, bucket: int, source: int, cut: int, split: Split) -> _Run:
    index = map_index(index_path(work, bucket))
    low, high = np.searchsorted(index.source_P, [source, source + 1]).tolist()
    middle = low + int(np.searchsorted(index.hash_P[low:high], np.uint64(cut)))
    first, last = (low, middle) if split == "heldout" else (middle, high)
    return _Run(bucket, first, np.cumsum(index.length_P[first:last], dtype=np.int64))


def _cut_runs(
    runs: Sequence[_Run], shard_bytes: int, item_bytes: int
) -> Iterator[tuple[tuple[tuple[int, int, int], ...], int, int]]:
    """Slices, parts and tokens of shards of nearly equal size, in order."""
    total = sum(int(run.end_P[-1]) for run in runs if len(run.end_P))
    shards = max(1, -(-total * item_bytes // shard_bytes))
    slices: list[tuple[int, int, int]] = []
    num_parts = num_tokens = before = current = 0
    for run in runs:
        if not len(run.end_P):
            continue
        # A part belongs to the shard in which its first token falls when the stream is cut evenly.
        start_P = np.concatenate([np.zeros(1, np.int64), run.end_P[:-1]]) + before
        shard_P = start_P * shards // total
        edges = [0, *(np.nonzero(np.diff(shard_P))[0] + 1).tolist(), len(shard_P)]
        for low, high in pairwise(edges):
            if int(shard_P[low]) != current and slices:
                yield tuple(slices), num_parts, num_tokens
                slices, num_parts, num_tokens = [], 0, 0
            current = int(shard_P[low])
            slices.append((run.bucket, run.first + low, run.first + high))
            num_parts += high - low
            num_tokens += int(run.end_P[high - 1]) - (int(run.end_P[low - 1]) if low else 0)
        before += int(run.end_P[-1])
    if slices:
        yield tuple(slices), num_parts, num_tokens


def write_shard(job: ShardJob) -> ShardFacts:
    """Gather the tokens of a shard and write it under its final name."""
    stream_T: Tokens = np.empty(job.num_tokens, dtype=job.dtype)
    lengths: list[NDArray[np.int64]] = []
    at = 0
    for bucket, first, last in job.slices:
        index = map_index(index_path(job.work, bucket))
        length_P = index.length_P[first:last].astype(np.int64)
        end_P = at + np.cumsum(length_P)
        _gather(job.work, index, first, last, end_P - length_P, stream_T)
        lengths.append(length_P)
        at = int(end_P[-1])
    start_P = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    path = job.folder / job.file
    write_stream(path, start_P, stream_T)
    return ShardFacts(
        file=job.file,
        sha256=sha256_file(path),
        bytes=path.stat().st_size,
        num_parts=job.num_parts,
        num_stream_tokens=job.num_tokens,
        split=job.split,
        source=job.source,
    )


def _gather(
    work: Path, index: PartIndex, first: int, last: int, target_P: NDArray[np.int64], stream_T: Tokens
) -> None:
    """Copy the tokens of these entries to their places in the shard's stream, one chunk's after another's."""
    chunk_P, row_P = index.chunk_P[first:last], index.row_P[first:last]
    order = np.argsort(chunk_P, kind="stable")
    chunks, starts = np.unique(chunk_P[order], return_index=True)
    for chunk, mine in zip(chunks.tolist(), np.split(order, starts[1:]), strict=True):
        table = map_parts(chunk_path(work, chunk))
        from_P = table.start_P[row_P[mine]]
        length_P = table.start_P[row_P[mine] + 1] - from_P
        stream_T[ragged(target_P[mine], length_P)] = table.stream_T[ragged(from_P, length_P)]
