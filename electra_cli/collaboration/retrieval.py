"""Examples for a prompt: the training texts whose pooled hidden states are nearest to a row's."""

# N rows, E examples, D hidden

from collections.abc import Sequence

import numpy as np

from electra_cli.collaboration.answers import States

_ROWS_AT_ONCE = 256


def normalised(state_ND: States) -> States:
    """Each state divided by its length."""
    length_N = np.linalg.norm(state_ND, axis=1, keepdims=True)
    unit_ND: States = (state_ND / np.maximum(length_N, 1e-12)).astype(np.float32)
    return unit_ND


def nearest(
    state_ND: States, example_ED: States, groups: Sequence[Sequence[int]], count: int
) -> list[tuple[int, ...]]:
    """For each row the `count` examples of largest cosine within each group, the nearest first.

    `groups` are lists of example numbers: one with all of them, or one a class for balanced examples. Equal
    cosines keep the examples' order.
    """
    found: list[tuple[int, ...]] = []
    group_of = [np.asarray(group, dtype=np.int64) for group in groups if len(group)]
    unit_ND, unit_ED = normalised(state_ND), normalised(example_ED)
    for start in range(0, len(unit_ND), _ROWS_AT_ONCE):
        for cosine_E in unit_ND[start : start + _ROWS_AT_ONCE] @ unit_ED.T:
            chosen = [group[np.argsort(-cosine_E[group], kind="stable")[:count]] for group in group_of]
            found.append(tuple(int(number) for numbers in chosen for number in numbers))
    return found
