"""Launches of the GPU kernels: memory, grids and block sizes. Imports triton; `triton.py` imports this late.

Letters: M masked positions of the whole batch, D width, V vocabulary, N blocks.
"""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from electra_cli.kernels.masked_sampling import triton_kernels as kernels
from electra_cli.kernels.masked_sampling.reference import BLOCK

IS_INTERPRETED = isinstance(kernels.block_statistics, InterpretedFunction)
"""Whether the kernels run in Triton's interpreter, on CPU tensors."""

ROWS_AT_ONCE = 16 if IS_INTERPRETED else 1
"""Rows of a program that works on whole rows: the interpreter's time goes by the program."""


@dataclass(frozen=True, kw_only=True)
class BlockSizes:
    """Sizes of a program's tiles, powers of two ≥ 16; results depend on them by rounding alone."""

    rows: int
    part: int
    """Of the width, in a product that forms logits."""
    out: int
    """Of the width, that a program of the backward pass owns; it forms the logits again for each."""
    num_warps: int
    num_stages: int


HALF_BLOCKS = BlockSizes(rows=64, part=64, out=128, num_warps=8, num_stages=2)
FLOAT_BLOCKS = BlockSizes(rows=32, part=32, out=64, num_warps=4, num_stages=2)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The linear layer to the vocabulary and the rows that meet it, in the precision of the products."""

    hidden_MD: Tensor
    table_VD: Tensor
    bias_V: Tensor
    num_ids: int
    blocks: BlockSizes

    @classmethod
    def prepare(
        cls,
        hidden_MD: Tensor,
        table_VD: Tensor,
        bias_V: Tensor,
        num_padding_ids: int,
        dtype: torch.dtype,
        blocks: BlockSizes | None = None,
    ) -> "Layer":
        """Convert; without a conversion nothing is copied."""
        return cls(
            hidden_MD=hidden_MD.detach().to(dtype).contiguous(),
            table_VD=table_VD.detach().to(dtype).contiguous(),
            bias_V=bias_V.detach().contiguous(),
            num_ids=table_VD.shape[0] - num_padding_ids,
            blocks=blocks or (FLOAT_BLOCKS if dtype == torch.float32 else HALF_BLOCKS),
        )

    @property
    def num_rows(self) -> int:
        return self.hidden_MD.shape[0]

    @property
    def width(self) -> int:
        return self.hidden_MD.shape[1]

    @property
    def num_blocks(self) -> int:
        return -(-self.num_ids // BLOCK)

    @property
    def pointers(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.hidden_MD, self.table_VD, self.bias_V

    @property
    def part(self) -> int:
        return min(self.blocks.part, power_of_two(self.width))

    @property
    def out(self) -> int:
        return min(self.blocks.out, power_of_two(self.width))

    @property
    def how(self) -> dict[str, int]:
        """What every launch with a tile of rows says."""
        return {
            "WIDTH": self.width,
            "ROWS": self.blocks.rows,
            "IDS": BLOCK,
            "PART": self.part,
            "WIDEN": IS_INTERPRETED,
            "num_warps": self.blocks.num_warps,
            "num_stages": self.blocks.num_stages,
        }

    def new(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(*shape, dtype=dtype, device=self.hidden_MD.device)


def power_of_two(number: int) -> int:
    """The first one that is no smaller, and no smaller than 16, which a product needs."""
    return max(16, 1 << (number - 1).bit_length())


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What the blocks of a call leave behind."""

    largest_MN: Tensor
    total_MN: Tensor
    weight_MN: Tensor
    target_logit_M: Tensor
    forbidden_logit_M: Tensor


def forward(
    layer: Layer,
    target_M: Tensor,
    uniform_M: Tensor | None,
    forbidden_M: Tensor | None,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """loss_M, peak_M, log_total_M (float32) and sampled_M, which without uniform numbers is empty."""
    num_rows = layer.num_rows
    loss_M, peak_M, log_total_M, top_M = (layer.new(num_rows) for _ in range(4))
    draws = uniform_M is not None
    sampled_M = layer.new(num_rows if draws else 0, dtype=torch.int64)
    if num_rows == 0:
        return loss_M, peak_M, log_total_M, sampled_M
    seen = _block_statistics(layer, target_M, forbidden_M, temperature if draws else 1.0)
    block_M = layer.new(num_rows, dtype=torch.int64)
    rest_M = layer.new(num_rows, dtype=torch.float64)
    # A pointer that is not read still has to be one.
    uniform = rest_M if uniform_M is None else uniform_M.contiguous()
    forbidden = block_M if forbidden_M is None else forbidden_M.contiguous()
    grid = (-(-num_rows // ROWS_AT_ONCE),)
    how = {"ROWS": ROWS_AT_ONCE, "HAS_FORBIDDEN": forbidden_M is not None, "num_warps": 4}
    blocks = power_of_two(layer.num_blocks)
    kernels.combine_blocks[grid](
        seen.largest_MN,
        seen.weight_MN,
        seen.total_MN,
        seen.target_logit_M,
        forbidden,
        seen.forbidden_logit_M,
        *(uniform, loss_M, peak_M, log_total_M, top_M, block_M, rest_M),
        *(num_rows, layer.num_blocks, temperature),
        BLOCKS=blocks,
        DRAWS=draws,
        **how,
    )
    if draws:
        kernels.draw_in_block[grid](
            *layer.pointers,
            *(forbidden, top_M, block_M, rest_M, sampled_M, num_rows, layer.num_ids, temperature),
            WIDTH=layer.width,
            IDS=BLOCK,
            PART=layer.part,
            **how,
        )
    return loss_M, peak_M, log_total_M, sampled_M


def _block_statistics(
    layer: Layer, target_M: Tensor, forbidden_M: Tensor | None, temperature: float
) -> Statistics:
    num_rows, num_blocks = layer.num_rows, layer.num_blocks
    total_MN = layer.new(num_rows, num_blocks)
    is_tempered = temperature != 1
    seen = Statistics(
        largest_MN=layer.new(num_rows, num_blocks),
        total_MN=total_MN,
        weight_MN=layer.new(num_rows, num_blocks) if is_tempered else total_MN,
        target_logit_M=layer.new(num_rows),
        forbidden_logit_M=layer.new(num_rows),
    )
    target_M = target_M.contiguous()
    kernels.block_statistics[(-(-num_rows // layer.blocks.rows), num_blocks)](
        *layer.pointers,
        target_M,
        target_M if forbidden_M is None else forbidden_M.contiguous(),
        seen.largest_MN,
        seen.weight_MN,
        total_MN,
        seen.target_logit_M,
        seen.forbidden_logit_M,
        *(num_rows, layer.num_ids, num_blocks, temperature),
        HAS_FORBIDDEN=forbidden_M is not None,
        IS_TEMPERED=is_tempered,
        **layer.how,
    )
    return seen


def gradients(
    layer: Layer,
    target_M: Tensor,
    coefficient_M: Tensor,
    peak_M: Tensor,
    log_total_M: Tensor,
    *,
    hidden: bool,
    table: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Σ coefficient · dloss/d(hidden, table, bias), in float32; None where not wanted."""
    # In float16 a loss scale would overflow: the slopes are formed at size 1 and the sums scaled.
    scale_1 = coefficient_M.float().abs().amax().clamp(min=torch.finfo(torch.float32).tiny).reshape(1)
    rows = (target_M.contiguous(), (coefficient_M / scale_1).float(), peak_M, log_total_M, scale_1)
    parts = triton.cdiv(layer.width, layer.out)
    grad_hidden_MD = grad_table_VD = grad_bias_V = None
    if hidden:
        grad_hidden_MD = layer.new(layer.num_rows, layer.width)
        kernels.hidden_gradient[(triton.cdiv(layer.num_rows, layer.blocks.rows), parts)](
            *layer.pointers,
            *rows,
            grad_hidden_MD,
            layer.num_rows,
            layer.num_ids,
            OUT=layer.out,
            **layer.how,
        )
    if table:
        table_rows = layer.table_VD.shape[0]
        grad_table_VD, grad_bias_V = layer.new(table_rows, layer.width), layer.new(table_rows)
        kernels.table_gradient[(triton.cdiv(table_rows, BLOCK), parts)](
            *layer.pointers,
            *rows,
            grad_table_VD,
            grad_bias_V,
            layer.num_rows,
            layer.num_ids,
            table_rows,
            OUT=layer.out,
            **layer.how,
        )
    return grad_hidden_MD, grad_table_VD, grad_bias_V
