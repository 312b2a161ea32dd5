"""The order of a run's samples: which row is sample 0, 1, 2, …, as a function without state.

Sample s is row π(s mod N) of epoch s div N, where π is a keyed permutation of the N rows, another in every
epoch. With several sources each has epochs of its own, and of every 4,096 samples each source gets a fixed
number, in keyed order. A run resumes by asking for the next sample number.
"""

# R samples asked for, C places of a cycle

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from electra_cli import keyed

if TYPE_CHECKING:
    from electra_cli.data.rows import Rows
    from electra_cli.settings import Corpus

Int64 = NDArray[np.int64]

CYCLE = 4096
"""Samples in which every source gets its exact share."""


def source_weights(corpus: "Corpus", sizes: Mapping[str, int]) -> dict[str, float]:
    """Weight · size^`corpus.source_exponent` of each source in `sizes`; one without a weight has 1.

    With an exponent below 1 small sources are seen more often than large ones (0.3 for the languages of mT5).
    """
    weights = {source.name: source.weight for source in corpus.source}
    return {name: weights.get(name, 1.0) * size**corpus.source_exponent for name, size in sizes.items()}


def shares(weights: list[float], total: int = CYCLE) -> Int64:
    """Whole numbers proportional to the weights that add up to `total`, by largest remainder.

    Of equal remainders the earlier wins. A source whose share rounds to nothing still gets one sample.
    """
    exact = np.array(weights, dtype=np.float64) / sum(weights) * total
    counts = np.floor(exact).astype(np.int64)
    remainder_order = np.argsort(counts - exact, kind="stable")
    counts[remainder_order[: total - int(counts.sum())]] += 1
    for source in np.nonzero(counts == 0)[0]:
        counts[np.argmax(counts)] -= 1
        counts[source] = 1
    return counts


class SampleOrder:
    """The row of each sample of a run."""

    def __init__(self, seed: int, rows: "Rows", weights: Mapping[str, float] | None = None) -> None:
        """`weights` by name of source; a source that it does not name has weight 1."""
        if rows.num_rows < 1 or any(count < 1 for _, count in rows.sources):
            raise ValueError("every source needs at least one row")
        self._seed = seed
        self._counts = [count for _, count in rows.sources]
        self._first_row = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._counts)])
        self._shares = shares([(weights or {}).get(name, 1.0) for name, _ in rows.sources])
        self._cycle: tuple[int, Int64, Int64] | None = None
        self.num_rows = rows.num_rows

    def epoch_of(self, sample: int) -> int:
        """Whole passes over the rows before this sample; with several sources, on average over them."""
        return sample // self.num_rows

    def rows_of(self, sample_R: Int64) -> Int64:
        """Row number of each sample; samples are non-negative, in any order."""
        if len(self._counts) == 1:
            return self._rows_of_source(0, sample_R)
        row_R = np.empty_like(sample_R)
        for cycle in np.unique(sample_R // CYCLE).tolist():
            asked = np.nonzero(sample_R // CYCLE == cycle)[0]
            source_C, rank_C = self._places(cycle)
            place = sample_R[asked] % CYCLE
            for source in range(len(self._counts)):
                mine = asked[source_C[place] == source]
                number = cycle * int(self._shares[source]) + rank_C[sample_R[mine] % CYCLE]
                row_R[mine] = self._first_row[source] + self._rows_of_source(source, number)
        return row_R

    def _rows_of_source(self, source: int, number_R: Int64) -> Int64:
        """Row inside its source of the source's samples 0, 1, 2, …"""
        size = self._counts[source]
        row_R = np.empty_like(number_R)
        epoch_R = number_R // size
        for epoch in np.unique(epoch_R).tolist():
            asked = epoch_R == epoch
            key = keyed.key(self._seed, f"order of source {source}, epoch {epoch}")
            row_R[asked] = keyed.permuted(number_R[asked] % size, size, key)
        return row_R

    def _places(self, cycle: int) -> tuple[Int64, Int64]:
        """Source of each place of a cycle, and how many places of that source come before it."""
        if self._cycle is None or self._cycle[0] != cycle:
            ticket_C = keyed.permuted(
                np.arange(CYCLE, dtype=np.int64), CYCLE, keyed.key(self._seed, f"mix of cycle {cycle}")
            )
            source_C = np.searchsorted(np.cumsum(self._shares), ticket_C, side="right").astype(np.int64)
            rank_C = np.empty(CYCLE, dtype=np.int64)
            for source, share in enumerate(self._shares.tolist()):
                rank_C[source_C == source] = np.arange(share)
            self._cycle = (cycle, source_C, rank_C)
        return self._cycle[1], self._cycle[2]
