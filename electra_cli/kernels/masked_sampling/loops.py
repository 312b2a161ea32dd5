"""The passes over a tile that are no matrix products: here in plain torch, in `native` compiled.

Letters: R rows of a tile, C ids of a chunk, N blocks of the chunk.
"""

from typing import Protocol

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.reference import BLOCK


class Loops(Protocol):
    """Two passes, each over one chunk of a tile."""

    def add_bias(self, product_RC: Tensor, bias_C: Tensor, logits_RC: Tensor, largest_R: Tensor) -> None:
        """logits = product + bias, and largest = max(largest, largest logit of the row), both in place.

        `logits_RC` may be `product_RC`.
        """

    def weigh(
        self, logits_RC: Tensor, largest_R: Tensor, temperature: float, block_sum_RN: Tensor, *, keep: bool
    ) -> None:
        """float64 sums of exp((logit - largest) / temperature) over blocks, into `block_sum_RN`.

        With `keep` the weights take the place of the logits. C is a multiple of `BLOCK`.
        """


class TorchLoops:
    """The passes in plain torch, for any work precision."""

    def __init__(self) -> None:
        self._wide = torch.empty(0, dtype=torch.float64)

    def add_bias(self, product_RC: Tensor, bias_C: Tensor, logits_RC: Tensor, largest_R: Tensor) -> None:
        torch.add(product_RC, bias_C, out=logits_RC)
        torch.maximum(largest_R, logits_RC.amax(1), out=largest_R)

    def weigh(
        self, logits_RC: Tensor, largest_R: Tensor, temperature: float, block_sum_RN: Tensor, *, keep: bool
    ) -> None:
        weight_RC = logits_RC if keep else logits_RC.clone()
        weight_RC.sub_(largest_R[:, None])
        if temperature != 1:
            weight_RC.div_(temperature)
        weight_RC.exp_()
        # A float64 sum of float32 would copy the whole input by itself; this copy stays in cache.
        if self._wide.numel() < weight_RC.numel():
            self._wide = torch.empty(weight_RC.numel(), dtype=torch.float64)
        wide_RC = self._wide[: weight_RC.numel()].view(weight_RC.shape).copy_(weight_RC)
        torch.sum(wide_RC.view(len(wide_RC), -1, BLOCK), 2, out=block_sum_RN)
