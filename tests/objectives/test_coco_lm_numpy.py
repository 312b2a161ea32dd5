"""COCO-LM's four losses and their gradients against an independent float64 program."""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy_electra as plain
import pytest
import torch
from numpy_electra import Arrays, Piece
from small_batches import CLS, batch_of_pieces, losses_of, small_settings, vocabulary_facts

from electra_cli.data.batches import Batch
from electra_cli.objectives.coco_lm import CocoLM

VOCABULARY, TEMPERATURE, STEP = 40, 0.3, 1e-5
TERMS = ("mlm", "copy", "clm", "scl")
GENERATOR_HEADS, MAIN_HEADS = 1, 2


@dataclass
class Case:
    """A small model of float64, a batch, and the same in NumPy."""

    objective: CocoLM
    batch: Batch
    correction: str
    arrays: Arrays
    pieces: list[Piece]
    crops: list[tuple[int, np.ndarray, np.ndarray]]
    """Number of the piece, tokens and token types of its crop."""
    copied: list[np.ndarray]
    """Probability of copying each token of each piece, at the parameters as they are: a constant."""


def make_case(correction: str, embedding_size: int, keeps_cls: bool) -> Case:
    settings = small_settings(
        rows={"sequence_length": 24},
        model={"hidden_size": 16, "feed_forward_size": 24, "embedding_size": embedding_size},
        generator={"width": 8, "depth_fraction": 0.5},
        masking={"fraction": 0.25, "keep_fraction": 0.0},
        objective={
            "use": "coco_lm",
            "correction": correction,
            "contrast_min_tokens": 6,
            "contrast_temperature": TEMPERATURE,
            "crop_keeps_cls": keeps_cls,
            "vector_size": 10,
        },
    )
    objective = CocoLM(settings, vocabulary_facts(VOCABULARY)).double()
    random = np.random.default_rng(5)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.add_(torch.from_numpy(random.normal(0, 0.25, parameter.shape)))
        # A generator that guesses right now and then, so that both kinds of labels occur.
        objective.generator.head.bias_V[5:9] += 4.0
    arrays = {name: p.detach().numpy() for name, p in objective.named_parameters()}
    arrays |= {
        name.replace("discriminator.encoder.embeddings", "generator.encoder.embeddings"): array
        for name, array in arrays.items()
    }
    words = random.integers(5, 10, 32).tolist()
    batch = batch_of_pieces([[words[:9], words[9:19]], [words[19:22], words[22:]]], 24)
    pieces, crops = seen_by_the_networks(objective, batch)
    copied = [copy_probabilities(arrays, piece) for piece in pieces]
    return Case(objective, batch, correction, arrays, pieces, crops, copied)


def seen_by_the_networks(objective: CocoLM, batch: Batch):
    seen: dict[str, list[np.ndarray]] = {}

    def keep(name: str):
        return lambda _, inputs: seen.update({name: [x.numpy() for x in inputs if torch.is_tensor(x)]})

    hooks = [
        objective.generator.register_forward_pre_hook(keep("generator")),
        objective.discriminator.encoder.register_forward_pre_hook(keep("main")),
    ]
    losses_of(objective, batch)
    for hook in hooks:
        hook.remove()
    chosen = objective.masking.choose(batch)
    is_chosen = np.zeros(batch.token_ids_BS.shape, bool)
    is_chosen.flat[chosen.index_M[chosen.weight_M > 0].numpy()] = True
    num_rows = len(batch.sample_B)
    ids, numbers, _, segments = seen["main"]
    pieces, crops = [], []
    for row, number in enumerate(batch.piece_BS.numpy()):
        for piece in range(1, number.max() + 1):
            here = row, np.flatnonzero(number == piece)
            crop = num_rows + row, np.flatnonzero(numbers[num_rows + row] == piece)
            if len(crop[1]):
                crops.append((len(pieces), ids[crop], segments[crop]))
            pieces.append(
                Piece(
                    original=batch.token_ids_BS.numpy()[here],
                    shown=seen["generator"][0][here],
                    chosen=np.flatnonzero(is_chosen[here]),
                    corrupted=ids[here],
                    segment=batch.segment_BS.numpy()[here],
                )
            )
    return pieces, crops


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def main_states(p: Arrays, piece: Piece) -> np.ndarray:
    return plain.encode(p, "discriminator", piece.corrupted, piece.segment, MAIN_HEADS)


def copy_probabilities(p: Arrays, piece: Piece) -> np.ndarray:
    logit = plain.linear(main_states(p, piece), p, "discriminator.copy_head.prediction")[:, 0]
    return sigmoid(logit)


def copy_sum(p: Arrays, case: Case) -> float:
    """y = 1 for the original."""
    total = 0.0
    for piece in case.pieces:
        probability = copy_probabilities(p, piece)
        is_original = piece.corrupted == piece.original
        total -= float(np.log(np.where(is_original, probability, 1 - probability)).sum())
    return total


def clm_sum(p: Arrays, case: Case) -> float:
    """The copy probabilities do not follow `p`: the stop-gradient."""
    total = 0.0
    for piece, copied in zip(case.pieces, case.copied, strict=True):
        states = main_states(p, piece)[piece.chosen]
        if "discriminator.corrective_head.projection.weight" in p:
            states = plain.linear(states, p, "discriminator.corrective_head.projection")
        logit = states @ p["discriminator.encoder.embeddings.word_VE"].T
        weight = np.exp(logit + p["discriminator.corrective_head.bias_V"])
        right = piece.original[piece.chosen]
        probability = weight[np.arange(len(right)), right] / weight.sum(1)
        copy = copied[piece.chosen]
        is_same = piece.corrupted[piece.chosen] == right
        if case.correction == "mixture":
            total -= float(np.log(copy * is_same + (1 - copy) * probability).sum())
        else:
            total -= float(((1 - copy) * np.log(probability)).sum())
    return total


def text_vector(p: Arrays, state: np.ndarray) -> np.ndarray:
    inner = plain.gelu(plain.linear(state, p, "discriminator.vector_head.dense"))
    vector = plain.layer_norm(inner, p, "discriminator.vector_head.layer_norm")
    return vector / np.linalg.norm(vector)


def scl_sum(p: Arrays, case: Case) -> float:
    views = []
    for number, ids, segment in case.crops:
        whole = main_states(p, case.pieces[number])[0]
        crop = plain.encode(p, "discriminator", ids, segment, MAIN_HEADS)[0]
        views.append((text_vector(p, whole), text_vector(p, crop)))
    flat = [view for pair in views for view in pair]
    total = 0.0
    for number, view in enumerate(flat):
        partner = number ^ 1
        weights = [np.exp(view @ other / TEMPERATURE) for other in flat]
        del_self = sum(weights) - weights[number]
        total -= 0.5 * float(np.log(weights[partner] / del_self))
    return total


def numpy_sum(term: str, case: Case) -> float:
    if term == "mlm":
        return plain.mlm_sum(case.arrays, case.pieces, GENERATOR_HEADS)
    return {"copy": copy_sum, "clm": clm_sum, "scl": scl_sum}[term](case.arrays, case)


@pytest.fixture(scope="module", params=[("mixture", 16, False), ("weighted", 12, True)], ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    """The table as wide as the states, as in the paper; and narrower."""
    return make_case(*request.param)


def test_the_case_holds_every_kind_of_token(case):
    pieces = case.pieces
    assert len(pieces) == 4 and [number for number, _, _ in case.crops] == [0, 1, 3]
    replaced = sum(int((p.corrupted != p.original).sum()) for p in pieces)
    assert 0 < replaced < sum(len(p.chosen) for p in pieces)
    for p in pieces:
        rest = np.setdiff1d(np.arange(len(p.original)), p.chosen)
        assert (p.corrupted[rest] == p.original[rest]).all()
        assert p.corrupted[0] == CLS and (p.shown[p.chosen] != p.original[p.chosen]).all()


@pytest.mark.parametrize("term", TERMS)
def test_each_loss_equals_the_numpy_program(case, term):
    assert losses_of(case.objective, case.batch).sums[term].item() == pytest.approx(
        numpy_sum(term, case), rel=1e-6
    )


def test_the_counts_are_those_of_the_pieces(case):
    num_chosen = sum(len(piece.chosen) for piece in case.pieces)
    assert {term: count.item() for term, count in case.objective.counts(case.batch).items()} == {
        "mlm": num_chosen,
        "copy": sum(len(piece.original) for piece in case.pieces),
        "clm": num_chosen,
        "scl": 3,
    }


NAMES = (
    "discriminator.encoder.embeddings.word_VE",
    "discriminator.encoder.embeddings.positions.weight",
    "discriminator.encoder.layers.0.qkv.weight",
    "discriminator.encoder.layers.1.feed_forward_output.bias",
    "discriminator.copy_head.prediction.weight",
    "discriminator.corrective_head.bias_V",
    "discriminator.vector_head.dense.weight",
    "generator.head.dense.weight",
)


@pytest.mark.parametrize("term", TERMS)
def test_the_gradients_equal_central_differences_with_a_constant_copy_probability(case, term):
    case.objective.zero_grad()
    losses_of(case.objective, case.batch).sums[term].backward()
    for name in NAMES:
        gradient = case.objective.get_parameter(name).grad
        found = np.zeros(case.arrays[name].size) if gradient is None else gradient.numpy().reshape(-1)
        flat = case.arrays[name].reshape(-1)
        assert np.shares_memory(flat, case.arrays[name])
        random = np.random.default_rng(len(name))
        largest = np.argsort(-np.abs(found))[:3]
        for at in itertools.chain(largest, random.integers(0, flat.size, 3)):
            original = flat[at]
            flat[at] = original + STEP
            above = numpy_sum(term, case)
            flat[at] = original - STEP
            slope = (above - numpy_sum(term, case)) / (2 * STEP)
            flat[at] = original
            # The differences are good to about 1e-9; logits pass through float32 at one place or another.
            assert found[at] == pytest.approx(slope, rel=1e-5, abs=1e-6 * np.abs(found).max() + 1e-8), name
