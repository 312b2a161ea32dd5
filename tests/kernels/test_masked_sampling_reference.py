"""The definition itself: by hand, against NumPy in float64, and by finite differences."""

# M rows, D width, V vocabulary

import math

import numpy as np
import pytest
import torch
from kernel_cases import logits_only, random_case
from torch import Tensor

from electra_cli.kernels.masked_sampling import (
    NOT_FORBIDDEN,
    masked_sample,
    reference,
    token_log_prob,
)


def test_three_ids_by_hand():
    """Weights 1, 2, 5 of 8: cumulative shares 0.125, 0.375, 1."""
    logits_1V = torch.tensor([[1.0, 2.0, 5.0]]).log()
    result = logits_only(logits_1V, "reference", target=1)
    assert result.loss_sum.item() == pytest.approx(math.log(8 / 2), rel=1e-6)
    drawn = [
        logits_only(logits_1V, "reference", uniform=u).sampled_M.item()
        for u in (0.0, 0.124, 0.126, 0.374, 0.376, 0.999)
    ]
    assert drawn == [0, 0, 1, 1, 2, 2]


def test_the_sample_is_found_across_blocks():
    """300 equal logits: id = floor(300 u), whichever of the three blocks it lies in."""
    for u in (0.0, 0.25, 0.42, 0.43, 0.5, 0.853, 0.9999):
        assert logits_only(torch.zeros(1, 300), "reference", uniform=u).sampled_M.item() == math.floor(
            300 * u
        )


def test_largest_uniform_draws_the_last_id_of_weight_above_zero():
    logits_1V = torch.full((1, 300), -1e30)
    logits_1V[0, [2, 140]] = 0.0
    assert logits_only(logits_1V, "reference", uniform=1 - 2.0**-53).sampled_M.item() == 140


def test_temperature_changes_the_sample_and_not_the_loss():
    logits_1V = torch.tensor([[0.0, 1.0]])
    warm, cold = (logits_only(logits_1V, "reference", uniform=0.3, temperature=t) for t in (100.0, 0.5))
    # softmax([0, 1] / 100) gives id 0 the share 0.4975, softmax([0, 1] / 0.5) gives it 0.119.
    assert (warm.sampled_M.item(), cold.sampled_M.item()) == (0, 1)
    assert warm.loss_sum.item() == cold.loss_sum.item() == pytest.approx(math.log(1 + math.e), rel=1e-6)


def test_a_forbidden_id_counts_in_the_loss_even_if_it_dwarfs_all_others():
    logits_1V = torch.tensor([[0.0, 1000.0, 0.0, 0.0]])
    result = logits_only(logits_1V, "reference", target=1, uniform=0.6, forbidden_M=torch.tensor([1]))
    assert result.loss_sum.item() == 0.0
    assert result.sampled_M.item() == 2


def test_padding_rows_of_the_table_belong_to_no_distribution():
    logits_1V = torch.tensor([[0.0, 0.0, 50.0]])
    result = logits_only(logits_1V, "reference", target=1, uniform=0.99, num_padding_ids=1)
    assert result.loss_sum.item() == pytest.approx(math.log(2), rel=1e-6)
    assert result.sampled_M.item() == 1


@pytest.mark.parametrize(("rows", "width", "vocabulary"), [(1, 5, 507), (7, 16, 512), (63, 33, 1000)])
def test_reference_equals_numpy_in_float64(rows, width, vocabulary):
    case = random_case(rows, width, vocabulary, dtype=torch.float64)
    forbidden_M = torch.arange(rows) - 1
    result = masked_sample(
        **vars(case), forbidden_M=forbidden_M, num_padding_ids=0, temperature=1.3, implementation="reference"
    )

    logits_MV = case.hidden_MD.numpy() @ case.table_VD.numpy().T + case.bias_V.numpy()
    log_sum_M = np.log(np.exp(logits_MV).sum(1))
    loss_M = log_sum_M - logits_MV[np.arange(rows), case.target_M]
    np.testing.assert_allclose(result.loss_M.numpy(), loss_M, rtol=1e-12)
    assert result.loss_sum.item() == pytest.approx(loss_M.sum(), rel=1e-12)
    for row in range(rows):
        weight_V = np.exp(logits_MV[row] / 1.3)
        if forbidden_M[row] != NOT_FORBIDDEN:
            weight_V[forbidden_M[row]] = 0
        cumulative_V = weight_V.cumsum() / weight_V.sum()
        assert result.sampled_M[row] == np.searchsorted(
            cumulative_V, case.uniform_M[row].item(), side="right"
        )


def test_gradients_of_the_loss_are_the_finite_differences():
    case = random_case(5, 4, 9, dtype=torch.float64)
    weight_M = torch.tensor([1.0, 0.0, 0.5, 2.0, 1.0])

    def loss(*trained: Tensor) -> Tensor:
        return masked_sample(
            *trained,
            case.target_M.clamp(max=6),
            weight_M,
            case.uniform_M,
            forbidden_M=torch.full((5,), 2),
            num_padding_ids=2,
            implementation="reference",
        ).loss_sum

    trained = [case.hidden_MD, case.table_VD, case.bias_V]
    assert torch.autograd.gradcheck(loss, [tensor.requires_grad_() for tensor in trained])


def test_gradients_of_log_prob_are_the_finite_differences():
    case = random_case(5, 4, 9, dtype=torch.float64)

    def log_prob(*trained: Tensor) -> Tensor:
        return token_log_prob(
            *trained, case.target_M.clamp(max=6), num_padding_ids=2, implementation="reference"
        )

    trained = [case.hidden_MD, case.table_VD, case.bias_V]
    assert torch.autograd.gradcheck(log_prob, [tensor.requires_grad_() for tensor in trained])


def test_only_the_sum_carries_a_gradient():
    case = random_case(7, 5, 507)
    result = masked_sample(case.hidden_MD.requires_grad_(), *list(vars(case).values())[1:])
    assert result.loss_sum.requires_grad
    assert not result.loss_M.requires_grad
    assert not result.sampled_M.requires_grad


def test_last_positive_ignores_holes():
    value_MN = torch.tensor([[1.0, 0.0, 2.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
    assert reference.last_positive(value_MN).tolist() == [2, 0]
