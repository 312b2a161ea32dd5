"""Soups: the average of the weights of several runs that began at the same weights.

Wortsman et al. 2022 (arXiv 2203.05482) average models fine-tuned from one checkpoint; MCL averages models
pre-trained on different courses from one initialisation. Of runs that began elsewhere no average makes sense.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Ingredient:
    """A run that goes into a soup."""

    name: str
    origin: Mapping[str, object]
    """What its initial weights followed from, by the names of the settings and content hashes."""
    tensors: Mapping[str, Tensor]


def require_one_origin(ingredients: Sequence[Ingredient]) -> None:
    """InputError naming both values of everything in which a run began elsewhere than the first."""
    first = ingredients[0]
    for other in ingredients[1:]:
        differing = [
            f"{key} = {first.origin.get(key)!r} in {first.name}, {other.origin.get(key)!r} in {other.name}"
            for key in dict.fromkeys([*first.origin, *other.origin])
            if first.origin.get(key) != other.origin.get(key)
        ]
        shapes, others = ({k: tuple(v.shape) for k, v in one.tensors.items()} for one in (first, other))
        differing += [
            f"{name} is {_shown(shapes, name)} in {first.name}, {_shown(others, name)} in {other.name}"
            for name in dict.fromkeys([*shapes, *others])
            if shapes.get(name) != others.get(name)
        ][:3]
        if differing:
            raise InputError(
                "these runs did not start from the same weights:\n  " + "\n  ".join(differing),
                hint="they need one seed and one shape; [objective], data and learning rate may differ",
            )


def _shown(shapes: Mapping[str, tuple[int, ...]], name: str) -> str:
    return str(list(shapes[name])) if name in shapes else "not there"


def average(ingredients: Sequence[Ingredient]) -> dict[str, Tensor]:
    """The mean of each tensor, taken in float64; what is no floating-point number is the first's."""
    first = ingredients[0].tensors
    return {
        name: torch.stack([one.tensors[name].double() for one in ingredients]).mean(0).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in first.items()
    }


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which runs a greedy soup took, and the scores that decided it."""

    taken: tuple[int, ...]
    """Numbers of the runs, in the order in which they came in."""
    alone: tuple[float | None, ...]
    """Score of each run by itself; `None` where it gave none."""
    score: float | None
    """Of the soup; `None` where no run gave a score."""


def choose_greedily(number: int, score: Callable[[tuple[int, ...]], float | None]) -> Choice:
    """Begin with the best of `number` runs; take each next best if the soup does not score lower with it.

    `score` tells how good the average of some runs is; higher is better, and `None` is worse than any score.
    Wortsman et al. 2022, Recipe 1.
    """
    alone = tuple(score((run,)) for run in range(number))
    first, *rest = sorted(range(number), key=lambda run: _rank(alone[run]), reverse=True)
    taken: tuple[int, ...] = (first,)
    best = alone[first]
    for run in rest:
        value = score((*taken, run))
        if value is not None and _rank(value) >= _rank(best):
            taken, best = (*taken, run), value
    return Choice(taken=taken, alone=alone, score=best)


def _rank(score: float | None) -> float:
    return -math.inf if score is None else score
