"""The passes in compiled code: a thread does all of a row while its cache holds it.

The tile stays in the precision of the products, so that the gradients' products take it as it is.

Letters: R rows of a tile, V ids that are not padding, C ids of a chunk.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.passes import Passes, TorchPasses, Weighed
from electra_cli.kernels.masked_sampling.reference import BLOCK
from electra_cli.kernels.masked_sampling.tiles import Product, Rows
from electra_cli.kernels.native_build import (
    FLOAT,
    INT,
    LONG,
    NUMBERS,
    POINTER,
    declared,
    function_for,
    pointers,
)

SOURCE = Path(__file__).with_name("native_rows.cpp")

_KINDS = {
    "weigh_rows": (POINTER, LONG, *[POINTER] * 4, FLOAT, INT, *[POINTER] * 5, LONG, LONG, INT),
    "add_columns": (POINTER, LONG, POINTER, POINTER, LONG, LONG, INT),
}


@cache
def load() -> ctypes.CDLL:
    """The library with its functions declared, built if need be; BuildError says why there is none."""
    return declared(SOURCE, _KINDS)


def make_passes(product: Product, hidden_MD: Tensor, *, is_native: bool) -> Passes:
    """The passes for one call; the compiled ones know float32 and bfloat16."""
    if is_native and product.table_VD.dtype in NUMBERS:
        return NativePasses(product, hidden_MD)
    return TorchPasses(product, hidden_MD)


class NativePasses:
    """Each product is read and written once, in as many threads as torch uses."""

    def __init__(self, product: Product, hidden_MD: Tensor) -> None:
        """`hidden_MD`: the states of all rows, in the precision of the products."""
        self._product = product
        dtype = product.table_VD.dtype
        tile_rows, columns = min(product.tile_rows, len(hidden_MD)), product.num_blocks * BLOCK
        self._tile_RU = torch.empty(tile_rows, columns, dtype=dtype)
        self._weigh = function_for(load(), "weigh_rows", dtype)
        self._add_columns = function_for(load(), "add_columns", dtype)

    def weigh(self, rows: Rows, *, temperature: float = 1.0, keep: bool = True) -> Weighed:
        num_rows, num_ids = len(rows), self._product.num_ids
        tile_RU = self._tile_RU[:num_rows]
        torch.mm(rows.hidden_MD, self._product.table_VD.T, out=tile_RU[:, :num_ids])
        target_R, forbidden_R, total_R = torch.empty(3, num_rows, dtype=torch.float64).unbind(0)
        largest_R = torch.empty(num_rows, dtype=torch.float32)
        sampled_R = None if rows.uniform_M is None else torch.empty(num_rows, dtype=torch.int64)
        self._weigh(
            tile_RU.data_ptr(),
            tile_RU.stride(0),
            *pointers(self._product.bias_V, rows.target_M, rows.forbidden_M, rows.uniform_M),
            temperature,
            keep,
            *pointers(target_R, forbidden_R, largest_R, total_R, sampled_R),
            num_rows,
            num_ids,
            torch.get_num_threads(),
        )
        return Weighed(
            tile_RU=tile_RU,
            largest_R=largest_R.double(),
            total_R=total_R,
            target_R=target_R,
            forbidden_R=forbidden_R,
            sampled_R=sampled_R,
        )

    def add_columns(self, sum_C: Tensor, weight_RC: Tensor, scale_R: Tensor) -> None:
        assert weight_RC.stride(1) == 1 or weight_RC.shape[1] == 1
        self._add_columns(
            weight_RC.data_ptr(),
            weight_RC.stride(0),
            *pointers(scale_R, sum_C),
            *weight_RC.shape,
            torch.get_num_threads(),
        )
