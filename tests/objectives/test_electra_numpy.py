"""Both losses and their gradients against an independent float64 program with central differences."""

from dataclasses import dataclass, replace

import numpy as np
import numpy_electra as plain
import pytest
import torch
from numpy_electra import Arrays, Piece
from small_batches import batch_of_pieces, losses_of, small_settings, total_loss, vocabulary_facts

from electra_cli.data.batches import Batch
from electra_cli.objectives.electra import Electra

VOCABULARY, HEADS = 40, {"generator": 1, "discriminator": 2}
COORDINATES = {12: 200, 8: 20, 16: 20}
"""By the embedding size: the case with both projections is tried at 200 places a tensor."""

STEP = 1e-5


@dataclass
class Case:
    """A small model of float64, a batch, and the same in NumPy."""

    objective: Electra
    batch: Batch
    arrays: Arrays
    """By every name; a shared table is one array under both names."""
    pieces: list[Piece]


def alias_of(name: str) -> str:
    return name.replace("discriminator.encoder.embeddings", "generator.encoder.embeddings")


def make_case(sharing: str, embedding_size: int) -> Case:
    settings = small_settings(
        rows={"sequence_length": 20},
        model={"hidden_size": 16, "feed_forward_size": 24, "embedding_size": embedding_size},
        generator={"width": 8, "depth_fraction": 0.5, "sharing": sharing},
        masking={"fraction": 0.25, "keep_fraction": 0.4},
    )
    objective = Electra(settings, vocabulary_facts(VOCABULARY)).double()
    random = np.random.default_rng(5)
    with torch.no_grad():
        for parameter in objective.parameters():
            # Biases and LayerNorms away from 0 and 1, matrices large enough that everything matters.
            parameter.add_(torch.from_numpy(random.normal(0, 0.25, parameter.shape)))
    arrays = {name: p.detach().numpy() for name, p in objective.named_parameters()}
    if sharing == "tied":
        arrays |= {alias_of(name): array for name, array in arrays.items()}
    words = random.integers(5, VOCABULARY, 20).tolist()
    batch = batch_of_pieces([[words[:7], words[7:11]], [words[11:]]], 20)
    return Case(objective, batch, arrays, pieces_of(objective, batch))


def pieces_of(objective: Electra, batch: Batch) -> list[Piece]:
    """The batch piece by piece, as our objective masks and corrupts it."""
    seen: dict[str, np.ndarray] = {}

    def keep(name: str):
        return lambda _, inputs: seen.update({name: inputs[0].numpy()})

    hooks = [getattr(objective, net).register_forward_pre_hook(keep(net)) for net in HEADS]
    losses_of(objective, batch)
    for hook in hooks:
        hook.remove()
    chosen = objective.masking.choose(batch)
    is_chosen = np.zeros(batch.token_ids_BS.shape, bool)
    is_chosen.flat[chosen.index_M[chosen.weight_M > 0].numpy()] = True
    pieces = []
    for row, number in enumerate(batch.piece_BS.numpy()):
        for piece in range(1, number.max() + 1):
            here = row, np.flatnonzero(number == piece)
            pieces.append(
                Piece(
                    original=batch.token_ids_BS.numpy()[here],
                    shown=seen["generator"][here],
                    chosen=np.flatnonzero(is_chosen[here]),
                    corrupted=seen["discriminator"][here],
                    segment=batch.segment_BS.numpy()[here],
                )
            )
    return pieces


@pytest.fixture(scope="module", params=[("tied", 12), ("tied", 8), ("none", 16)], ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    """Projections in both networks; in the discriminator alone; in the generator alone."""
    return make_case(*request.param)


def numpy_sums(case: Case) -> dict[str, float]:
    return {
        "mlm": plain.mlm_sum(case.arrays, case.pieces, HEADS["generator"]),
        "rtd": plain.rtd_sum(case.arrays, case.pieces, HEADS["discriminator"]),
    }


def test_pitfall_K13_both_losses_equal_the_numpy_program(case):
    sums, expected = losses_of(case.objective, case.batch).sums, numpy_sums(case)
    assert len(case.pieces) == 3 and sum(len(p.chosen) for p in case.pieces) == 7
    for name in ("mlm", "rtd"):
        assert sums[name].item() == pytest.approx(expected[name], rel=1e-6)


def test_the_total_is_the_weighted_sum_of_two_means(case):
    expected = numpy_sums(case)
    num_chosen = sum(len(piece.chosen) for piece in case.pieces)
    num_real = sum(len(piece.original) for piece in case.pieces)
    total = expected["mlm"] / num_chosen + 50 * expected["rtd"] / num_real
    assert total_loss(case.objective, case.batch).item() == pytest.approx(total, rel=1e-6)


def test_the_samples_are_those_of_the_generators_distribution(case):
    """The same uniform numbers, put through NumPy's own softmax, give the same ids."""
    chosen = case.objective.masking.choose(case.batch)
    uniform = case.objective.masking.uniform(case.batch, chosen)
    used = chosen.weight_M.numpy() > 0
    # Slots run through the rows in the order of the places, as the pieces do.
    left = uniform.numpy()[used]
    for piece in case.pieces:
        own, left = left[: len(piece.chosen)], left[len(piece.chosen) :]
        drawn = plain.sample(case.arrays, piece, own, HEADS["generator"]) if len(own) else []
        assert piece.corrupted[piece.chosen].tolist() == list(drawn)
    assert not len(left)


def test_the_case_holds_kept_masked_and_replaced_tokens(case):
    """The case holds what it is meant to test: kept, masked and replaced tokens."""
    kept = sum(int((p.shown[p.chosen] == p.original[p.chosen]).sum()) for p in case.pieces)
    replaced = sum(int((p.corrupted != p.original).sum()) for p in case.pieces)
    num_chosen = sum(len(p.chosen) for p in case.pieces)
    assert 0 < kept < num_chosen and 0 < replaced <= num_chosen
    unchanged = [replace(p, corrupted=p.original) for p in case.pieces]
    assert plain.rtd_sum(case.arrays, unchanged, 2) != plain.rtd_sum(case.arrays, case.pieces, 2)


def gradient_of(case: Case, term: str) -> Arrays:
    case.objective.zero_grad()
    losses_of(case.objective, case.batch).sums[term].backward()
    return {
        name: np.zeros(p.shape) if p.grad is None else p.grad.numpy().copy()
        for name, p in case.objective.named_parameters()
    }


def central_differences(case: Case, name: str, coordinates: np.ndarray) -> dict[str, np.ndarray]:
    """Both losses' slopes; a loss whose network does not hold the tensor is not computed but 0."""
    is_shared = ".embeddings." in name and alias_of(name) in case.arrays
    terms = []
    if is_shared or name.startswith("generator"):
        terms.append(("mlm", lambda: plain.mlm_sum(case.arrays, case.pieces, HEADS["generator"])))
    if is_shared or name.startswith("discriminator"):
        terms.append(("rtd", lambda: plain.rtd_sum(case.arrays, case.pieces, HEADS["discriminator"])))
    slopes = {term: np.zeros(len(coordinates)) for term in ("mlm", "rtd")}
    flat = case.arrays[name].reshape(-1)
    assert np.shares_memory(flat, case.arrays[name])
    for number, coordinate in enumerate(coordinates):
        original = flat[coordinate]
        for term, loss in terms:
            flat[coordinate] = original + STEP
            above = loss()
            flat[coordinate] = original - STEP
            slopes[term][number] = (above - loss()) / (2 * STEP)
        flat[coordinate] = original
    return slopes


def sampled_coordinates(name: str, gradients: list[np.ndarray], number: int) -> np.ndarray:
    """Up to `number`; of a table with unused rows mostly those that matter, and some that must be 0."""
    used = np.flatnonzero(sum(np.abs(g).reshape(-1) for g in gradients))
    idle = np.setdiff1d(np.arange(gradients[0].size), used)
    random = np.random.default_rng(len(name))
    picked = random.permutation(used)[: number - min(number // 10, len(idle))]
    return np.concatenate([picked, random.permutation(idle)[: number - len(picked)]])


def test_every_gradient_equals_central_differences(case):
    """Coordinates of every tensor; the tied tables' slope is the sum of both losses' slopes."""
    found = {term: gradient_of(case, term) for term in ("mlm", "rtd")}
    number = COORDINATES[case.objective.discriminator.encoder.config.embedding_size]
    checked = 0
    for name in found["mlm"]:
        gradients = [found[term][name] for term in ("mlm", "rtd")]
        coordinates = sampled_coordinates(name, gradients, number)
        slopes = central_differences(case, name, coordinates)
        for term, gradient in zip(("mlm", "rtd"), gradients, strict=True):
            # The discriminator's logit is cast to float32 before its loss: relative 6e-8 of each token's
            # part, in sums of 26 tokens; the differences themselves are good to about 1e-9.
            scale = np.abs(gradient).max()
            np.testing.assert_allclose(
                gradient.reshape(-1)[coordinates],
                slopes[term],
                rtol=1e-5,
                atol=1e-6 * scale + 1e-8,
                err_msg=f"{term} {name}",
            )
            checked += len(coordinates)
    assert checked > 30 * number


def test_the_tied_gradient_of_the_total_is_the_weighted_sum(case):
    mlm, rtd = gradient_of(case, "mlm"), gradient_of(case, "rtd")
    counts = case.objective.counts(case.batch)
    case.objective.zero_grad()
    total_loss(case.objective, case.batch).backward()
    for name, parameter in case.objective.named_parameters():
        expected = mlm[name] / counts["mlm"].item() + 50 * rtd[name] / counts["rtd"].item()
        # As above: the discriminator's part passes through float32.
        atol = 1e-6 * np.abs(expected).max()
        np.testing.assert_allclose(parameter.grad.numpy(), expected, rtol=1e-5, atol=atol, err_msg=name)


def test_the_discriminator_loss_leaves_the_generators_body_alone(case):
    for name, gradient in gradient_of(case, "rtd").items():
        if name.startswith("generator"):
            assert not gradient.any(), name
