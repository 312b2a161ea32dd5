"""What happens to the product of a tile that is no matrix product: here in plain torch, in `native` compiled.

Letters: R rows of a tile, V ids that are not padding, U the same rounded up to whole blocks, C ids of a
chunk, N blocks, K ids of a block.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.reference import (
    BLOCK,
    NOT_FORBIDDEN,
    choose_block,
    choose_in_block,
)
from electra_cli.kernels.masked_sampling.tiles import Product, Rows


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """What a tile yields; its memory is used again for the next one."""

    tile_RU: Tensor
    """With `keep`: exp(logit - largest), 0 at the forbidden id; in the work precision or the product's."""
    largest_R: Tensor
    """The largest logit that may be drawn, float64 like the three below."""
    total_R: Tensor
    """Σ exp(logit - largest) without the forbidden id; NaN where a logit is not finite."""
    target_R: Tensor
    """The logit of the target."""
    forbidden_R: Tensor
    """The logit of the forbidden id, -inf where none is."""
    sampled_R: Tensor | None
    """Where the rows have uniform numbers."""


class Passes(Protocol):
    """The work on the tiles of one call."""

    def weigh(self, rows: Rows, *, temperature: float = 1.0, keep: bool = True) -> Weighed:
        """Logits, weights, sums and samples of a tile of rows; `temperature` is that of the samples."""

    def add_columns(self, sum_C: Tensor, weight_RC: Tensor, scale_R: Tensor) -> None:
        """sum += weightᵀ · scale, of a chunk of a weighed tile."""


class TorchPasses:
    """The passes in plain torch, for any precision; chunk of ids by chunk of ids, which stays in cache."""

    def __init__(self, product: Product, hidden_MD: Tensor) -> None:
        """`hidden_MD`: the states of all rows, in the precision of the products."""
        self._product = product
        self._is_sure = len(hidden_MD) == 0 or product.is_surely_finite(hidden_MD)
        tile_rows, columns = min(product.tile_rows, len(hidden_MD)), product.num_blocks * BLOCK
        self._tile_RU = torch.empty(tile_rows, columns, dtype=product.work)
        self._block_sum_RN = torch.empty(tile_rows, product.num_blocks, dtype=torch.float64)
        self._wide = torch.empty(0, dtype=torch.float64)

    def weigh(self, rows: Rows, *, temperature: float = 1.0, keep: bool = True) -> Weighed:
        tile_RU, largest_R = self._logits(rows.hidden_MD)
        logits_RV = tile_RU[:, : self._product.num_ids]
        blank_R = torch.zeros(len(rows), dtype=torch.float64)
        if not self._is_sure:
            is_lost_R = ~logits_RV.isfinite().all(1)
            blank_R.masked_fill_(is_lost_R, torch.nan)
            logits_RV.masked_fill_(is_lost_R[:, None], 0.0)
            largest_R.masked_fill_(is_lost_R, 0.0)
        target_R = logits_RV.gather(1, rows.target_M[:, None]).squeeze(1).double()
        forbidden_R = _take_out_forbidden(logits_RV, largest_R, rows.forbidden_M)
        sampled_R = None
        if rows.uniform_M is not None:
            is_final = temperature == 1
            block_sum_RN = self._weights(tile_RU, largest_R, temperature, keep=is_final)
            block_R, rest_R = choose_block(block_sum_RN, rows.uniform_M)
            weight_RK = tile_RU.gather(1, block_R[:, None] * BLOCK + torch.arange(BLOCK))
            if not is_final:
                weight_RK.sub_(largest_R[:, None]).div_(temperature).exp_()
                block_sum_RN = self._weights(tile_RU, largest_R, 1.0, keep=keep)
            sampled_R = block_R * BLOCK + choose_in_block(weight_RK, rest_R)
        else:
            block_sum_RN = self._weights(tile_RU, largest_R, 1.0, keep=keep)
        return Weighed(
            tile_RU=tile_RU,
            largest_R=largest_R.double(),
            total_R=block_sum_RN.sum(1) + blank_R,
            target_R=target_R,
            forbidden_R=forbidden_R,
            sampled_R=sampled_R,
        )

    def add_columns(self, sum_C: Tensor, weight_RC: Tensor, scale_R: Tensor) -> None:
        sum_C.addmv_(weight_RC.T, scale_R)

    def _logits(self, hidden_RD: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of a tile of rows and the largest of each; the columns beyond the last id are -inf."""
        product = self._product
        tile_RU = self._tile_RU[: len(hidden_RD)]
        tile_RU[:, product.num_ids :] = -torch.inf
        largest_R = torch.full((len(tile_RU),), -torch.inf, dtype=tile_RU.dtype)
        is_narrow = product.table_VD.dtype != tile_RU.dtype
        for part in product.chunks(product.num_ids):
            table_DC, logits_RC = product.table_VD[part].T, tile_RU[:, part]
            product_RC = torch.mm(hidden_RD, table_DC, out=None if is_narrow else logits_RC)
            torch.add(product_RC, product.bias_V[part], out=logits_RC)
            torch.maximum(largest_R, logits_RC.amax(1), out=largest_R)
        return tile_RU, largest_R

    def _weights(self, tile_RU: Tensor, largest_R: Tensor, temperature: float, *, keep: bool) -> Tensor:
        """Sums of exp((logit - largest) / temperature) over blocks, [R, N]; with `keep` in the tile too.

        The sums are overwritten by the next call.
        """
        block_sum_RN = self._block_sum_RN[: len(tile_RU)]
        for part in self._product.chunks(tile_RU.shape[1]):
            logits_RC = tile_RU[:, part]
            weight_RC = logits_RC if keep else logits_RC.clone()
            weight_RC.sub_(largest_R[:, None])
            if temperature != 1:
                weight_RC.div_(temperature)
            weight_RC.exp_()
            # A float64 sum of float32 would copy the whole input by itself; this copy stays in cache.
            if self._wide.numel() < weight_RC.numel():
                self._wide = torch.empty(weight_RC.numel(), dtype=torch.float64)
            wide_RC = self._wide[: weight_RC.numel()].view(weight_RC.shape).copy_(weight_RC)
            blocks = slice(part.start // BLOCK, part.stop // BLOCK)
            torch.sum(wide_RC.view(len(wide_RC), -1, BLOCK), 2, out=block_sum_RN[:, blocks])
        return block_sum_RN


def _take_out_forbidden(logits_RV: Tensor, largest_R: Tensor, forbidden_R: Tensor | None) -> Tensor:
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
