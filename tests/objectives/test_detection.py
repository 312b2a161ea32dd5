"""The discriminator's loss and its health figures."""

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from electra_cli.objectives.detection import (
    HISTOGRAM,
    detection_figures,
    detection_loss,
    summarise_detection,
)


def example(seed: int, spread: float = 2.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    is_replaced = random.random((8, 50)) < 0.1
    logit = random.normal(0, spread, (8, 50)) - 1.5 + 1.2 * is_replaced
    is_real = random.random((8, 50)) < 0.8
    return torch.tensor(logit, dtype=torch.float32), torch.tensor(is_replaced), torch.tensor(is_real)


@pytest.mark.parametrize("seed", range(5))
def test_the_figures_are_those_of_scikit_learn(seed):
    logit, is_replaced, is_real = example(seed)
    found = summarise_detection(detection_figures(logit, is_replaced, is_real))
    label, score = is_replaced[is_real].numpy(), logit[is_real].numpy()
    # Logits of one bin of 1/256 count as equal: with 400 spread over ±6 a few pairs.
    assert found["disc_auc"] == pytest.approx(roc_auc_score(label, score), abs=2e-3)
    assert found["disc_precision"] == pytest.approx(precision_score(label, score > 0))
    assert found["disc_recall"] == pytest.approx(recall_score(label, score > 0))
    assert found["replaced_fraction"] == pytest.approx(label.mean())


def test_figures_add_up_over_micro_batches():
    logit, is_replaced, is_real = example(9)
    whole = detection_figures(logit, is_replaced, is_real)[HISTOGRAM]
    parts = [
        detection_figures(logit[part], is_replaced[part], is_real[part])[HISTOGRAM]
        for part in (slice(0, 3), slice(3, 8))
    ]
    assert torch.equal(whole, parts[0] + parts[1])


def test_pitfall_K14_a_discriminator_that_calls_all_original_has_recall_0_and_auc_of_one_half():
    _, is_replaced, is_real = example(1)
    # Padding would be a perfect negative: were it counted, the area would be far above one half.
    logit = torch.where(is_real, -3.0, -30.0)
    found = summarise_detection(detection_figures(logit, is_replaced & is_real, is_real))
    assert found["disc_recall"] == 0.0
    assert found["disc_auc"] == 0.5
    assert found["disc_precision"] is None


def test_padding_is_excluded_from_loss_and_figures():
    logit, is_replaced, is_real = example(2)
    wild = torch.where(is_real, logit, 1e30)
    assert detection_loss(logit, is_replaced, is_real) == detection_loss(wild, is_replaced, is_real)
    one, other = (detection_figures(x, is_replaced, is_real)[HISTOGRAM] for x in (logit, wild))
    assert torch.equal(one, other)


@pytest.mark.parametrize("is_replaced", [True, False])
def test_one_class_alone_leaves_the_area_undefined(is_replaced):
    logit, _, is_real = example(3)
    found = summarise_detection(detection_figures(logit, torch.full_like(is_real, is_replaced), is_real))
    assert found["disc_auc"] is None
    assert (found["disc_recall"] is None) is (not is_replaced)
    assert found["replaced_fraction"] == float(is_replaced)


def test_nothing_at_all_is_undefined():
    logit, is_replaced, is_real = example(4)
    found = summarise_detection(detection_figures(logit, is_replaced, torch.zeros_like(is_real)))
    assert set(found.values()) == {None}


def test_a_logit_of_exactly_0_says_original_and_huge_or_broken_ones_stay_in_range():
    logit = torch.tensor([[0.0, 1e-6, 1e30, -1e30, float("inf"), float("nan")]])
    yes = torch.ones_like(logit, dtype=torch.bool)
    found = summarise_detection(detection_figures(logit, yes, yes))
    assert found["disc_recall"] == 3 / 6


def test_the_loss_is_the_sum_of_binary_cross_entropies():
    logit, is_replaced, is_real = example(5)
    z, y = logit.double().numpy(), is_replaced.numpy()
    p = 1 / (1 + np.exp(-z))
    expected = -(np.where(y, np.log(p), np.log(1 - p)) * is_real.numpy()).sum()
    assert detection_loss(logit, is_replaced, is_real).item() == pytest.approx(expected, rel=1e-6)
