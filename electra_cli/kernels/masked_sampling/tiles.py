"""The layer to the vocabulary, and how a call is cut into tiles of rows and chunks of ids.

Letters: M masked positions of the whole batch, D width, V ids that are not padding.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.reference import BLOCK

TILE_NUMBERS = 2**21
"""Numbers of a tile for a small vocabulary, which then has more rows: 8 MB of float32."""

TILE_ROWS = 128
"""A tile has at least so many rows, or the matrix products become slow; twice as many of half precision."""

CHUNK_NUMBERS = 2**20
"""Numbers of a chunk: 4 MB of float32, a share of the last-level cache."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """The linear layer to the vocabulary, in the precision of its products."""

    table_VD: Tensor
    bias_V: Tensor
    """In the work precision: float32, or float64 for float64 products."""
    largest_table: float
    largest_bias: float

    @classmethod
    def prepare(cls, table_VD: Tensor, bias_V: Tensor, num_padding_ids: int, dtype: torch.dtype) -> "Product":
        """Drop the padding rows and convert; without a conversion nothing is copied."""
        num_ids = table_VD.shape[0] - num_padding_ids
        table_VD = table_VD.detach()[:num_ids].to(dtype)
        bias_V = bias_V.detach()[:num_ids].to(torch.promote_types(dtype, torch.float32))
        return cls(
            table_VD=table_VD,
            bias_V=bias_V,
            largest_table=largest_magnitude(table_VD),
            largest_bias=largest_magnitude(bias_V),
        )

    @property
    def work(self) -> torch.dtype:
        """The precision of everything but the products."""
        return self.bias_V.dtype

    @property
    def num_ids(self) -> int:
        return self.table_VD.shape[0]

    @property
    def num_blocks(self) -> int:
        return -(-self.num_ids // BLOCK)

    @property
    def tile_rows(self) -> int:
        """Rows of a tile; for a vocabulary of 30,522 the fewest, more for a small one."""
        least = TILE_ROWS * (2 if self.table_VD.element_size() < self.bias_V.element_size() else 1)
        return max(least, TILE_NUMBERS // (self.num_blocks * BLOCK) // TILE_ROWS * TILE_ROWS)

    @property
    def chunk_ids(self) -> int:
        """Ids of a chunk: whole blocks."""
        return max(1, CHUNK_NUMBERS // self.tile_rows // BLOCK) * BLOCK

    def row_tiles(self, num_rows: int) -> Iterator[slice]:
        """The tiles of a call."""
        for start in range(0, num_rows, self.tile_rows):
            yield slice(start, min(start + self.tile_rows, num_rows))

    def chunks(self, num_ids: int) -> Iterator[slice]:
        """The chunks of the first `num_ids` columns of a tile."""
        for start in range(0, num_ids, self.chunk_ids):
            yield slice(start, min(start + self.chunk_ids, num_ids))

    def is_surely_finite(self, hidden_MD: Tensor) -> bool:
        """Whether no logit can overflow: |logit| ≤ ‖hidden‖₁ · max |table| + max |bias|.

        Half the range is left for rounding. NaN compares false, so it is not sure either.
        """
        widest = hidden_MD.to(torch.float64).abs().sum(1).amax().item() * self.largest_table
        work = torch.finfo(self.bias_V.dtype).max
        return widest < torch.finfo(self.table_VD.dtype).max / 2 and widest + self.largest_bias < work / 2


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What there is one of a row; a slice of it is a tile."""

    hidden_MD: Tensor
    """In the precision of the products."""
    target_M: Tensor
    uniform_M: Tensor | None
    """Without it nothing is drawn."""
    forbidden_M: Tensor | None

    def __len__(self) -> int:
        return self.hidden_MD.shape[0]

    def __getitem__(self, part: slice) -> "Rows":
        return Rows(
            hidden_MD=self.hidden_MD[part],
            target_M=self.target_M[part],
            uniform_M=None if self.uniform_M is None else self.uniform_M[part],
            forbidden_M=None if self.forbidden_M is None else self.forbidden_M[part],
        )


def largest_magnitude(tensor: Tensor) -> float:
    """max |x|, NaN if there is one; reads the tensor once and makes no copy."""
    low, high = torch.aminmax(tensor)
    return torch.maximum(low.abs(), high.abs()).item()
