"""Rows to batches: the tensors that every objective reads, made ahead of need in a thread."""

# B batch, S sequence, K slots for chosen positions of a row

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra_cli.data.drawn import DrawnSamples
from electra_cli.data.order import SampleOrder
from electra_cli.data.rows import Rows
from electra_cli.distributed import Ranks
from electra_cli.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of pieces, uncorrupted. A piece is one `[CLS] … [SEP]`; it attends only to itself."""

    token_ids_BS: Tensor
    """int64; the padding id on padding."""
    piece_BS: Tensor
    """int32; 0 on padding, 1, 2, … for the pieces of a row."""
    position_BS: Tensor
    """int64; starts at 0 in each piece, 0 on padding."""
    segment_BS: Tensor
    """int64; token type 0 or 1, 0 on padding."""
    sample_B: Tensor
    """int64; running number of each row in the run: the counter of every keyed choice."""
    drawn_BK: Tensor | None = None
    """int64; the ids that a frozen model drew beforehand for the slots of each row's chosen positions."""
    is_heldout: bool = False
    """Held-out rows have masks of their own, which never change."""


def _read_batch(
    rows: Rows,
    row_B: NDArray[np.int64],
    sample_B: NDArray[np.int64],
    drawn: DrawnSamples | None,
    is_heldout: bool,
) -> Batch:
    block = rows.read(row_B, sample_B)
    ids_BK = None
    if drawn is not None:
        ids_BK = drawn.heldout_ids_of(row_B) if is_heldout else drawn.ids_of(sample_B)
    return Batch(
        token_ids_BS=torch.from_numpy(block.token_ids_RS),
        piece_BS=torch.from_numpy(block.piece_RS),
        position_BS=torch.from_numpy(block.position_RS),
        segment_BS=torch.from_numpy(block.segment_RS),
        sample_B=torch.from_numpy(sample_B),
        drawn_BK=None if ids_BK is None else torch.from_numpy(ids_BK),
        is_heldout=is_heldout,
    )


def changed(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with `change` applied to each of its tensors."""
    return replace(
        batch,
        token_ids_BS=change(batch.token_ids_BS),
        piece_BS=change(batch.piece_BS),
        position_BS=change(batch.position_BS),
        segment_BS=change(batch.segment_BS),
        sample_B=change(batch.sample_B),
        drawn_BK=None if batch.drawn_BK is None else change(batch.drawn_BK),
    )


def joined(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches of one length, one below the other."""

    def stacked(tensors: Iterable[Tensor]) -> Tensor:
        return torch.cat(list(tensors))

    drawn = [batch.drawn_BK for batch in batches if batch.drawn_BK is not None]
    return replace(
        batches[0],
        token_ids_BS=stacked(batch.token_ids_BS for batch in batches),
        piece_BS=stacked(batch.piece_BS for batch in batches),
        position_BS=stacked(batch.position_BS for batch in batches),
        segment_BS=stacked(batch.segment_BS for batch in batches),
        sample_B=stacked(batch.sample_B for batch in batches),
        drawn_BK=stacked(drawn) if drawn else None,
    )


class BatchStream(Iterator[Batch]):
    """The batches of a run from any sample on, without end; the number of samples consumed is all its state.

    A thread builds a few batches ahead. An error there is raised by the `next` that would have got the batch.
    """

    _AHEAD = 4

    def __init__(
        self,
        rows: Rows,
        order: SampleOrder,
        *,
        batch_size: int,
        first_sample: int,
        ranks: Ranks | None = None,
        drawn: DrawnSamples | None = None,
        pin_memory: bool = False,
    ) -> None:
        """`batch_size` counts rows over all processes; this one gets a contiguous slice of each batch.

        `drawn` adds the ids that a frozen model drew beforehand.
        """
        ranks = ranks or Ranks()
        if batch_size % ranks.world_size:
            raise InputError(
                f"pretrain.batch_size = {batch_size} is no multiple of the {ranks.world_size} processes",
                hint=f"{-(-batch_size // ranks.world_size) * ranks.world_size} would fit",
                key="pretrain.batch_size",
            )
        self._rows, self._order, self._drawn = rows, order, drawn
        self._batch_size, self._pin_memory = batch_size, pin_memory
        slice_size = batch_size // ranks.world_size
        self._slice_S = np.arange(slice_size, dtype=np.int64) + ranks.rank * slice_size
        self._samples_consumed = self._next_sample = first_sample
        self._waited_seconds = 0.0
        self._ready: deque[Future[Batch]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._is_closed = False

    @property
    def samples_consumed(self) -> int:
        """Samples of the run up to the last batch given out, all processes together: the state to save."""
        return self._samples_consumed

    @property
    def waited_seconds(self) -> float:
        """Time that callers spent in `next` because the thread was not ahead of them."""
        return self._waited_seconds

    def __next__(self) -> Batch:
        if self._is_closed:
            raise StopIteration
        while len(self._ready) < self._AHEAD:
            self._ready.append(self._thread.submit(self._build, self._next_sample))
            self._next_sample += self._batch_size
        started = time.perf_counter()
        batch = self._ready.popleft().result()
        self._waited_seconds += time.perf_counter() - started
        self._samples_consumed += self._batch_size
        return batch

    def close(self) -> None:
        """End the thread; a batch that it is building is thrown away."""
        self._is_closed = True
        self._ready.clear()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _build(self, first_sample: int) -> Batch:
        sample_B = first_sample + self._slice_S
        batch = _read_batch(self._rows, self._order.rows_of(sample_B), sample_B, self._drawn, False)
        return changed(batch, Tensor.pin_memory) if self._pin_memory else batch


def heldout_batches(
    rows: Rows, *, num_rows: int, batch_size: int, drawn: DrawnSamples | None = None
) -> Iterator[Batch]:
    """At most `num_rows` held-out rows, evenly spread over all, in batches; the last may be smaller.

    The same rows in the same order at every call; a row's sample number is its row number.
    """
    taken = min(num_rows, rows.num_rows)
    row_R = np.arange(taken, dtype=np.int64) * rows.num_rows // max(1, taken)
    for start in range(0, taken, batch_size):
        row_B = row_R[start : start + batch_size]
        yield _read_batch(rows, row_B, row_B, drawn, True)
