"""The stream of batches: the same samples whatever the processes, errors that reach the caller."""

import threading
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.data.batches import Batch, BatchStream, heldout_batches
from electra_cli.data.order import SampleOrder
from electra_cli.data.rows import RowBlock, Rows
from electra_cli.distributed import Ranks
from electra_cli.errors import InputError


class Stream(NamedTuple):
    """Stands in for a shard: rows need no more of one."""

    stream: np.ndarray
    source: str = ""


def some_rows(num_parts: int = 60) -> Rows:
    parts = [[2, *(5 + i % 90 for i in range(n)), 3] for n in range(1, num_parts)]
    return Rows(
        [Stream(np.array([t for part in parts for t in part], dtype=np.uint16))],  # type: ignore[list-item]
        sequence_length=32,
        padding_id=0,
        cls_id=2,
        sep_id=3,
        segment_pairs=True,
        attend_across_documents=False,
        seed=0,
    )


def stream(rows: Rows, *, first: int = 0, size: int = 12, ranks: Ranks | None = None) -> BatchStream:
    return BatchStream(rows, SampleOrder(0, rows), batch_size=size, first_sample=first, ranks=ranks)


def take(batches: BatchStream, number: int) -> list[Batch]:
    try:
        return [next(batches) for _ in range(number)]
    finally:
        batches.close()


def test_a_batch_holds_the_rows_of_its_samples() -> None:
    rows = some_rows()
    batch = take(stream(rows, first=24), 1)[0]
    assert batch.sample_B.tolist() == list(range(24, 36)) and not batch.is_heldout
    block = rows.read(SampleOrder(0, rows).rows_of(np.arange(24, 36)), np.arange(24, 36))
    for tensor, array, dtype in (
        (batch.token_ids_BS, block.token_ids_RS, torch.int64),
        (batch.piece_BS, block.piece_RS, torch.int32),
        (batch.position_BS, block.position_RS, torch.int64),
        (batch.segment_BS, block.segment_RS, torch.int64),
    ):
        assert tensor.dtype == dtype and tensor.shape == (12, 32)
        assert (tensor.numpy() == array).all()


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(0, 300), st.sampled_from([1, 2, 3, 6]), st.integers(1, 2))
def test_P01_P02_ranks_share_each_batch_in_contiguous_slices(first: int, world: int, number: int) -> None:
    rows = some_rows(60)
    alone = take(stream(rows, first=first), number)
    together = [take(stream(rows, first=first, ranks=Ranks(r, world)), number) for r in range(world)]
    for n, batch in enumerate(alone):
        dealt = [share[n] for share in together]
        assert torch.equal(torch.cat([b.token_ids_BS for b in dealt]), batch.token_ids_BS)
        assert torch.equal(torch.cat([b.sample_B for b in dealt]), batch.sample_B)


def test_case_B17_K21_packed_rows_resume_exactly_whatever_the_processes() -> None:
    rows = some_rows()
    whole = [batch.sample_B.tolist() for batch in take(stream(rows), 12)]
    interrupted = stream(rows)
    for _ in range(7):
        next(interrupted)
    done = interrupted.samples_consumed
    interrupted.close()
    assert done == 84
    for world in (1, 2, 4):
        shares = [take(stream(rows, first=done, ranks=Ranks(r, world)), 5) for r in range(world)]
        rest = [torch.cat([share[n].sample_B for share in shares]).tolist() for n in range(5)]
        assert rest == whole[7:]


def test_the_state_counts_batches_given_out_not_batches_made_ahead() -> None:
    batches = stream(some_rows())
    assert batches.samples_consumed == 0
    next(batches)
    assert batches.samples_consumed == 12
    batches.close()


def test_an_uneven_share_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError, match="batch_size = 12 is no multiple of the 5 processes") as caught:
        stream(some_rows(), ranks=Ranks(0, 5))
    assert caught.value.hint == "15 would fit"


def test_an_error_in_the_thread_reaches_the_caller() -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            return getattr(some_rows(), name)

        def read(self, row_R: np.ndarray, sample_R: np.ndarray) -> RowBlock:
            raise OSError("the disk is gone")

    rows = some_rows()
    batches = BatchStream(
        Broken(),  # type: ignore[arg-type]
        SampleOrder(0, rows),
        batch_size=4,
        first_sample=0,
    )
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    batches.close()


def test_closing_ends_the_thread_and_the_stream() -> None:
    batches = stream(some_rows())
    next(batches)
    assert any(thread.name.startswith("batches") for thread in threading.enumerate())
    batches.close()
    assert not any(thread.name.startswith("batches") for thread in threading.enumerate())
    with pytest.raises(StopIteration):
        next(batches)
    batches.close()


def test_waiting_is_measured() -> None:
    batches = stream(some_rows())
    next(batches)
    assert 0 < batches.waited_seconds < 30
    batches.close()


def test_heldout_rows_are_the_same_at_every_call() -> None:
    rows = some_rows()
    first, again = (list(heldout_batches(rows, num_rows=20, batch_size=8)) for _ in range(2))
    assert [len(batch.sample_B) for batch in first] == [8, 8, 4]
    assert all(batch.is_heldout for batch in first)
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a.token_ids_BS, b.token_ids_BS) and torch.equal(a.sample_B, b.sample_B)
    everything = torch.cat([batch.sample_B for batch in first])
    assert len(everything.unique()) == 20 and int(everything[-1]) > rows.num_rows * 0.9


def test_fewer_heldout_rows_than_asked_are_all_taken_once() -> None:
    rows = some_rows(6)
    samples = torch.cat([b.sample_B for b in heldout_batches(rows, num_rows=1000, batch_size=64)])
    assert samples.tolist() == list(range(rows.num_rows))
