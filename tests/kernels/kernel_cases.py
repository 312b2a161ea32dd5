"""Inputs for the tests of the kernel, the truth in float64, and how far rounding may lead away from it."""

# M rows, D width, V vocabulary

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling import NOT_FORBIDDEN, masked_sample, native

NO_NATIVE = native.why_not()
NATIVE = pytest.param("native", marks=pytest.mark.skipif(bool(NO_NATIVE), reason=f"no native: {NO_NATIVE}"))
FAST = ("cpu", NATIVE)
EVERY = ("reference", *FAST)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs of one call."""

    hidden_MD: Tensor
    table_VD: Tensor
    bias_V: Tensor
    target_M: Tensor
    weight_M: Tensor
    uniform_M: Tensor


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one call yields, with the gradients of its sum."""

    loss_sum: Tensor
    loss_M: Tensor
    sampled_M: Tensor
    grad_hidden_MD: Tensor
    grad_table_VD: Tensor
    grad_bias_V: Tensor


def random_case(
    rows: int, width: int, vocabulary: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Case:
    generator = torch.Generator().manual_seed(seed)
    return Case(
        hidden_MD=torch.randn(rows, width, generator=generator, dtype=dtype),
        table_VD=torch.randn(vocabulary, width, generator=generator, dtype=dtype) * 0.5,
        bias_V=torch.randn(vocabulary, generator=generator, dtype=dtype),
        target_M=torch.randint(0, vocabulary, (rows,), generator=generator),
        weight_M=torch.ones(rows),
        uniform_M=torch.rand(rows, generator=generator, dtype=torch.float64),
    )


def in_float64(case: Case) -> Case:
    """The same numbers, not rounded again on the way."""
    return Case(
        hidden_MD=case.hidden_MD.double(),
        table_VD=case.table_VD.double(),
        bias_V=case.bias_V.double(),
        target_M=case.target_M,
        weight_M=case.weight_M,
        uniform_M=case.uniform_M,
    )


def run(case: Case, implementation: str, **options) -> Outcome:
    """Forward and backward."""
    trained = [tensor.clone().requires_grad_() for tensor in (case.hidden_MD, case.table_VD, case.bias_V)]
    rest = (case.target_M, case.weight_M, case.uniform_M)
    result = masked_sample(*trained, *rest, implementation=implementation, **options)
    result.loss_sum.backward()
    return Outcome(
        loss_sum=result.loss_sum.detach(),
        loss_M=result.loss_M,
        sampled_M=result.sampled_M,
        grad_hidden_MD=trained[0].grad,
        grad_table_VD=trained[1].grad,
        grad_bias_V=trained[2].grad,
    )


def logits_only(logits_MV: Tensor, implementation: str, *, target: int = 0, uniform: float = 0.5, **options):
    """The kernel on given logits: the product with the identity passes them through unchanged."""
    rows, vocabulary = logits_MV.shape
    return masked_sample(
        torch.eye(rows, dtype=logits_MV.dtype),
        logits_MV.T,
        torch.zeros(vocabulary, dtype=logits_MV.dtype),
        torch.full((rows,), target),
        torch.ones(rows),
        torch.full((rows,), uniform, dtype=torch.float64),
        implementation=implementation,
        **options,
    )


def cumulative_share(case: Case, *, temperature: float = 1.0, forbidden_M: Tensor | None = None) -> Tensor:
    """float64 [M, V]: probability of drawing this id or one before it."""
    truth = in_float64(case)
    logits_MV = truth.hidden_MD @ truth.table_VD.T + truth.bias_V
    if forbidden_M is not None:
        is_forbidden_MV = torch.arange(logits_MV.shape[1]) == forbidden_M[:, None]
        logits_MV.masked_fill_(is_forbidden_MV & (forbidden_M != NOT_FORBIDDEN)[:, None], -torch.inf)
    return (logits_MV / temperature).softmax(1).cumsum(1)
