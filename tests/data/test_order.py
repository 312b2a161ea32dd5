"""The order of samples: a permutation in every epoch, exact shares of the sources, resumable anywhere."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.data.order import CYCLE, SampleOrder, shares, source_weights
from electra_cli.settings import Corpus

properties = settings(max_examples=100, derandomize=True, deadline=None)


class Rows(NamedTuple):
    """Stands in for rows: the order needs no more of them."""

    sources: tuple[tuple[str, int], ...]

    @property
    def num_rows(self) -> int:
        return sum(count for _, count in self.sources)


def order_of(*counts: int, seed: int = 0, weights: dict[str, float] | None = None) -> SampleOrder:
    rows = Rows(tuple((f"source{i}", count) for i, count in enumerate(counts)))
    return SampleOrder(seed, rows, weights)  # type: ignore[arg-type]


def rows_between(order: SampleOrder, start: int, stop: int) -> list[int]:
    return order.rows_of(np.arange(start, stop, dtype=np.int64)).tolist()


@properties
@given(st.integers(1, 700), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_P01_every_epoch_is_a_permutation_of_all_rows(size: int, seed: int, epoch: int) -> None:
    order = order_of(size, seed=seed)
    assert sorted(rows_between(order, epoch * size, (epoch + 1) * size)) == list(range(size))
    assert order.epoch_of(epoch * size) == order.epoch_of((epoch + 1) * size - 1) == epoch


@properties
@given(st.integers(10, 300), st.integers(0, 300), st.integers(1, 20), st.integers(1, 4))
def test_P01_P02_any_prefix_and_its_resumption_make_the_whole(
    size: int, position: int, length: int, world: int
) -> None:
    whole = rows_between(order_of(size), 0, position + length * world)
    assert whole[position:] == rows_between(order_of(size), position, position + length * world)
    dealt = [
        rows_between(order_of(size), position + rank * length, position + (rank + 1) * length)
        for rank in range(world)
    ]
    assert [row for share in dealt for row in share] == whole[position:]


def test_case_B15_all_twelve_suffixes_are_exact() -> None:
    whole = rows_between(order_of(12), 0, 12)
    assert [rows_between(order_of(12), done, 12) for done in range(12)] == [whole[n:] for n in range(12)]


@pytest.mark.parametrize("done", [511, 512, 513, 1024])
def test_case_B16_resuming_at_an_epoch_edge_is_exact(done: int) -> None:
    assert rows_between(order_of(512), done, 2048) == rows_between(order_of(512), 0, 2048)[done:]


def test_case_B14_the_order_without_a_chosen_seed_is_the_same_everywhere() -> None:
    assert rows_between(order_of(1000), 0, 10) == rows_between(order_of(1000), 0, 10)
    assert rows_between(order_of(1000), 0, 10) != rows_between(order_of(1000, seed=1), 0, 10)


def test_two_epochs_differ() -> None:
    order = order_of(1000)
    same = np.array(rows_between(order, 0, 1000)) == np.array(rows_between(order, 1000, 2000))
    # Two random permutations agree in one place on average.
    assert same.sum() < 8


def test_the_order_looks_random() -> None:
    first = np.array(rows_between(order_of(10_000), 0, 10_000))
    # Neighbouring samples are unrelated: the correlation of 10,000 pairs has a standard deviation of 0.01.
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.05


def test_a_far_sample_is_found_at_once() -> None:
    assert 0 <= rows_between(order_of(999), 10**15, 10**15 + 1)[0] < 999


@properties
@given(
    st.lists(st.integers(400, 9000), min_size=2, max_size=4),
    st.lists(st.floats(0.01, 100), min_size=4, max_size=4),
    st.integers(0, 3),
)
def test_of_every_cycle_each_source_gets_its_share(
    counts: list[int], weights: list[float], cycle: int
) -> None:
    named = {f"source{i}": weight for i, weight in enumerate(weights)}
    order = order_of(*counts, weights=named)
    rows = np.array(rows_between(order, cycle * CYCLE, (cycle + 1) * CYCLE))
    edges = np.concatenate([[0], np.cumsum(counts)])
    seen = [int(((rows >= low) & (rows < high)).sum()) for low, high in pairwise(edges)]
    expected = shares(weights[: len(counts)])
    assert seen == expected.tolist() and sum(seen) == CYCLE
    exact = np.array(weights[: len(counts)]) / sum(weights[: len(counts)]) * CYCLE
    # A share that rounds to nothing is raised to one sample, at the cost of the largest.
    assert (np.abs(expected - exact) <= len(counts)).all() and expected.min() >= 1


def test_each_source_runs_through_all_its_rows_before_any_comes_again() -> None:
    order = order_of(500, 3000, weights={"source0": 3, "source1": 1})
    rows = np.array(rows_between(order, 0, 3 * CYCLE))
    first = rows[rows < 500]
    assert sorted(first[:500].tolist()) == sorted(first[500:1000].tolist()) == list(range(500))
    second = rows[rows >= 500]
    assert sorted(second[:3000].tolist()) == list(range(500, 3500))


def test_sources_are_mixed_and_resume_inside_a_cycle() -> None:
    order = order_of(700, 900)
    whole = rows_between(order, 0, 6000)
    is_second = np.array(whole) >= 700
    # Runs of one source of a fair coin are short; 40 in a row would be a block.
    longest = max(len(run) for run in "".join(map(str, is_second.astype(int))).split("0"))
    assert longest < 40
    for done in (1, 4095, 4096, 4097, 5000):
        assert rows_between(order_of(700, 900), done, 6000) == whole[done:]
    asked = np.array([5000, 3, 4096, 4095, 3])
    assert order.rows_of(asked).tolist() == [whole[s] for s in asked]


def test_shares_follow_the_largest_remainder() -> None:
    assert shares([1, 1, 1]).tolist() == [1366, 1365, 1365]
    assert shares([1e9, 1.0]).tolist() == [4095, 1]


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        order_of(10, 0)


def test_weights_come_from_the_project_file() -> None:
    corpus = Corpus.model_validate({"source": [{"name": "a", "files": ["x"], "weight": 2.5}]})
    assert source_weights(corpus, {"a": 7, "b": 9}) == {"a": 2.5, "b": 1.0}


def test_an_exponent_brings_small_sources_nearer_to_large_ones() -> None:
    corpus = Corpus.model_validate(
        {
            "source_exponent": 0.3,
            "source": [{"name": "a", "files": ["x"]}, {"name": "b", "files": ["y"], "weight": 2.0}],
        }
    )
    weights = source_weights(corpus, {"a": 1000, "b": 10})
    # (1000 / 10)^0.3 = 3.981 in place of 100 times as much.
    assert weights["a"] / weights["b"] * 2.0 == pytest.approx(3.9811, rel=1e-4)
