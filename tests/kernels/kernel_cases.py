"""Inputs for the tests of the kernel."""

# M rows, D width, V vocabulary

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs of one call."""

    hidden_MD: Tensor
    table_VD: Tensor
    bias_V: Tensor
    target_M: Tensor
    weight_M: Tensor
    uniform_M: Tensor


def random_case(rows: int, width: int, vocabulary: int, *, seed: int = 0, dtype=torch.float32) -> Case:
    generator = torch.Generator().manual_seed(seed)
    return Case(
        hidden_MD=torch.randn(rows, width, generator=generator, dtype=dtype),
        table_VD=torch.randn(vocabulary, width, generator=generator, dtype=dtype) * 0.5,
        bias_V=torch.randn(vocabulary, generator=generator, dtype=dtype),
        target_M=torch.randint(0, vocabulary, (rows,), generator=generator),
        weight_M=torch.ones(rows),
        uniform_M=torch.rand(rows, generator=generator, dtype=torch.float64),
    )
