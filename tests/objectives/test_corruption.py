"""Which positions are chosen, what replaces them, and which labels follow."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_batches import (
    CLS,
    MASK,
    PADDING,
    SEP,
    UNKNOWN,
    batch_of_pieces,
    random_batch,
    with_more_padding,
)

from electra_cli import corruption, keyed
from electra_cli.data.batches import Batch

NEVER = (PADDING, CLS, SEP, MASK)


def choose(batch: Batch, fraction: float = 0.15, key: int = 7, **options: torch.Tensor) -> corruption.Chosen:
    return corruption.choose_positions(batch, fraction=fraction, never_masked=NEVER, key=key, **options)


def places_by_row(batch: Batch, chosen: corruption.Chosen) -> list[list[int]]:
    length = batch.token_ids_BS.shape[1]
    slots = len(chosen.index_M) // batch.token_ids_BS.shape[0]
    rows = chosen.index_M.view(-1, slots), chosen.weight_M.view(-1, slots)
    return [[int(i) % length for i, w in zip(*row, strict=True) if w] for row in zip(*rows, strict=True)]


def is_candidate(batch: Batch) -> np.ndarray:
    ids = batch.token_ids_BS.numpy()
    return (batch.piece_BS.numpy() > 0) & ~np.isin(ids, NEVER)


def expected_count(num_tokens: int, num_candidates: int, fraction: float) -> int:
    # Independent of the package: NumPy's rint also rounds half to even.
    return min(num_candidates, max(1, int(np.rint(fraction * num_tokens))))


batches = st.builds(
    random_batch,
    num_rows=st.integers(1, 5),
    length=st.integers(5, 70),
    vocabulary=st.integers(7, 400),
    seed=st.integers(0, 10**6),
    first_sample=st.integers(0, 2**62),
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(batch=batches, fraction=st.floats(0.01, 0.99), key=st.integers(-(2**63), 2**63 - 1))
def test_property_P15_positions_are_unique_candidates_in_the_exact_number(batch, fraction, key):
    chosen = choose(batch, fraction, key)
    slots = max(1, round(fraction * batch.token_ids_BS.shape[1]))
    assert chosen.index_M.shape == chosen.weight_M.shape == (batch.token_ids_BS.shape[0] * slots,)
    for row, places in enumerate(places_by_row(batch, chosen)):
        assert len(set(places)) == len(places)
        assert is_candidate(batch)[row][places].all()
        num_tokens = int((batch.piece_BS[row] > 0).sum())
        assert len(places) == expected_count(num_tokens, int(is_candidate(batch)[row].sum()), fraction)
    # An unused slot points at place 0 of its row.
    unused_M = chosen.weight_M == 0
    assert (chosen.index_M[unused_M] % batch.token_ids_BS.shape[1] == 0).all()


@settings(derandomize=True, deadline=None, max_examples=100)
@given(batch=batches, fraction=st.floats(0.01, 0.99), data=st.data())
def test_property_P16_samples_land_where_they_belong_and_labels_follow(batch, fraction, data):
    chosen = choose(batch, fraction)
    length = batch.token_ids_BS.shape[1]
    sampled_M = torch.from_numpy(
        np.random.default_rng(data.draw(st.integers(0, 999))).integers(0, 12, len(chosen.index_M))
    )
    corrupted_BS = corruption.put_samples(batch.token_ids_BS, chosen, sampled_M)
    is_replaced_BS = corruption.label_replaced(corrupted_BS, batch.token_ids_BS)
    expected = batch.token_ids_BS.clone()
    for index, weight, sampled in zip(chosen.index_M, chosen.weight_M, sampled_M, strict=True):
        if weight:
            expected[index // length, index % length] = sampled
    assert torch.equal(corrupted_BS, expected)
    assert torch.equal(is_replaced_BS, expected != batch.token_ids_BS)
    assert not is_replaced_BS[batch.piece_BS == 0].any()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(batch=batches, columns=st.integers(0, 40))
def test_padding_changes_no_choice_and_no_draw(batch, columns):
    padded = with_more_padding(batch, columns, rows=1)
    plain, more = choose(batch), choose(padded)
    assert places_by_row(padded, more)[:-1] == places_by_row(batch, plain)
    assert places_by_row(padded, more)[-1] == []
    drawn = [corruption.draw(b, c, key=3)[c.weight_M > 0] for b, c in ((batch, plain), (padded, more))]
    assert torch.equal(*drawn)


def test_choices_are_those_of_a_plain_numpy_program():
    batch = random_batch(6, 40, 100, seed=3, first_sample=90)
    for row, places in enumerate(places_by_row(batch, choose(batch, 0.25, key=11))):
        sample = np.full(40, int(batch.sample_B[row]), np.int64)
        values = keyed.uniform(11, sample, np.arange(40))
        candidates = np.flatnonzero(is_candidate(batch)[row])
        count = expected_count(int((batch.piece_BS[row] > 0).sum()), len(candidates), 0.25)
        assert places == sorted(candidates[np.argsort(values[candidates])][:count])


@pytest.mark.parametrize(
    ("num_tokens", "fraction", "number"),
    [
        (10, 0.15, 2),
        (30, 0.15, 4),
        (50, 0.15, 8),
        (10, 0.25, 2),
        (14, 0.25, 4),
        (128, 0.15, 19),
        (3, 0.15, 1),
    ],
)
def test_half_rounds_to_even(num_tokens, fraction, number):
    assert corruption.num_chosen(num_tokens, fraction) == number
    words = [[5] * (num_tokens - 2)]
    assert len(places_by_row(b := batch_of_pieces([words], 128), choose(b, fraction))[0]) == min(
        number, num_tokens - 2
    )


def test_pitfall_K11_ten_thousand_rows_follow_the_rule_and_the_85_15_split():
    batch = random_batch(10_000, 48, 200, seed=1)
    chosen = choose(batch)
    candidate = is_candidate(batch)
    for row, places in enumerate(places_by_row(batch, chosen)):
        assert len(set(places)) == len(places) and candidate[row][places].all()
        num_tokens = int((batch.piece_BS[row] > 0).sum())
        assert len(places) == expected_count(num_tokens, int(candidate[row].sum()), 0.15)
    masked_BS = corruption.mask_tokens(batch, chosen, mask_id=MASK, keep_fraction=0.15, key=8)
    total, hidden = int(chosen.weight_M.sum()), int((masked_BS == MASK).sum())
    # Binomial: five standard deviations.
    assert abs(hidden - 0.85 * total) < 5 * (total * 0.85 * 0.15) ** 0.5


def test_case_C01_each_replaced_id_is_the_one_sampled_for_that_position():
    for number in range(1000):
        batch = random_batch(4, 16, 60, seed=number, first_sample=4 * number)
        chosen = choose(batch)
        for places in places_by_row(batch, chosen):
            assert len(set(places)) == len(places)
        sampled_M = torch.randint(
            5, 60, chosen.index_M.shape, generator=torch.Generator().manual_seed(number)
        )
        corrupted_BS = corruption.put_samples(batch.token_ids_BS, chosen, sampled_M)
        used_M = chosen.weight_M > 0
        assert torch.equal(corrupted_BS.flatten()[chosen.index_M[used_M]], sampled_M[used_M])


def test_case_C02_padding_and_special_tokens_are_never_masked():
    batch = random_batch(500, 10, 300, seed=2)
    batch = with_more_padding(batch, 90)
    assert (batch.piece_BS == 0).float().mean() > 0.9
    chosen = choose(batch, 0.5)
    masked_BS = corruption.mask_tokens(batch, chosen, mask_id=MASK, keep_fraction=0.0, key=1)
    changed_BS = masked_BS != batch.token_ids_BS
    assert changed_BS.any()
    for special in (PADDING, CLS, SEP):
        assert not changed_BS[batch.token_ids_BS == special].any()
    assert not changed_BS[batch.piece_BS == 0].any()


def test_case_C03_a_masked_input_holds_the_original_or_the_mask_never_a_random_word():
    batch = random_batch(16_000, 64, 30_522, seed=3, full=True)
    assert batch.token_ids_BS.numel() >= 10**6
    masked_BS = corruption.mask_tokens(batch, choose(batch), mask_id=MASK, keep_fraction=0.15, key=2)
    changed_BS = masked_BS != batch.token_ids_BS
    assert (masked_BS[changed_BS] == MASK).all()
    # 10 of 64 tokens are chosen in every row, and 85 % of them hidden: 0.1328.
    assert abs(changed_BS.float().mean().item() - 0.85 * 10 / 64) < 1e-3


def test_case_C04_few_candidates_in_a_long_row_are_all_that_is_ever_chosen():
    words = [5 + i % 7 for i in range(13)]
    batch = batch_of_pieces([[words, *[[] for _ in range(56)]] for _ in range(200)], 128)
    assert is_candidate(batch).sum() == 13 * 200
    for places in places_by_row(batch, choose(batch)):
        # 127 real tokens ask for 19; there are 13.
        assert places == list(range(1, 14))
    for places in places_by_row(batch, choose(batch, 0.05)):
        assert len(places) == 6 and set(places) <= set(range(1, 14))


def test_pitfall_K10_short_rows_get_one_position_and_empty_ones_none():
    batch = batch_of_pieces([[[9]], [[9, 9]], [[9, 9, 9]], [[]], []], 16)
    assert [len(places) for places in places_by_row(batch, choose(batch))] == [1, 1, 1, 0, 0]
    masked_BS = corruption.mask_tokens(batch, choose(batch), mask_id=MASK, keep_fraction=0.0, key=1)
    assert (masked_BS == MASK).sum(1).tolist() == [1, 1, 1, 0, 0]


def test_unknown_words_may_be_chosen_and_mask_tokens_may_not():
    batch = batch_of_pieces([[[UNKNOWN] * 10], [[MASK] * 10]], 12)
    assert [len(places) for places in places_by_row(batch, choose(batch, 0.5))] == [6, 0]


def test_the_mask_rate_is_flat_over_the_positions():
    batch = random_batch(20_000, 34, 100, seed=4, full=True)
    chosen = choose(batch)
    times_S = torch.bincount(chosen.index_M[chosen.weight_M > 0] % 34, minlength=34)
    assert times_S[0] == times_S[33] == 0
    rate = 5 / 32
    # Every place between [CLS] and [SEP]: five standard deviations, the last ones as the first.
    bound = 5 * (20_000 * rate * (1 - rate)) ** 0.5
    assert (times_S[1:33] - 20_000 * rate).abs().max() < bound


def test_keys_and_samples_decide_alone():
    batch = random_batch(8, 40, 100, seed=5)
    assert torch.equal(choose(batch).index_M, choose(batch).index_M)
    assert not torch.equal(choose(batch).index_M, choose(batch, key=8).index_M)
    again = random_batch(8, 40, 100, seed=5, first_sample=8)
    assert not torch.equal(choose(batch).index_M, choose(again).index_M)


@pytest.mark.parametrize(("keep", "hidden"), [(0.0, 20), (1.0, 0)])
def test_keep_fraction_may_be_nothing_or_everything(keep, hidden):
    batch = batch_of_pieces([[[9] * 38]] * 2, 40)
    masked_BS = corruption.mask_tokens(batch, choose(batch, 0.25), mask_id=MASK, keep_fraction=keep, key=1)
    assert int((masked_BS == MASK).sum()) == hidden


CONTINUES = torch.arange(100) >= 60


def word_of_each_place(batch: Batch, row: int) -> list[int]:
    words, word = [], 0
    ids, piece = batch.token_ids_BS[row].tolist(), batch.piece_BS[row].tolist()
    for place, token in enumerate(ids):
        previous = ids[place - 1] if place else CLS
        if token < 60 or previous in NEVER or piece[place] != piece[place - 1]:
            word += 1
        words.append(word)
    return words


@settings(derandomize=True, deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), length=st.integers(12, 80), fraction=st.floats(0.1, 0.6))
def test_whole_words_are_chosen_whole_and_within_the_number(seed, length, fraction):
    batch = random_batch(4, length, 100, seed=seed)
    chosen = choose(batch, fraction, continuation_V=CONTINUES)
    for row, places in enumerate(places_by_row(batch, chosen)):
        words = word_of_each_place(batch, row)
        candidates = np.flatnonzero(is_candidate(batch)[row])
        sizes = np.bincount([words[place] for place in candidates])
        for word in {words[place] for place in places}:
            assert {place for place in candidates if words[place] == word} <= set(places)
        count = expected_count(int((batch.piece_BS[row] > 0).sum()), len(candidates), fraction)
        smallest = sizes[sizes > 0].min()
        if smallest <= count:
            # Greedy: no word that is left out would still fit.
            left = count - len(places)
            assert left >= 0
            left_out = [s for word, s in enumerate(sizes) if s and word not in {words[p] for p in places}]
            assert not left_out or min(left_out) > left
        elif smallest <= len(chosen.index_M) // 4:
            assert len({words[place] for place in places}) == 1


def test_whole_words_in_short_rows_and_rows_without_words():
    batch = batch_of_pieces([[[9, 70, 70]], [[9]], [[]], []], 40)
    places = places_by_row(batch, choose(batch, continuation_V=CONTINUES))
    # One token is asked for, the only word has three: it is chosen whole, as the slots have room.
    assert places == [[1, 2, 3], [1], [], []]


def test_a_continuation_does_not_join_words_across_pieces():
    batch = batch_of_pieces([[[9, 70], [71, 9]]] * 50, 8)
    for places in places_by_row(batch, choose(batch, 0.25, continuation_V=CONTINUES)):
        assert places in ([1, 2], [5, 6])
