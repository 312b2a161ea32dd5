"""Keyed randomness: the same bits in NumPy and torch, and bits that look random."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli import keyed

properties = settings(max_examples=100, derandomize=True, deadline=None)
int64 = st.integers(-(2**63), 2**63 - 1)


@properties
@given(int64, st.lists(int64, min_size=1, max_size=5), int64)
def test_numpy_and_torch_give_the_same_bits(key: int, counters: list[int], second: int) -> None:
    array, other = np.array(counters, dtype=np.int64), np.array([second], dtype=np.int64)
    by_numpy = keyed.bits(key, array, other)
    by_torch = keyed.bits(key, torch.tensor(counters), torch.tensor([second]))
    assert by_numpy.tolist() == by_torch.tolist()
    assert (
        keyed.uniform(key, array, other).tolist()
        == keyed.uniform(key, torch.tensor(counters), torch.tensor([second])).tolist()
    )


@properties
@given(int64, int64, int64)
def test_bits_equal_the_published_mixer_in_whole_numbers(key: int, first: int, second: int) -> None:
    wrap = (1 << 64) - 1

    def mixed(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & wrap
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & wrap
        return x ^ (x >> 31)

    state = mixed((first * 0x9E3779B97F4A7C15 + key) & wrap)
    state = mixed(((state ^ (second & wrap)) * 0x9E3779B97F4A7C15 + key) & wrap)
    got = keyed.bits(key, np.array([first], dtype=np.int64), np.array([second], dtype=np.int64))
    assert int(got[0]) & wrap == state


@properties
@given(int64, st.lists(int64, min_size=1, max_size=20))
def test_uniforms_lie_in_the_half_open_unit_interval(key: int, counters: list[int]) -> None:
    drawn = keyed.uniform(key, np.array(counters, dtype=np.int64))
    assert drawn.dtype == np.float64 and (drawn >= 0).all() and (drawn < 1).all()


def test_uniforms_are_uniform_and_neighbours_unrelated() -> None:
    drawn = keyed.uniform(keyed.key(0, "test"), np.arange(200_000))
    counts = np.histogram(drawn, bins=100, range=(0, 1))[0]
    # Chi-square with 99 degrees of freedom: mean 99, standard deviation 14.
    assert abs(((counts - 2000) ** 2 / 2000).sum() - 99) < 5 * 14
    # The correlation of 200,000 pairs has a standard deviation of 0.0022.
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 * 0.0022


def test_one_changed_input_bit_changes_half_of_the_output() -> None:
    places = np.arange(500, dtype=np.int64)
    for bit in range(0, 63, 7):
        changed = keyed.bits(5, places) ^ keyed.bits(5, places ^ (1 << bit))
        flipped = np.unpackbits(changed.view(np.uint8)).mean()
        # 32,000 bits: the standard deviation of the share is 0.0028.
        assert abs(flipped - 0.5) < 5 * 0.0028


def test_counters_broadcast() -> None:
    rows, places = np.arange(3)[:, None], np.arange(4)[None, :]
    block = keyed.bits(9, rows, places)
    assert block.shape == (3, 4)
    assert block[2, 3] == keyed.bits(9, np.array([2]), np.array([3]))[0]


def test_keys_depend_on_seed_and_purpose_alone() -> None:
    assert keyed.key(0, "mask") == keyed.key(0, "mask")
    keys = {keyed.key(seed, purpose) for seed in range(50) for purpose in ("mask", "order", "sample")}
    assert len(keys) == 150
    # "1" + "2x" and "12" + "x" are different pairs.
    assert keyed.key(1, "2x") != keyed.key(12, "x")
    assert -(2**63) <= keyed.key(2**63 - 1, "mask") < 2**63


@properties
@given(st.integers(1, 3000), int64)
def test_P01_permuted_is_a_permutation(size: int, key: int) -> None:
    image = keyed.permuted(np.arange(size), size, key)
    assert sorted(image.tolist()) == list(range(size))


@properties
@given(st.integers(1, 2**62), int64, st.integers(0, 2**62))
def test_permuted_keeps_huge_ranges(size: int, key: int, index: int) -> None:
    image = keyed.permuted(np.array([index % size]), size, key)
    assert 0 <= int(image[0]) < size


def test_permuted_reaches_every_place_equally() -> None:
    keys = [keyed.key(seed, "order") for seed in range(1500)]
    images = np.stack([keyed.permuted(np.arange(10), 10, key) for key in keys])
    for place in range(10):
        counts = np.bincount(images[:, place], minlength=10)
        # Chi-square with 9 degrees of freedom: 40 has a probability below 1e-5.
        assert ((counts - 150) ** 2 / 150).sum() < 40
    pairs = np.bincount(images[:, 0] * 10 + images[:, 1], minlength=100)
    # 90 pairs of different places: mean 89, standard deviation 13.
    off = ~np.eye(10, dtype=bool).reshape(-1)
    assert ((pairs[off] - 1500 / 90) ** 2 / (1500 / 90)).sum() < 89 + 5 * 13


@pytest.mark.parametrize(("index", "size"), [(5, 5), (-1, 5), (0, 0)])
def test_permuted_refuses_places_outside(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="indices must lie in"):
        keyed.permuted(np.array([index]), size, 1)
