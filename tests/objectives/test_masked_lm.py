"""Masked language modelling: what is shown, what is counted, and the loss against NumPy."""

import numpy as np
import numpy_electra as plain
import pytest
import torch
from float64_cases import SMALL, assert_gradients, make_case, pieces_of
from float64_cases import VOCABULARY as FEW
from small_batches import MASK, losses_of, random_batch, small_settings, total_loss, vocabulary_facts

from electra_cli.errors import ProjectError
from electra_cli.objectives.masked_lm import MaskedLM

VOCABULARY = 120
BERT = {"keep_fraction": 0.1}


def masked_lm(random_fraction: float = 0.1, size: int = VOCABULARY, **tables: dict[str, object]) -> MaskedLM:
    objective = {"use": "masked_lm", "random_fraction": random_fraction}
    return MaskedLM(small_settings(objective=objective, **tables), vocabulary_facts(size))


def test_eighty_ten_ten():
    """Of some 4,000 chosen tokens, each share within four standard deviations; random pieces are words."""
    objective, batch = masked_lm(masking=BERT), random_batch(800, 32, VOCABULARY, full=True)
    chosen = objective.masking.choose(batch)
    shown_M = objective.show(batch, chosen).flatten()[chosen.index_M][chosen.weight_M > 0]
    target_M = chosen.target_M[chosen.weight_M > 0]
    number = len(target_M)
    assert number > 3500
    is_random_M = (shown_M != MASK) & (shown_M != target_M)
    # A random piece is the original one time in 115.
    shares = {"mask": (shown_M == MASK).float().mean(), "random": is_random_M.float().mean() * 115 / 114}
    assert abs(shares["mask"] - 0.8) < 4 * (0.8 * 0.2 / number) ** 0.5
    assert abs(shares["random"] - 0.1) < 4 * (0.1 * 0.9 / number) ** 0.5
    assert shown_M[is_random_M].min() >= 5
    assert len(shown_M[is_random_M].unique()) > 80


def test_what_was_not_chosen_is_shown_as_it_is():
    objective, batch = masked_lm(masking=BERT), random_batch(60, 32, VOCABULARY)
    chosen = objective.masking.choose(batch)
    is_chosen_BS = torch.zeros(batch.token_ids_BS.numel(), dtype=torch.bool)
    is_chosen_BS[chosen.index_M[chosen.weight_M > 0]] = True
    is_chosen_BS = is_chosen_BS.view_as(batch.token_ids_BS)
    shown_BS = objective.show(batch, chosen)
    assert torch.equal(shown_BS[~is_chosen_BS], batch.token_ids_BS[~is_chosen_BS])
    is_special_BS = (batch.token_ids_BS < 5) | (batch.piece_BS == 0)
    assert not (is_special_BS & is_chosen_BS).any()


def test_the_mask_rate_is_flat_over_the_places_of_a_row():
    objective, batch = masked_lm(), random_batch(2000, 32, VOCABULARY, full=True)
    chosen = objective.masking.choose(batch)
    places = torch.bincount(chosen.index_M[chosen.weight_M > 0] % 32, minlength=32)[1:31].float()
    expected = places.sum() / 30
    # χ² with 29 degrees of freedom: 58 is passed once in a thousand.
    assert ((places - expected) ** 2 / expected).sum() < 58


def test_without_random_tokens_it_is_electras_masking():
    objective, batch = masked_lm(0.0), random_batch(20, 32, VOCABULARY)
    chosen = objective.masking.choose(batch)
    assert torch.equal(objective.show(batch, chosen), objective.masking.hide(batch, chosen))


def test_more_than_all_chosen_tokens_are_refused_with_both_values():
    with pytest.raises(ProjectError) as caught:
        masked_lm(0.6, masking={"keep_fraction": 0.5})
    assert caught.value.key == "objective.random_fraction"
    assert "0.5" in caught.value.message and "0.6" in caught.value.message


def test_loss_and_gradients_equal_the_numpy_program():
    tables = {**SMALL, "masking": {"fraction": 0.4, "keep_fraction": 0.2}}
    objective = masked_lm(0.3, FEW, **tables)
    case = make_case(objective, objective.masking.choose)
    pieces = pieces_of(case, shown_to="generator", corrupted_to="generator")
    fates = np.concatenate([np.where(p.shown == MASK, 2, p.shown == p.original)[p.chosen] for p in pieces])
    # Masked, kept and random tokens are among them.
    assert set(fates.tolist()) == {0, 1, 2}

    def loss() -> float:
        return plain.mlm_sum(case.arrays, pieces, 2)

    assert losses_of(objective, case.batch).sums["mlm"].item() == pytest.approx(loss(), rel=1e-6)
    assert total_loss(objective, case.batch).item() == pytest.approx(loss() / len(fates), rel=1e-6)
    assert_gradients(case, "mlm", loss)


def test_the_whole_network_is_exported_and_reached():
    objective = masked_lm(masking=BERT)
    total_loss(objective, random_batch(6, 32, VOCABULARY)).backward()
    for name, parameter in objective.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name
    folders = objective.exports()
    assert {name: folder.architecture for name, folder in folders.items()} == {
        "encoder": "ElectraModel",
        "generator": "ElectraForMaskedLM",
    }
