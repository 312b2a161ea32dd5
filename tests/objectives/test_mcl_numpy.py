"""MCL's nine losses against an independent float64 program, both rounds."""

from dataclasses import dataclass

import numpy as np
import numpy_electra as plain
import pytest
import torch
from numpy_electra import Arrays, Piece
from small_batches import MASK, batch_of_pieces, losses_of, small_settings, vocabulary_facts

from electra_cli.data.batches import Batch
from electra_cli.objectives.mcl import MCL

VOCABULARY, NUM_ROWS, GENERATOR_HEADS, MAIN_HEADS = 40, 4, 1, 2
TERMS = ("mlm", "rtd", "slm", "std", "itd", "re_mlm", "re_rtd", "re_slm", "re_std")


@dataclass(frozen=True)
class Pass:
    """What a network saw in one call: rows of all courses, one below the other."""

    ids: np.ndarray
    piece: np.ndarray
    segment: np.ndarray

    def of(self, course: int) -> "Pass":
        rows = slice(course * NUM_ROWS, (course + 1) * NUM_ROWS)
        return Pass(self.ids[rows], self.piece[rows], self.segment[rows])


@dataclass(frozen=True)
class Case:
    """A model of float64 after one forward pass, and what it made of the batch."""

    objective: MCL
    batch: Batch
    arrays: Arrays
    generator: list[Pass]
    discriminator: list[Pass]
    """The first and the second round."""


def make_case() -> Case:
    settings = small_settings(
        rows={"sequence_length": 20},
        model={"hidden_size": 16, "feed_forward_size": 24, "embedding_size": 12},
        generator={"width": 8, "depth_fraction": 0.5},
        masking={"fraction": 0.3, "keep_fraction": 0.3},
        objective={"use": "mcl"},
    )
    objective = MCL(settings, vocabulary_facts(VOCABULARY)).double()
    random = np.random.default_rng(5)
    words = random.integers(5, 12, 64).tolist()
    rows = [[words[:18]], [words[18:24], words[24:34]], [words[34:42], words[42:50]], [words[50:57]]]
    batch = batch_of_pieces(rows, 20)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.add_(torch.from_numpy(random.normal(0, 0.25, parameter.shape)))
        objective.generator.head.bias_V[5:9] += 4.0
        # Half of what is changed is caught: the discriminator's threshold lies in the middle.
        lessons = objective._lessons(batch)
        answers = objective._examine(lessons, objective._write(lessons))[:2]
        changed = torch.cat([answer.logit_BS[answer.is_changed_BS] for answer in answers])
        objective.discriminator.head.prediction.bias -= changed.mean()
    arrays = {name: p.detach().numpy() for name, p in objective.named_parameters()}
    arrays |= {
        name.replace("discriminator.encoder.embeddings", "generator.encoder.embeddings"): array
        for name, array in arrays.items()
    }
    passes: dict[str, list[Pass]] = {"generator": [], "discriminator": []}

    def keep(name: str):
        def hook(_, inputs):
            given = inputs[1]
            passes[name].append(Pass(inputs[0].numpy(), given.piece_BS.numpy(), given.segment_BS.numpy()))

        return hook

    hooks = [getattr(objective, name).register_forward_pre_hook(keep(name)) for name in passes]
    losses_of(objective, batch)
    for hook in hooks:
        hook.remove()
    return Case(objective, batch, arrays, passes["generator"], passes["discriminator"])


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case()


def logits(p: Arrays, seen: Pass) -> np.ndarray:
    """The discriminator's, 0 on padding."""
    found = np.zeros(seen.ids.shape)
    for row, numbers in enumerate(seen.piece):
        for number in range(1, numbers.max() + 1):
            at = row, np.flatnonzero(numbers == number)
            hidden = plain.encode(p, "discriminator", seen.ids[at], seen.segment[at], MAIN_HEADS)
            inner = plain.gelu(plain.linear(hidden, p, "discriminator.head.dense"))
            found[at] = plain.linear(inner, p, "discriminator.head.prediction")[:, 0]
    return found


def detection(logit: np.ndarray, is_changed: np.ndarray, counted: np.ndarray) -> float:
    loss = np.logaddexp(0, logit) - np.where(is_changed, logit, 0.0)
    return float(loss[counted].sum())


def restoration(p: Arrays, shown: Pass, original: np.ndarray, counted: np.ndarray) -> float:
    """The generator's cross entropy at the counted places."""
    pieces = []
    for row, numbers in enumerate(shown.piece):
        for number in range(1, numbers.max() + 1):
            at = row, np.flatnonzero(numbers == number)
            pieces.append(
                Piece(
                    original=original[at],
                    shown=shown.ids[at],
                    chosen=np.flatnonzero(counted[at]),
                    corrupted=original[at],
                    segment=shown.segment[at],
                )
            )
    return plain.mlm_sum(p, pieces, GENERATOR_HEADS)


def chosen_places(case: Case, course: int) -> np.ndarray:
    lesson = case.objective._lessons(case.batch)[course]
    places = np.zeros(case.batch.token_ids_BS.shape, bool)
    places.flat[lesson.chosen.index_M[lesson.chosen.weight_M > 0].numpy()] = True
    return places


@pytest.mark.parametrize(("course", "restore", "detect"), [(0, "mlm", "rtd"), (1, "slm", "std")])
def test_the_first_round_equals_the_numpy_program(case, course, restore, detect):
    sums, original = losses_of(case.objective, case.batch).sums, case.batch.token_ids_BS.numpy()
    shown, corrupted = case.generator[0].of(course), case.discriminator[0].of(course)
    places, is_real = chosen_places(case, course), case.batch.piece_BS.numpy() > 0
    assert (shown.ids[~places] == original[~places]).all()
    assert (corrupted.ids[~places] == original[~places]).all()
    is_changed = corrupted.ids != original
    assert 0 < is_changed.sum() < places.sum()
    assert sums[restore].item() == pytest.approx(restoration(case.arrays, shown, original, places), rel=1e-6)
    expected = detection(logits(case.arrays, corrupted), is_changed, is_real)
    assert sums[detect].item() == pytest.approx(expected, rel=1e-6)


def test_what_the_courses_show_is_hidden_swapped_and_inserted(case):
    original = case.batch.token_ids_BS.numpy()
    masked, swapped, inserted = (case.generator[0].of(course).ids for course in range(3))
    hidden = masked != original
    assert hidden.any() and (masked[hidden] == MASK).all()
    assert (np.sort(swapped, 1) == np.sort(original, 1)).all() and (swapped != original).any()
    assert not (swapped == MASK).any() and (inserted == MASK).sum() == chosen_places(case, 2).sum()


def test_insertions_are_labelled_by_place_and_never_by_content(case):
    sums = losses_of(case.objective, case.batch).sums
    shown, corrupted = case.generator[0].of(2), case.discriminator[0].of(2)
    is_inserted = shown.ids == MASK
    assert not (corrupted.ids == MASK).any()
    assert (corrupted.ids[~is_inserted] == shown.ids[~is_inserted]).all()
    expected = detection(logits(case.arrays, corrupted), is_inserted, corrupted.piece > 0)
    assert sums["itd"].item() == pytest.approx(expected, rel=1e-6)
    answers = case.objective._examine(
        lessons := case.objective._lessons(case.batch), case.objective._write(lessons)
    )
    assert (answers[2].is_changed_BS.numpy() == is_inserted).all()


@pytest.mark.parametrize(("course", "restore", "detect"), [(0, "re_mlm", "re_rtd"), (1, "re_slm", "re_std")])
def test_the_second_round_equals_the_numpy_program(case, course, restore, detect):
    sums, original = losses_of(case.objective, case.batch).sums, case.batch.token_ids_BS.numpy()
    shown, corrupted = case.generator[0].of(course), case.discriminator[0].of(course)
    is_real = case.batch.piece_BS.numpy() > 0
    is_changed, is_judged = corrupted.ids != original, logits(case.arrays, corrupted) > 0
    caught, fooled = is_changed & is_judged, is_changed & ~is_judged
    false_alarm = ~is_changed & is_judged & is_real
    assert caught.any() and fooled.any() and false_alarm.any()
    # The generator: only what was caught is hidden, all else is the original.
    again = case.generator[1].of(course)
    cue = MASK if course == 0 else shown.ids
    assert (again.ids == np.where(caught, cue, original)).all()
    assert sums[restore].item() == pytest.approx(restoration(case.arrays, again, original, caught), rel=1e-6)
    # The discriminator: what was caught is the original, and only its mistakes count.
    better = case.discriminator[1].of(course)
    assert (better.ids == np.where(caught, original, corrupted.ids)).all()
    expected = detection(logits(case.arrays, better), better.ids != original, fooled | false_alarm)
    assert sums[detect].item() == pytest.approx(expected, rel=1e-6)


def test_the_counts_are_fixed_lists_whatever_the_networks_answer(case):
    counts = {term: count.item() for term, count in case.objective.counts(case.batch).items()}
    num_real = float((case.batch.piece_BS > 0).sum())
    num_chosen = [float(chosen_places(case, course).sum()) for course in range(3)]
    num_longer = float((case.generator[0].of(2).piece > 0).sum())
    assert counts == {
        **dict.fromkeys(("mlm", "re_mlm"), num_chosen[0]),
        **dict.fromkeys(("slm", "re_slm"), num_chosen[1]),
        **dict.fromkeys(("rtd", "re_rtd", "std", "re_std"), num_real),
        "itd": num_longer,
    }


def test_each_network_is_called_once_a_round(case):
    assert len(case.generator) == len(case.discriminator) == 2
    assert [len(one.ids) for one in case.generator] == [3 * NUM_ROWS, 2 * NUM_ROWS]
    assert [len(one.ids) for one in case.discriminator] == [3 * NUM_ROWS, 2 * NUM_ROWS]


def slope(case: Case, term: str, direction: dict[str, torch.Tensor], step: float) -> float:
    """Central difference of a term along a direction of all parameters."""
    found = []
    for sign in (1, -1):
        with torch.no_grad():
            for name, parameter in case.objective.named_parameters():
                parameter.add_(direction[name], alpha=sign * step)
            found.append(losses_of(case.objective, case.batch).sums[term].item())
            for name, parameter in case.objective.named_parameters():
                parameter.sub_(direction[name], alpha=sign * step)
    return (found[0] - found[1]) / (2 * step)


@pytest.mark.parametrize("term", TERMS)
def test_the_gradient_is_the_slope_along_it(case, term):
    """Samples, cells and labels are constants of the gradient: steps are too small to change them."""
    case.objective.zero_grad()
    losses_of(case.objective, case.batch).sums[term].backward()
    gradient = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in case.objective.named_parameters()
    }
    square = sum(float(g.square().sum()) for g in gradient.values())
    unit = {name: g / square**0.5 for name, g in gradient.items()}
    assert slope(case, term, unit, 1e-6) == pytest.approx(square**0.5, rel=1e-4)
