"""ELECTRA 15 %, and two networks that share their whole encoder."""

import numpy as np
import numpy_electra as plain
import pytest
import torch
from float64_cases import SMALL, assert_gradients, make_case, pieces_of
from float64_cases import VOCABULARY as FEW
from small_batches import losses_of, random_batch, small_settings, total_loss, vocabulary_facts

from electra_cli.errors import ProjectError
from electra_cli.objectives.electra import Electra

VOCABULARY = 120
ONE_SIZE = {"width": 32, "sharing": "all"}


def electra(size: int = VOCABULARY, **tables: dict[str, object]) -> Electra:
    return Electra(small_settings(**tables), vocabulary_facts(size))


def test_electra_15_counts_the_chosen_positions_alone():
    objective, batch = electra(objective={"discriminator_positions": "chosen"}), random_batch(5, 32, 120)
    counts = objective.counts(batch)
    assert counts["rtd"] == counts["mlm"] == objective.masking.choose(batch).weight_M.sum()


def test_electra_15_equals_the_numpy_program():
    tables = {**SMALL, "masking": {"fraction": 0.25}}
    objective = electra(FEW, objective={"discriminator_positions": "chosen"}, **tables)
    case = make_case(objective, objective.masking.choose)
    pieces = pieces_of(case, shown_to="generator", corrupted_to="discriminator")

    def loss() -> float:
        total = 0.0
        for piece in pieces:
            hidden = plain.encode(case.arrays, "discriminator", piece.corrupted, piece.segment, 2)
            inner = plain.gelu(plain.linear(hidden, case.arrays, "discriminator.head.dense"))
            logit = plain.linear(inner, case.arrays, "discriminator.head.prediction")[:, 0]
            is_replaced = piece.corrupted != piece.original
            entropy = np.logaddexp(0, logit) - np.where(is_replaced, logit, 0.0)
            total += float(entropy[piece.chosen].sum())
        return total

    assert losses_of(objective, case.batch).sums["rtd"].item() == pytest.approx(loss(), rel=1e-6)
    assert_gradients(case, "rtd", loss, per_tensor=3)


def test_the_figures_of_electra_15_speak_of_the_chosen_positions():
    objective, batch = electra(objective={"discriminator_positions": "chosen"}), random_batch(8, 32, 120)
    figures = objective.summarise(losses_of(objective, batch).figures)
    assert figures["replaced_fraction"] > 0.9


def test_sharing_all_is_one_encoder_with_two_heads():
    objective, batch = electra(generator=ONE_SIZE), random_batch(6, 32, VOCABULARY)
    assert objective.generator.encoder is objective.discriminator.encoder
    names = {name for name, _ in objective.named_parameters() if name.startswith("generator.")}
    assert names and all(name.startswith("generator.head.") for name in names)
    total_loss(objective, batch).backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.parameters())
    folders = objective.exports()
    word = "electra.embeddings.word_embeddings.weight"
    assert torch.equal(folders["generator"].tensors[word], folders["discriminator"].tensors[word])


@pytest.mark.parametrize(
    ("generator", "both"),
    [
        ({"width": 16, "sharing": "all"}, ("generator.width = 16", "hidden_size = 32")),
        ({**ONE_SIZE, "depth_fraction": 0.5}, ("generator.depth_fraction = 0.5", "1")),
    ],
)
def test_sharing_all_needs_one_size(generator, both):
    with pytest.raises(ProjectError) as caught:
        electra(generator=generator)
    assert all(part in caught.value.message for part in both)
    assert caught.value.key.startswith("generator.")
