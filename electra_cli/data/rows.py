"""Shards to rows: a view in closed form, for any sequence length.

Row r of a shard is the window [r·W, (r+1)·W) of its token stream, W = S−2, or S−3 with segment pairs. Every
content token of a shard lies in exactly one row, and the windows are the same in every epoch. Nothing is
stored but the number of rows of each shard; whole batches are built at once, without a loop over tokens.
"""

# R rows, S sequence, W window, P pieces of all rows

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from electra_cli import keyed

if TYPE_CHECKING:
    from electra_cli.data.shards import Shard

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]

PAIR_PROBABILITY = 0.9
"""How often the longest piece of a row is cut in two; the official code keeps one text in ten whole."""


@dataclass(frozen=True, kw_only=True)
class RowBlock:
    """Some rows, ready to become a batch; the fields mean what those of `Batch` mean."""

    token_ids_RS: Int64
    piece_RS: Int32
    position_RS: Int64
    segment_RS: Int64


def window_size(sequence_length: int, *, segment_pairs: bool) -> int:
    """Stream tokens of a row: places are left for a [CLS], a [SEP] and the [SEP] between two segments."""
    return sequence_length - (3 if segment_pairs else 2)


def count_rows(num_stream_tokens: int, window: int) -> int:
    """Rows of a shard. A last window that holds nothing but the last [SEP] is no row."""
    return max(0, -(-(num_stream_tokens - 1) // window))


class Rows:
    """The rows of some shards, numbered shard after shard; shards of one source stand together."""

    def __init__(
        self,
        shards: "Sequence[Shard]",
        *,
        sequence_length: int,
        padding_id: int,
        cls_id: int,
        sep_id: int,
        segment_pairs: bool,
        attend_across_documents: bool,
        seed: int,
    ) -> None:
        """`sequence_length` ≥ 8; `seed` decides where segment pairs are cut."""
        if sequence_length < 8:
            raise ValueError(f"sequence_length = {sequence_length}: at least 8")
        self.sequence_length = sequence_length
        self.window = window_size(sequence_length, segment_pairs=segment_pairs)
        self._padding_id, self._cls_id, self._sep_id = padding_id, cls_id, sep_id
        self._segment_pairs = segment_pairs
        self._attend_across_documents = attend_across_documents
        self._pair_key = keyed.key(seed, "segment pair")
        self._place_key = keyed.key(seed, "segment place")
        names = list(dict.fromkeys(shard.source for shard in shards))
        ordered = sorted(shards, key=lambda shard: names.index(shard.source))
        self._streams = [shard.stream for shard in ordered]
        rows = np.array([count_rows(len(stream), self.window) for stream in self._streams], dtype=np.int64)
        self._first_row = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])
        self.sources: tuple[tuple[str, int], ...] = tuple(
            (name, sum(int(n) for n, shard in zip(rows, ordered, strict=True) if shard.source == name))
            for name in names
        )
        """Name and number of rows of each source, in the order of their rows."""

    @property
    def num_rows(self) -> int:
        """Rows of one epoch."""
        return int(self._first_row[-1])

    def read(self, row_R: Int64, sample_R: Int64) -> RowBlock:
        """The rows with these numbers; `sample_R` counts the keyed choice of where a pair is cut."""
        window_RW, length_R = self._windows(row_R)
        token_RS, length_R = self._framed(window_RW, length_R)
        separator_R = np.full(len(token_RS), self.sequence_length, dtype=np.int32)
        if self._segment_pairs and len(token_RS):
            separator_R = self._separators(token_RS, length_R, sample_R)
            token_RS = _with_separators(token_RS, separator_R, self._sep_id)
            length_R = length_R + (separator_R < self.sequence_length)
        return self._block(token_RS, length_R, separator_R)

    def _windows(self, row_R: Int64) -> tuple[Int32, Int32]:
        """The raw windows, padded behind, and how many tokens each holds."""
        if row_R.size and (row_R.min() < 0 or row_R.max() >= self.num_rows):
            raise IndexError(f"rows must lie in [0, {self.num_rows})")
        shard_R = np.searchsorted(self._first_row, row_R, side="right") - 1
        start_R = (row_R - self._first_row[shard_R]) * self.window
        window_RW = np.full((len(row_R), self.window), self._padding_id, dtype=np.int32)
        length_R = np.zeros(len(row_R), dtype=np.int32)
        for r, (shard, start) in enumerate(zip(shard_R.tolist(), start_R.tolist(), strict=True)):
            tokens = self._streams[shard][start : start + self.window]
            window_RW[r, : len(tokens)] = tokens
            length_R[r] = len(tokens)
        return window_RW, length_R

    def _framed(self, window_RW: Int32, length_R: Int32) -> tuple[Int32, Int32]:
        """Windows with [CLS] in front and [SEP] behind, without edge fragments that hold no content."""
        num_rows = len(window_RW)
        end_R = length_R - (window_RW[np.arange(num_rows), length_R - 1] == self._cls_id)
        drops_first_R = window_RW[:, 0] == self._sep_id
        needs_cls_R = ~drops_first_R & (window_RW[:, 0] != self._cls_id)
        needs_sep_R = window_RW[np.arange(num_rows), end_R - 1] != self._sep_id
        # Place j of the row takes place j + shift of the window.
        shift_R = drops_first_R.astype(np.int32) - needs_cls_R
        place_S = np.arange(self.sequence_length, dtype=np.int32)
        from_RS = np.clip(place_S + shift_R[:, None], 0, self.window - 1)
        token_RS = np.take_along_axis(window_RW, from_RS, axis=1)
        framed_R = (end_R - shift_R).astype(np.int32)
        token_RS[place_S >= framed_R[:, None]] = self._padding_id
        token_RS[needs_cls_R, 0] = self._cls_id
        token_RS[needs_sep_R, framed_R[needs_sep_R]] = self._sep_id
        return token_RS, framed_R + needs_sep_R

    def _separators(self, token_RS: Int32, length_R: Int32, sample_R: Int64) -> Int32:
        """The place of each row's second [SEP] in its longest piece, or S where the piece stays whole."""
        row_P, start_P = np.nonzero(token_RS == self._cls_id)
        first_R = np.searchsorted(row_P, np.arange(len(token_RS)))
        end_P = np.append(start_P[1:], 0)
        last_R = np.append(first_R[1:], len(row_P)) - 1
        end_P[last_R] = length_R
        # The longest piece, the first of equals: lengths in the high digits, early starts in the low ones.
        size = self.sequence_length
        best_R = np.maximum.reduceat((end_P - start_P) * size + (size - 1 - start_P), first_R)
        start_R = size - 1 - best_R % size
        content_R = best_R // size - 2
        # k tokens of content stand before the separator, ceil(n/4) <= k <= floor(3n/4).
        low_R, high_R = (content_R + 3) // 4, 3 * content_R // 4
        is_cut_R = (keyed.uniform(self._pair_key, sample_R) < PAIR_PROBABILITY) & (content_R >= 2)
        place_R = keyed.uniform(self._place_key, sample_R) * (high_R - low_R + 1)
        separator_R = start_R + 1 + low_R + place_R.astype(np.int64)
        return np.where(is_cut_R, separator_R, size).astype(np.int32)

    def _block(self, token_RS: Int32, length_R: Int32, separator_R: Int32) -> RowBlock:
        place_S = np.arange(self.sequence_length, dtype=np.int32)
        is_real_RS = place_S < length_R[:, None]
        starts_RS = (token_RS == self._cls_id) & is_real_RS
        piece_RS = np.cumsum(starts_RS, axis=1, dtype=np.int32)
        start_RS = np.maximum.accumulate(np.where(starts_RS, place_S, 0), axis=1)
        last_RS = place_S > separator_R[:, None]
        # The second segment ends where the piece of the separator ends.
        ends_R = np.take_along_axis(
            piece_RS, np.minimum(separator_R, self.sequence_length - 1)[:, None].astype(np.int64), axis=1
        )
        segment_RS = last_RS & is_real_RS & (piece_RS == ends_R)
        if self._attend_across_documents:
            piece_RS, start_RS = np.ones_like(piece_RS), np.zeros_like(start_RS)
        return RowBlock(
            token_ids_RS=token_RS.astype(np.int64),
            piece_RS=piece_RS * is_real_RS,
            position_RS=((place_S - start_RS) * is_real_RS).astype(np.int64),
            segment_RS=segment_RS.astype(np.int64),
        )


def _with_separators(token_RS: Int32, separator_R: Int32, sep_id: int) -> Int32:
    """Insert a [SEP] before the place `separator_R` of each row; S inserts none. The last place is free."""
    place_S = np.arange(token_RS.shape[1], dtype=np.int32)
    from_RS = place_S - (place_S > separator_R[:, None])
    inserted_RS: Int32 = np.take_along_axis(token_RS, from_RS.astype(np.int64), axis=1)
    rows = np.nonzero(separator_R < token_RS.shape[1])[0]
    inserted_RS[rows, separator_R[rows]] = sep_id
    return inserted_RS
