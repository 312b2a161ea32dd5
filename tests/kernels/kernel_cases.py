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

OPTIONS = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "padding": {"num_padding_ids": 3},
    "forbidden": {"forbid": True},
    "all": {"temperature": 1.6, "num_padding_ids": 5, "forbid": True},
}


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


def prepared(shape: tuple[int, int, int], name: str, *, seed: int = 0):
    """A case with mixed weights, and the options of a call on it; half of the targets are forbidden."""
    case = random_case(*shape, seed=seed)
    options = dict(OPTIONS[name])
    case.target_M.clamp_(max=shape[2] - 1 - options.get("num_padding_ids", 0))
    case.weight_M[1::3] = 0.25
    case.weight_M[2::5] = 0.0
    if options.pop("forbid", False):
        options["forbidden_M"] = case.target_M.where(torch.arange(shape[0]) % 2 == 0, -1)
    return case, options


def assert_within_budget(truth: Tensor, plain: Tensor, fused: Tensor, rounding: Tensor | float) -> None:
    """fused error ≤ plain error + rounding, number by number."""
    excess = (fused.double() - truth).abs() - (plain.double() - truth).abs() - rounding
    assert (excess <= 0).all(), f"{excess.max().item():.3g} over the budget"


def rounding_of(case, dtype: torch.dtype, **options) -> dict[str, Tensor]:
    """Bounds for two ways to add the same numbers, each of the size of the terms added.

    A logit of size L (the sum of the magnitudes of its terms) is wrong by up to eps · L · √D, a softmax by
    as much of itself, and a sum over rows by eps of the magnitudes it adds; 4 covers the roundings between.
    """
    truth = in_float64(case)
    eps = torch.finfo(dtype).eps
    size_M = (truth.hidden_MD.abs() @ truth.table_VD.abs().T + truth.bias_V.abs()).amax(1)
    error_M = 4 * eps * (1 + size_M)
    outer = run(truth, "reference", **options)
    weight_M = case.weight_M.double()
    # Σ |dL/dlogit| of a row is at most 2 · weight; its part in the table, weight · error · |hidden|.
    table_VD = (error_M * weight_M) @ truth.hidden_MD.abs()
    return {
        "loss_M": error_M,
        "loss_sum": (error_M * weight_M).sum(),
        "grad_hidden_MD": 2 * (error_M * weight_M)[:, None] * truth.table_VD.abs().amax(0),
        "grad_table_VD": 4 * eps * outer.grad_table_VD.abs() + table_VD,
        "grad_bias_V": (error_M * weight_M).sum(),
    }
