"""Replace MLM and All-Tokens MLM: the copy gate, what is counted, and both losses against NumPy."""

import numpy as np
import numpy_electra as plain
import pytest
import torch
from float64_cases import SMALL, Case, assert_gradients, make_case, pieces_of
from float64_cases import VOCABULARY as FEW
from numpy_electra import Arrays, Piece
from small_batches import batch_of_pieces, losses_of, random_batch, small_settings, vocabulary_facts

from electra_cli.errors import ProjectError
from electra_cli.objectives.replace_mlm import ReplaceMLM

VOCABULARY = 120
TERMS = {"chosen": "replace_mlm", "all": "all_tokens_mlm"}


def replace_mlm(positions: str, size: int = VOCABULARY, **tables: dict[str, object]) -> ReplaceMLM:
    objective = {"use": "replace_mlm", "positions": positions, "restorer_weight": 2.0}
    return ReplaceMLM(small_settings(objective=objective, **tables), vocabulary_facts(size))


def softmax_of_original(p: Arrays, piece: Piece, hidden: np.ndarray) -> np.ndarray:
    """The probability [T] of each original token under the restorer's softmax."""
    state = plain.layer_norm(plain.gelu(plain.linear(hidden, p, "restorer.head.dense")), p, LAYER_NORM)
    logit = state @ p["restorer.encoder.embeddings.word_VE"].T + p["restorer.head.bias_V"]
    weight = np.exp(logit - logit.max(1, keepdims=True))
    return (weight / weight.sum(1, keepdims=True))[np.arange(len(hidden)), piece.original]


LAYER_NORM = "restorer.head.layer_norm"


def restored(p: Arrays, pieces: list[Piece], positions: str) -> float:
    """−Σ log p, written from the paper: p = D · 1[the token that stands there] + (1 − D) · softmax."""
    total = 0.0
    for piece in pieces:
        hidden = plain.encode(p, "restorer", piece.corrupted, piece.segment, 2)
        probability = softmax_of_original(p, piece, hidden)
        if positions == "chosen":
            total -= float(np.log(probability[piece.chosen]).sum())
            continue
        inner = plain.gelu(plain.linear(hidden, p, "restorer.gate.dense"))
        says_replaced = plain.linear(inner, p, "restorer.gate.prediction")[:, 0]
        copy = 1 - 1 / (1 + np.exp(-says_replaced))
        mixture = copy * (piece.corrupted == piece.original) + (1 - copy) * probability
        total -= float(np.log(mixture).sum())
    return total


@pytest.fixture(scope="module", params=["chosen", "all"])
def case(request: pytest.FixtureRequest) -> Case:
    tables = {**SMALL, "masking": {"fraction": 0.25, "keep_fraction": 0.4}}
    objective = replace_mlm(request.param, FEW, **tables)
    return make_case(objective, objective.masking.choose)


def test_both_losses_and_all_gradients_equal_the_numpy_program(case):
    positions = "all" if case.objective.restores_all else "chosen"
    pieces = pieces_of(case, shown_to="generator", corrupted_to="restorer")
    # Some samples miss the original, so that both arms of the mixture count.
    assert sum(int((p.corrupted != p.original).sum()) for p in pieces) > 2
    losses = {
        "mlm": lambda: plain.mlm_sum(case.arrays, pieces, 1),
        TERMS[positions]: lambda: restored(case.arrays, pieces, positions),
    }
    sums = losses_of(case.objective, case.batch).sums
    assert set(sums) == set(losses)
    for term, loss in losses.items():
        assert sums[term].item() == pytest.approx(loss(), rel=1e-6)
        assert_gradients(case, term, loss, per_tensor=3)


@pytest.mark.parametrize("positions", ["chosen", "all"])
def test_what_is_counted(positions):
    objective, batch = replace_mlm(positions), random_batch(5, 32, VOCABULARY)
    num_chosen, num_real = objective.masking.choose(batch).weight_M.sum(), (batch.piece_BS > 0).sum()
    assert objective.counts(batch)["mlm"] == num_chosen
    assert objective.counts(batch)[TERMS[positions]] == (num_chosen if positions == "chosen" else num_real)
    assert objective.updates[0].terms == {"mlm": 1.0, TERMS[positions]: 2.0}


@pytest.mark.parametrize("positions", ["chosen", "all"])
def test_padding_rows_without_words_and_specials_add_nothing_that_is_not_theirs(positions):
    objective = replace_mlm(positions)
    losses = losses_of(objective, batch_of_pieces([[], []], 16))
    assert all(value == 0 for value in losses.sums.values())
    bare = batch_of_pieces([[[]], [[]]], 16)
    sums = losses_of(objective, bare).sums
    assert sums["mlm"] == 0
    # [CLS] and [SEP] are never replaced, but All-Tokens MLM copies them too.
    assert (sums[TERMS[positions]] > 0) == (positions == "all")


def test_an_open_copy_gate_makes_every_untouched_token_free():
    objective, batch = replace_mlm("all"), random_batch(4, 32, VOCABULARY)
    with torch.no_grad():
        objective.restorer.gate.prediction.weight.zero_()
        objective.restorer.gate.prediction.bias.fill_(-40.0)
        # The generator hits the original everywhere.
        objective.generator.head.bias_V[7] = 1e4
    same = batch_of_pieces([[[7] * 20], [[7] * 10]], 32)
    assert losses_of(objective, same).sums["all_tokens_mlm"] < 1e-3
    assert losses_of(objective, batch).sums["all_tokens_mlm"] > 10


def test_the_gate_tells_replaced_tokens_in_the_figures():
    batch = random_batch(8, 32, VOCABULARY)
    figures = {
        positions: objective.summarise(losses_of(objective, batch).figures)
        for positions, objective in ((p, replace_mlm(p)) for p in TERMS)
    }
    assert set(figures["chosen"]) == {"sampled_accuracy"}
    assert figures["all"]["replaced_fraction"] > 0 and figures["all"]["disc_auc"] is not None


def test_tables_are_shared_as_electras_are():
    tied, apart = replace_mlm("chosen"), replace_mlm("chosen", generator={"sharing": "none"})
    assert tied.generator.encoder.embeddings is tied.restorer.encoder.embeddings
    assert apart.generator.encoder.embeddings is not apart.restorer.encoder.embeddings
    with pytest.raises(ProjectError, match=r"generator\.sharing"):
        replace_mlm("chosen", generator={"sharing": "gradient-disentangled"})


def test_the_kept_encoder_and_the_generator_are_exported_and_the_copy_gate_as_electras_head():
    assert set(replace_mlm("chosen").exports()) == {"encoder", "generator"}
    objective = replace_mlm("all")
    exported = objective.exports()
    assert set(exported) == {"encoder", "discriminator", "generator"}
    names = {
        name: value for name, value in exported["discriminator"].tensors.items() if "predictions" in name
    }
    gate = list(objective.restorer.gate.state_dict().values())
    assert len(names) == len(gate)
    for value in names.values():
        assert any(value.shape == own.shape and torch.equal(value, own) for own in gate)
