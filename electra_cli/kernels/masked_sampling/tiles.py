"""Logits, weights and gradients of one tile of rows, chunk of ids by chunk of ids, which stays in cache.

Letters: M masked positions of the whole batch, R rows of a tile, D width, V ids that are not padding,
U the same rounded up to whole blocks, C ids of a chunk, N blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.reference import (
    BLOCK,
    NOT_FORBIDDEN,
    choose_block,
    choose_in_block,
)

TILE_NUMBERS = 2**21
"""Numbers of a tile: 8 MB of float32, a share of the last-level cache."""

TILE_ROWS = 64
"""A tile has at least so many rows, or the matrix products become slow."""

CHUNK_NUMBERS = 2**18
"""Numbers of a chunk: 1 MB of float32, what a core's second-level cache holds."""


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
        """Rows of a tile; 64 for a vocabulary of 30,522, more for a small one."""
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
    """Memory for one tile, used again for every tile of a call."""

    def __init__(self, product: Product, num_rows: int) -> None:
        tile_rows, columns = min(product.tile_rows, num_rows), product.num_blocks * BLOCK
        self.tile_RU = torch.empty(tile_rows, columns, dtype=product.bias_V.dtype)
        self.wide = torch.empty(tile_rows * min(product.chunk_ids, columns), dtype=torch.float64)


def compute_logits(product: Product, hidden_RD: Tensor, space: Workspace) -> Tensor:
    """Logits of a tile of rows; the columns beyond the last id are -inf."""
    tile_RU = space.tile_RU[: hidden_RD.shape[0]]
    tile_RU[:, product.num_ids :] = -torch.inf
    is_narrow = product.table_VD.dtype != tile_RU.dtype
    for part in product.chunks(product.num_ids):
        table_DC, logits_RC = product.table_VD[part].T, tile_RU[:, part]
        if is_narrow:
            torch.add(torch.mm(hidden_RD, table_DC), product.bias_V[part], out=logits_RC)
        else:
            torch.addmm(product.bias_V[part], hidden_RD, table_DC, out=logits_RC)
    return tile_RU


def exponentiate(product: Product, tile_RU: Tensor, largest_R: Tensor) -> None:
    """exp(logit - largest), in place."""
    for part in product.chunks(tile_RU.shape[1]):
        tile_RU[:, part].sub_(largest_R[:, None]).exp_()


def weigh_blocks(
    product: Product, tile_RU: Tensor, largest_R: Tensor, temperature: float, space: Workspace
) -> Tensor:
    """Sums of exp((logit - largest) / temperature) over blocks, in float64.

    At temperature 1 the tile is exponentiated on the way; else it still holds logits afterwards.
    """
    num_rows = tile_RU.shape[0]
    block_sum_RN = torch.empty(num_rows, product.num_blocks, dtype=torch.float64)
    for part in product.chunks(tile_RU.shape[1]):
        weight_RC = tile_RU[:, part]
        if temperature == 1:
            weight_RC.sub_(largest_R[:, None]).exp_()
        else:
            weight_RC = weight_RC.sub(largest_R[:, None]).div_(temperature).exp_()
        # A float64 sum of float32 would copy the whole input by itself; this copy stays in cache.
        wide_RC = space.wide[: weight_RC.numel()].view(weight_RC.shape).copy_(weight_RC)
        blocks = slice(part.start // BLOCK, part.stop // BLOCK)
        block_sum_RN[:, blocks] = wide_RC.view(num_rows, -1, BLOCK).sum(2)
    return block_sum_RN


def sample_tile(
    product: Product, rows: Rows, temperature: float, space: Workspace, *, is_sure: bool
) -> Drawn:
    """Loss and sample of a tile of rows, in the order of the definition."""
    tile_RU = compute_logits(product, rows.hidden_MD, space)
    logits_RV = tile_RU[:, : product.num_ids]
    blank_R = torch.zeros(len(rows), dtype=torch.float64)
    if not is_sure:
        is_lost_R = ~logits_RV.isfinite().all(1)
        blank_R.masked_fill_(is_lost_R, torch.nan)
        logits_RV.masked_fill_(is_lost_R[:, None], 0.0)
    target_R = logits_RV.gather(1, rows.target_M[:, None]).squeeze(1).double()
    forbidden_R = take_out_forbidden(logits_RV, rows.forbidden_M)

    largest_R = logits_RV.amax(1)
    block_sum_RN = weigh_blocks(product, tile_RU, largest_R, temperature, space)
    block_R, rest_R = choose_block(block_sum_RN, rows.uniform_M)
    column_RK = block_R[:, None] * BLOCK + torch.arange(BLOCK)
    weight_RK = tile_RU.gather(1, column_RK)
    if temperature == 1:
        total_R = block_sum_RN.sum(1)
    else:
        weight_RK.sub_(largest_R[:, None]).div_(temperature).exp_()
        exponentiate(product, tile_RU, largest_R)
        total_R = tile_RU.sum(1).double()

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


def take_out_forbidden(logits_RV: Tensor, forbidden_R: Tensor | None) -> Tensor:
    """Put -inf at the forbidden id of each row; returns what stood there as float64, -inf where none is."""
    if forbidden_R is None:
        return torch.full((logits_RV.shape[0],), -torch.inf, dtype=torch.float64)
    is_forbidden_R1 = (forbidden_R != NOT_FORBIDDEN)[:, None]
    column_R1 = forbidden_R.clamp(min=0)[:, None]
    logit_R1 = logits_RV.gather(1, column_R1)
    logits_RV.scatter_(1, column_R1, logit_R1.masked_fill(is_forbidden_R1, -torch.inf))
    return logit_R1.double().masked_fill(~is_forbidden_R1, -torch.inf).squeeze(1)


class Gradients:
    """Gradients of the wanted inputs, added up over tiles in the work precision.

    With p = softmax: dL/dlogit_v = scale · e_v, where e is the exponentiated tile and scale = weight / Σ e;
    what a row has at single ids (-weight at the target) is added by itself, in float32 whatever the products.
    """

    def __init__(
        self, product: Product, num_rows: int, table_rows: int, *, hidden: bool, table: bool
    ) -> None:
        self.product = product
        width = product.table_VD.shape[1]
        work = product.bias_V.dtype
        self.hidden_MD = torch.zeros(num_rows, width, dtype=work) if hidden else None
        self.table_VD = torch.zeros(table_rows, width, dtype=work) if table else None
        self.bias_V = torch.zeros(table_rows, dtype=work) if table else None

    @property
    def is_wanted(self) -> bool:
        return self.hidden_MD is not None or self.table_VD is not None

    def add_tile(self, rows: slice, hidden_RD: Tensor, tile_RU: Tensor, scale_R: Tensor) -> None:
        """The part of softmax, for the rows of one tile."""
        dtype = self.product.table_VD.dtype
        scaled_RD = (hidden_RD.to(scale_R.dtype) * scale_R[:, None]).to(dtype)
        for part in self.product.chunks(self.product.num_ids):
            weight_RC = tile_RU[:, part]
            product_RC = weight_RC.to(dtype)
            if self.hidden_MD is not None:
                add_product(self.hidden_MD[rows], product_RC, self.product.table_VD[part])
            if self.table_VD is not None and self.bias_V is not None:
                add_product(self.table_VD[part], product_RC.T, scaled_RD)
                self.bias_V[part].addmv_(weight_RC.T, scale_R)
        if self.hidden_MD is not None:
            self.hidden_MD[rows] *= scale_R[:, None]

    def add_single(self, rows: slice, hidden_RD: Tensor, id_R: Tensor, value_R: Tensor) -> None:
        """dL/dlogit of one id in each row of a tile."""
        value_R1 = value_R[:, None]
        if self.hidden_MD is not None:
            self.hidden_MD[rows].addcmul_(self.product.table_VD[id_R].to(value_R.dtype), value_R1)
        if self.table_VD is not None and self.bias_V is not None:
            self.table_VD.index_add_(0, id_R, hidden_RD.to(value_R.dtype) * value_R1)
            self.bias_V.index_add_(0, id_R, value_R)


def add_product(sum_XY: Tensor, left_XZ: Tensor, right_ZY: Tensor) -> None:
    """sum += left @ right; a product of half precision is added in the precision of the sum."""
    if left_XZ.dtype == sum_XY.dtype:
        sum_XY.addmm_(left_XZ, right_ZY)
    else:
        sum_XY.add_(torch.mm(left_XZ, right_ZY))
