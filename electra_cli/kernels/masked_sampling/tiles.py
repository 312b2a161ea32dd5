"""Logits, weights and sample of one tile of rows, chunk of ids by chunk of ids, which stays in cache.

Letters: M masked positions of the whole batch, R rows of a tile, D width, V ids that are not padding,
U the same rounded up to whole blocks, C ids of a chunk, N blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.loops import Loops
from electra_cli.kernels.masked_sampling.reference import (
    BLOCK,
    NOT_FORBIDDEN,
    choose_block,
    choose_in_block,
)

TILE_NUMBERS = 2**21
"""Numbers of a tile for a small vocabulary, which then has more rows: 8 MB of float32."""

TILE_ROWS = 128
"""A tile has at least so many rows, or the matrix products become slow."""

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
    def num_ids(self) -> int:
        return self.table_VD.shape[0]

    @property
    def num_blocks(self) -> int:
        return -(-self.num_ids // BLOCK)

    @property
    def tile_rows(self) -> int:
        """Rows of a tile; 128 for a vocabulary of 30,522, more for a small one."""
        return max(TILE_ROWS, TILE_NUMBERS // (self.num_blocks * BLOCK) // TILE_ROWS * TILE_ROWS)

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
    weight_M: Tensor
    """In the work precision."""
    uniform_M: Tensor
    forbidden_M: Tensor | None

    def __len__(self) -> int:
        return self.hidden_MD.shape[0]

    def __getitem__(self, part: slice) -> "Rows":
        return Rows(
            hidden_MD=self.hidden_MD[part],
            target_M=self.target_M[part],
            weight_M=self.weight_M[part],
            uniform_M=self.uniform_M[part],
            forbidden_M=None if self.forbidden_M is None else self.forbidden_M[part],
        )


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What one tile yields; the tile's memory is used again for the next one."""

    loss_R: Tensor
    """float64"""
    sampled_R: Tensor
    tile_RU: Tensor
    """exp(logit - largest), 0 at the forbidden id."""
    scale_R: Tensor
    """softmax = scale · tile."""
    forbidden_share_R: Tensor
    """softmax at the forbidden id, 0 in a row that has none."""


def largest_magnitude(tensor: Tensor) -> float:
    """max |x|, NaN if there is one; reads the tensor once and makes no copy."""
    low, high = torch.aminmax(tensor)
    return torch.maximum(low.abs(), high.abs()).item()


class Workspace:
    """Memory for one tile, used again for every tile of a call, and the passes that work on it."""

    def __init__(self, product: Product, num_rows: int, loops: Loops) -> None:
        tile_rows, columns = min(product.tile_rows, num_rows), product.num_blocks * BLOCK
        self.tile_RU = torch.empty(tile_rows, columns, dtype=product.bias_V.dtype)
        self.block_sum_RN = torch.empty(tile_rows, product.num_blocks, dtype=torch.float64)
        self.loops = loops


def compute_logits(product: Product, hidden_RD: Tensor, space: Workspace) -> tuple[Tensor, Tensor]:
    """Logits of a tile of rows and the largest of each; the columns beyond the last id are -inf."""
    tile_RU = space.tile_RU[: hidden_RD.shape[0]]
    tile_RU[:, product.num_ids :] = -torch.inf
    largest_R = torch.full((len(tile_RU),), -torch.inf, dtype=tile_RU.dtype)
    is_narrow = product.table_VD.dtype != tile_RU.dtype
    for part in product.chunks(product.num_ids):
        table_DC, logits_RC = product.table_VD[part].T, tile_RU[:, part]
        product_RC = torch.mm(hidden_RD, table_DC, out=None if is_narrow else logits_RC)
        space.loops.add_bias(product_RC, product.bias_V[part], logits_RC, largest_R)
    return tile_RU, largest_R


def weigh_tile(
    product: Product,
    tile_RU: Tensor,
    largest_R: Tensor,
    temperature: float,
    space: Workspace,
    *,
    keep: bool = True,
) -> Tensor:
    """Sums of exp((logit - largest) / temperature) over blocks, float64 [R, N]; with `keep` in the tile too.

    The sums are overwritten by the next call.
    """
    block_sum_RN = space.block_sum_RN[: tile_RU.shape[0]]
    for part in product.chunks(tile_RU.shape[1]):
        blocks = slice(part.start // BLOCK, part.stop // BLOCK)
        space.loops.weigh(tile_RU[:, part], largest_R, temperature, block_sum_RN[:, blocks], keep=keep)
    return block_sum_RN


def sample_tile(
    product: Product, rows: Rows, temperature: float, space: Workspace, *, is_sure: bool
) -> Drawn:
    """Loss and sample of a tile of rows, in the order of the definition."""
    tile_RU, largest_R = compute_logits(product, rows.hidden_MD, space)
    logits_RV = tile_RU[:, : product.num_ids]
    blank_R = torch.zeros(len(rows), dtype=torch.float64)
    if not is_sure:
        is_lost_R = ~logits_RV.isfinite().all(1)
        blank_R.masked_fill_(is_lost_R, torch.nan)
        logits_RV.masked_fill_(is_lost_R[:, None], 0.0)
        largest_R.masked_fill_(is_lost_R, 0.0)
    target_R = logits_RV.gather(1, rows.target_M[:, None]).squeeze(1).double()
    forbidden_R = take_out_forbidden(logits_RV, largest_R, rows.forbidden_M)

    block_sum_RN = weigh_tile(product, tile_RU, largest_R, temperature, space, keep=temperature == 1)
    block_R, rest_R = choose_block(block_sum_RN, rows.uniform_M)
    column_RK = block_R[:, None] * BLOCK + torch.arange(BLOCK)
    weight_RK = tile_RU.gather(1, column_RK)
    if temperature != 1:
        weight_RK.sub_(largest_R[:, None]).div_(temperature).exp_()
        block_sum_RN = weigh_tile(product, tile_RU, largest_R, 1.0, space)
    total_R = block_sum_RN.sum(1)

    # Relative to the largest logit, so that nothing is lost when logits are huge.
    beyond_R = forbidden_R - largest_R.double()
    excess_R = torch.logaddexp(total_R.log(), beyond_R) + blank_R
    work = tile_RU.dtype
    return Drawn(
        loss_R=largest_R.double() - target_R + excess_R,
        sampled_R=block_R * BLOCK + choose_in_block(weight_RK, rest_R),
        tile_RU=tile_RU,
        scale_R=(-excess_R).exp().to(work),
        forbidden_share_R=(beyond_R - excess_R).exp().to(work),
    )


def take_out_forbidden(logits_RV: Tensor, largest_R: Tensor, forbidden_R: Tensor | None) -> Tensor:
    """Put -inf at the forbidden id of each row; returns what stood there as float64, -inf where none is.

    `largest_R` becomes the largest of what is left.
    """
    if forbidden_R is None:
        return torch.full((logits_RV.shape[0],), -torch.inf, dtype=torch.float64)
    is_forbidden_R1 = (forbidden_R != NOT_FORBIDDEN)[:, None]
    column_R1 = forbidden_R.clamp(min=0)[:, None]
    logit_R1 = logits_RV.gather(1, column_R1)
    logits_RV.scatter_(1, column_R1, logit_R1.masked_fill(is_forbidden_R1, -torch.inf))
    was_largest_R = (is_forbidden_R1 & (logit_R1 >= largest_R[:, None])).squeeze(1).nonzero().squeeze(1)
    largest_R[was_largest_R] = logits_RV[was_largest_R].amax(1)
    return logit_R1.double().masked_fill(~is_forbidden_R1, -torch.inf).squeeze(1)
