"""Rows against a slow reference that follows the definition token by token, over odd lengths and streams."""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli import keyed
from electra_cli.data.rows import RowBlock, Rows, count_rows

PAD, UNK, CLS, SEP, MASK = range(5)
SEED = 7

properties = settings(max_examples=100, derandomize=True, deadline=None)


class Stream(NamedTuple):
    """Stands in for a shard: rows need no more of one."""

    stream: np.ndarray
    source: str = ""


def stream_of(parts: list[list[int]], source: str = "", dtype: type = np.uint16) -> Stream:
    return Stream(np.array([t for part in parts for t in (CLS, *part, SEP)], dtype=dtype), source)


def rows_of(shards: list[Stream], size: int, *, pairs: bool = False, across: bool = False) -> Rows:
    return Rows(
        shards,  # type: ignore[arg-type]
        sequence_length=size,
        padding_id=PAD,
        cls_id=CLS,
        sep_id=SEP,
        segment_pairs=pairs,
        attend_across_documents=across,
        seed=SEED,
    )


def read_all(rows: Rows) -> RowBlock:
    everything = np.arange(rows.num_rows, dtype=np.int64)
    return rows.read(everything, everything)


class Naive(NamedTuple):
    tokens: list[int]
    pieces: list[int]
    positions: list[int]
    segments: list[int]


def naive_row(window: list[int], size: int, sample: int, pairs: bool, across: bool) -> Naive:
    fragments: list[list[int]] = []
    for token in window:
        if token == CLS or not fragments:
            fragments.append([])
        fragments[-1].append(token)
    fragments = [f for f in fragments if any(t not in (CLS, SEP) for t in f)]
    if fragments[0][0] != CLS:
        fragments[0].insert(0, CLS)
    if fragments[-1][-1] != SEP:
        fragments[-1].append(SEP)
    types = [[0] * len(f) for f in fragments]
    counter = np.array([sample], dtype=np.int64)
    if pairs and keyed.uniform(keyed.key(SEED, "segment pair"), counter)[0] < 0.9:
        longest = max(range(len(fragments)), key=lambda i: len(fragments[i]))
        content = len(fragments[longest]) - 2
        if content >= 2:
            low, high = -(-content // 4), 3 * content // 4
            drawn = keyed.uniform(keyed.key(SEED, "segment place"), counter)[0]
            cut = 1 + low + int(drawn * (high - low + 1))
            fragments[longest].insert(cut, SEP)
            types[longest] = [0] * (cut + 1) + [1] * (len(fragments[longest]) - cut - 1)
    tokens = [t for f in fragments for t in f]
    pieces = [i + 1 for i, f in enumerate(fragments) for _ in f]
    positions = [p for f in fragments for p in range(len(f))]
    if across:
        pieces, positions = [1] * len(tokens), list(range(len(tokens)))
    unused = size - len(tokens)
    return Naive(
        tokens + [PAD] * unused,
        pieces + [0] * unused,
        positions + [0] * unused,
        [t for f in types for t in f] + [0] * unused,
    )


streams = st.lists(
    st.lists(st.lists(st.integers(5, 400), min_size=1, max_size=40), min_size=1, max_size=12),
    min_size=1,
    max_size=3,
)


@properties
@given(streams, st.integers(8, 67), st.booleans(), st.booleans())
def test_rows_equal_the_slow_reference(
    shards: list[list[list[int]]], size: int, pairs: bool, across: bool
) -> None:
    made = [stream_of(parts) for parts in shards]
    block = read_all(rows_of(made, size, pairs=pairs, across=across))
    window = size - 3 if pairs else size - 2
    expected: list[Naive] = []
    for shard in made:
        tokens = shard.stream.tolist()
        for start in range(0, len(tokens), window):
            piece = tokens[start : start + window]
            if any(t not in (CLS, SEP) for t in piece):
                expected.append(naive_row(piece, size, len(expected), pairs, across))
    assert block.token_ids_RS.tolist() == [row.tokens for row in expected]
    assert block.piece_RS.tolist() == [row.pieces for row in expected]
    assert block.position_RS.tolist() == [row.positions for row in expected]
    assert block.segment_RS.tolist() == [row.segments for row in expected]


@properties
@given(streams, st.integers(8, 67), st.booleans())
def test_P04_P05_every_content_token_is_in_exactly_one_row(
    shards: list[list[list[int]]], size: int, pairs: bool
) -> None:
    block = read_all(rows_of([stream_of(parts) for parts in shards], size, pairs=pairs))
    content = block.token_ids_RS[block.token_ids_RS >= 5]
    assert content.tolist() == [t for parts in shards for part in parts for t in part]


@properties
@given(streams, st.integers(8, 67), st.booleans())
def test_P04_pieces_begin_with_cls_and_end_with_sep(
    shards: list[list[list[int]]], size: int, pairs: bool
) -> None:
    block = read_all(rows_of([stream_of(parts) for parts in shards], size, pairs=pairs))
    for tokens, pieces, positions, segments in zip(
        block.token_ids_RS, block.piece_RS, block.position_RS, block.segment_RS, strict=True
    ):
        assert (np.diff(segments[pieces > 0] * 1) >= -1).all()
        assert (tokens[pieces == 0] == PAD).all()
        for piece in range(1, pieces.max() + 1):
            mine = np.nonzero(pieces == piece)[0]
            assert (np.diff(mine) == 1).all()
            assert tokens[mine[0]] == CLS and tokens[mine[-1]] == SEP
            assert positions[mine].tolist() == list(range(len(mine)))
            assert (np.diff(segments[mine]) >= 0).all()


def test_case_B19_a_long_document_on_one_line_loses_no_token() -> None:
    document = list(range(5, 10_005))
    block = read_all(rows_of([stream_of([document], dtype=np.uint32)], 128))
    assert block.token_ids_RS[block.token_ids_RS >= 5].tolist() == document
    # 10,002 tokens of stream in windows of 126; the last window is shorter.
    assert len(block.token_ids_RS) == 80


@pytest.mark.parametrize(
    ("tokens", "rows"), [(0, 0), (1, 0), (2, 1), (6, 1), (7, 1), (8, 2), (12, 2), (13, 2)]
)
def test_a_lone_last_separator_makes_no_row(tokens: int, rows: int) -> None:
    assert count_rows(tokens, 6) == rows


def test_reading_in_any_order_and_block_gives_the_same_rows() -> None:
    parts = [[5 + i % 90 for i in range(n)] for n in range(1, 60)]
    rows = rows_of([stream_of(parts[:30]), stream_of(parts[30:])], 33, pairs=True)
    whole = read_all(rows)
    shuffled = keyed.permuted(np.arange(rows.num_rows, dtype=np.int64), rows.num_rows, 3)
    again = rows.read(shuffled, shuffled)
    assert (again.token_ids_RS == whole.token_ids_RS[shuffled]).all()
    assert (again.segment_RS == whole.segment_RS[shuffled]).all()


def test_no_row_can_be_asked_for_that_is_not_there() -> None:
    rows = rows_of([stream_of([[9] * 20])], 16)
    with pytest.raises(IndexError, match=r"\[0, 2\)"):
        rows.read(np.array([2]), np.array([2]))
    assert rows.read(np.zeros(0, np.int64), np.zeros(0, np.int64)).token_ids_RS.shape == (0, 16)


def test_shards_of_one_source_stand_together() -> None:
    shards = [stream_of([[9] * 20], "b"), stream_of([[8] * 20], "a"), stream_of([[7] * 20], "b")]
    rows = rows_of(shards, 16)
    assert rows.sources == (("b", 4), ("a", 2))
    assert read_all(rows).token_ids_RS[:, 2].tolist() == [9, 9, 7, 7, 8, 8]


def test_nine_rows_in_ten_hold_a_pair_cut_in_the_middle_half() -> None:
    rows = rows_of([stream_of([[9] * 20_000])], 128, pairs=True)
    epochs = [rows.read(np.arange(160), np.arange(160) + epoch * 160) for epoch in range(20)]
    has_pair = np.concatenate([block.segment_RS.any(axis=1) for block in epochs])
    # 3,200 draws: the standard deviation of the share is 0.0053.
    assert abs(has_pair.mean() - 0.9) < 4 * 0.0053
    first = np.concatenate(
        [(block.segment_RS == 0).sum(axis=1)[block.segment_RS.any(axis=1)] for block in epochs]
    )
    # 125 tokens of content in most rows; [CLS] and [SEP] stand in the first segment, padding does not exist.
    assert first.min() >= 32 + 2 and first.max() <= 93 + 2
    assert len(np.unique(first)) > 50


def test_a_memory_mapped_stream_gives_the_same_rows(tmp_path: Path) -> None:
    shard = stream_of([[5 + i % 90 for i in range(n)] for n in range(1, 60)])
    np.save(tmp_path / "stream.npy", shard.stream)
    mapped = Stream(np.load(tmp_path / "stream.npy", mmap_mode="r"))
    assert (read_all(rows_of([mapped], 63)).token_ids_RS == read_all(rows_of([shard], 63)).token_ids_RS).all()


def test_a_read_costs_a_few_calls_a_row_and_none_a_token() -> None:
    parts = [[5 + i % 900 for i in range(n % 700 + 1)] for n in range(600)]
    rows = rows_of([stream_of(parts)], 128, pairs=True)
    num_calls = _num_calls(rows, np.arange(1024, dtype=np.int64))
    # Each row holds 128 tokens.
    assert 0 < num_calls < 4 * 1024


def _num_calls(rows: Rows, asked: np.ndarray) -> int:
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if "call" in event else None)
    try:
        rows.read(asked, asked)
    finally:
        sys.setprofile(None)
    return len(calls)
