"""A small objective in float64 beside its arrays for NumPy, and slopes by central differences."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy_electra import Arrays, Piece
from small_batches import batch_of_pieces, losses_of

from electra_cli.corruption import Chosen
from electra_cli.data.batches import Batch
from electra_cli.objectives.base import Objective

VOCABULARY, STEP = 40, 1e-5
SMALL = {
    "rows": {"sequence_length": 20},
    "model": {"hidden_size": 16, "feed_forward_size": 24, "embedding_size": 12},
    "generator": {"width": 8, "depth_fraction": 0.5},
}


@dataclass
class Case:
    """One batch of three pieces in two rows."""

    objective: Objective
    batch: Batch
    arrays: Arrays
    """By every name, views of the parameters themselves; a shared table stands under both of its names."""
    chosen: Chosen


def make_case(objective: Objective, chosen_of: Callable[[Batch], Chosen]) -> Case:
    objective.double()
    random = np.random.default_rng(5)
    with torch.no_grad():
        for parameter in objective.parameters():
            # Biases and LayerNorms away from 0 and 1, matrices large enough that everything matters.
            parameter.add_(torch.from_numpy(random.normal(0, 0.25, parameter.shape)))
    words = random.integers(5, VOCABULARY, 20).tolist()
    batch = batch_of_pieces([[words[:7], words[7:11]], [words[11:]]], 20)
    arrays = {name: p.detach().numpy() for name, p in objective.named_parameters(remove_duplicate=False)}
    return Case(objective, batch, arrays, chosen_of(batch))


def pieces_of(case: Case, *, shown_to: str, corrupted_to: str) -> list[Piece]:
    """The batch piece by piece, as the two named networks got to see it; one may be named twice."""
    seen: dict[str, np.ndarray] = {}

    def keep(name: str):
        return lambda _, inputs: seen.update({name: inputs[0].numpy()})

    nets = {shown_to, corrupted_to}
    hooks = [case.objective.get_submodule(net).register_forward_pre_hook(keep(net)) for net in nets]
    losses_of(case.objective, case.batch)
    for hook in hooks:
        hook.remove()
    is_chosen = np.zeros(case.batch.token_ids_BS.shape, bool)
    is_chosen.flat[case.chosen.index_M[case.chosen.weight_M > 0].numpy()] = True
    pieces = []
    for row, number in enumerate(case.batch.piece_BS.numpy()):
        for piece in range(1, number.max() + 1):
            here = row, np.flatnonzero(number == piece)
            pieces.append(
                Piece(
                    original=case.batch.token_ids_BS.numpy()[here],
                    shown=seen[shown_to][here],
                    chosen=np.flatnonzero(is_chosen[here]),
                    corrupted=seen[corrupted_to][here],
                    segment=case.batch.segment_BS.numpy()[here],
                )
            )
    return pieces


def assert_gradients(case: Case, term: str, loss: Callable[[], float], *, per_tensor: int = 5) -> None:
    """The gradient of a term at some places of every tensor that training moves, against `loss`'s slope."""
    case.objective.zero_grad()
    losses_of(case.objective, case.batch).sums[term].backward()
    random, some = np.random.default_rng(7), 0
    for name, parameter in case.objective.named_parameters():
        if not parameter.requires_grad:
            assert parameter.grad is None, name
            continue
        found = np.zeros(parameter.shape) if parameter.grad is None else parameter.grad.numpy()
        flat = case.arrays[name].reshape(-1)
        assert np.shares_memory(flat, case.arrays[name])
        # Of a table with unused rows mostly the used ones.
        used = np.flatnonzero(found)
        places = [*random.permutation(used)[:per_tensor], random.integers(found.size)]
        some += len(used)
        for place in places:
            original = flat[place]
            flat[place] = original + STEP
            above = loss()
            flat[place] = original - STEP
            slope = (above - loss()) / (2 * STEP)
            flat[place] = original
            # Differences of float64 sums of some dozens are good to about 1e-9; a loss that casts its logit
            # to float32 to 6e-8 of each token's part.
            tolerance = 1e-5 * abs(slope) + 1e-6 * np.abs(found).max() + 1e-8
            assert abs(found.reshape(-1)[place] - slope) <= tolerance, f"{term} {name} {place}"
    assert some
