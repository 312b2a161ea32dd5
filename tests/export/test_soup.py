"""Soups: averages, the greedy choice, and strangers that are refused."""

import pytest
import torch

from electra_cli.errors import InputError
from electra_cli.export.soup import Ingredient, average, choose_greedily, require_one_origin


def ingredient(name: str, value: float, *, seed: int = 0, size: int = 3, extra: bool = False) -> Ingredient:
    tensors = {"body.weight": torch.full((2, size), value), "steps": torch.tensor(7)}
    if extra:
        tensors["head.bias"] = torch.zeros(1)
    return Ingredient(name=name, origin={"project.seed": seed}, tensors=tensors)


def test_the_average_is_the_mean_of_each_tensor():
    # 0.1 and 1e8 have no exact mean in float32 sums; the mean in float64 is rounded once.
    found = average([ingredient("a", 1e8), ingredient("b", 0.1), ingredient("c", -1e8)])
    expected = torch.full((2, 3), (1e8 + float(torch.tensor(0.1)) - 1e8) / 3)
    assert torch.equal(found["body.weight"], expected.float())
    assert found["steps"] == 7 and found["body.weight"].dtype == torch.float32


def test_a_soup_of_one_run_is_that_run():
    one = ingredient("a", 0.3)
    assert all(torch.equal(value, one.tensors[name]) for name, value in average([one]).items())


@pytest.mark.parametrize(
    ("stranger", "texts"),
    [
        (ingredient("b", 0.0, seed=4), ("project.seed = 0 in a", "4 in b")),
        (ingredient("b", 0.0, size=5), ("body.weight is [2, 3] in a", "[2, 5] in b")),
        (ingredient("b", 0.0, extra=True), ("head.bias is not there in a", "[1] in b")),
    ],
)
def test_strangers_are_refused_with_both_values(stranger, texts):
    with pytest.raises(InputError) as caught:
        require_one_origin([ingredient("a", 1.0), ingredient("c", 2.0), stranger])
    assert caught.value.exit_code == 4
    assert all(text in caught.value.message for text in texts)
    require_one_origin([ingredient("a", 1.0), ingredient("c", 2.0)])


def test_a_run_without_a_score_comes_last_and_never_in():
    scores = {(0,): None, (1,): 0.4, (1, 0): None}
    assert choose_greedily(2, scores.__getitem__).taken == (1,)
    assert choose_greedily(2, lambda _: None).score is None


def test_a_greedy_soup_takes_the_best_first_and_keeps_what_does_not_harm():
    scores = {(0,): 0.5, (1,): 0.8, (2,): 0.7, (3,): 0.6, (1, 2): 0.75, (1, 3): 0.8, (1, 3, 0): 0.9}
    asked = []

    def score(runs: tuple[int, ...]) -> float:
        asked.append(runs)
        return scores[runs]

    choice = choose_greedily(4, score)
    assert choice.taken == (1, 3, 0) and choice.score == 0.9 and choice.alone == (0.5, 0.8, 0.7, 0.6)
    assert asked == [(0,), (1,), (2,), (3,), (1, 2), (1, 3), (1, 3, 0)]
