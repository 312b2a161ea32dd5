"""Gradients of the linear layer to the vocabulary, added up tile by tile.

Letters: M rows of the whole batch, R rows of a tile, D width, V vocabulary, U ids rounded up to whole
blocks, C ids of a chunk.
"""

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.passes import Passes
from electra_cli.kernels.masked_sampling.tiles import Product


class Gradients:
    """Gradients of the wanted inputs, added up over tiles in the work precision.

    With p = softmax: dL/dlogit_v = scale · e_v, where e is the exponentiated tile and scale = weight / Σ e;
    what a row has at single ids (-weight at the target) is added by itself, in float32 whatever the products.
    """

    def __init__(
        self,
        product: Product,
        passes: Passes,
        num_rows: int,
        table_rows: int,
        *,
        hidden: bool,
        table: bool,
    ) -> None:
        self.product, self.passes = product, passes
        width, work = product.table_VD.shape[1], product.work
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
                self.passes.add_columns(self.bias_V[part], weight_RC, scale_R)
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
