"""Swaps, insertions and crops: what moves, what stays, and that every place is as likely as the next."""

import numpy as np
import pytest
import torch
from small_batches import (
    CLS,
    MASK,
    PADDING,
    SEP,
    batch_of_pieces,
    part_of,
    random_batch,
    with_more_padding,
)

from electra_cli.corruption import choose_positions, first_places, swap_tokens
from electra_cli.corruption_crops import crop_pieces
from electra_cli.corruption_insertions import Insertion, insert_masks, num_inserted, num_kept
from electra_cli.data.batches import Batch

NEVER = (PADDING, CLS, SEP, MASK)
VOCABULARY = 500


def choose(batch: Batch, fraction: float = 0.15):
    return choose_positions(batch, fraction=fraction, never_masked=NEVER, key=1)


def insert(batch: Batch, fraction: float = 0.15, key: int = 7) -> Insertion:
    return insert_masks(
        batch,
        row_length=batch.token_ids_BS.shape[1],
        fraction=fraction,
        mask_id=MASK,
        padding_id=PADDING,
        key=key,
    )


def crop(batch: Batch, *, min_tokens: int = 8, fraction: float = 0.9, keeps_cls: bool = False):
    return crop_pieces(
        batch,
        fraction=fraction,
        min_tokens=min_tokens,
        keeps_cls=keeps_cls,
        cls_id=CLS,
        padding_id=PADDING,
        key=3,
    )


def pieces_of(batch: Batch) -> list[list[list[int]]]:
    """The tokens of each row's pieces, in order."""
    rows = []
    for tokens, piece in zip(batch.token_ids_BS.tolist(), batch.piece_BS.tolist(), strict=True):
        numbers = list(dict.fromkeys(number for number in piece if number))
        rows.append([[t for t, p in zip(tokens, piece, strict=True) if p == number] for number in numbers])
    return rows


def test_first_places_are_the_starts_of_the_pieces():
    batch = batch_of_pieces([[[5], [6, 7]], [[8, 9]]], 10)
    assert first_places(batch.piece_BS).tolist() == [[0] * 3 + [3] * 4 + [7] * 3, [0] * 4 + [4] * 6]


@pytest.mark.parametrize(("length", "fraction"), [(63, 0.15), (32, 0.4)])
def test_swapped_tokens_stay_in_their_piece_and_at_chosen_places(length, fraction):
    batch = random_batch(40, length, VOCABULARY)
    chosen = choose(batch, fraction)
    swapped = swap_tokens(batch, chosen, key=2)
    is_chosen = torch.zeros(swapped.numel(), dtype=torch.bool)
    is_chosen[chosen.index_M[chosen.weight_M > 0]] = True
    changed = (swapped != batch.token_ids_BS).flatten()
    assert changed.sum() > 40 and not (changed & ~is_chosen).any()
    moved = Batch(**{**vars(batch), "token_ids_BS": swapped})
    for before, after in zip(pieces_of(batch), pieces_of(moved), strict=True):
        assert [sorted(piece) for piece in before] == [sorted(piece) for piece in after]


def test_every_order_of_the_swapped_tokens_is_as_likely():
    # Four words, of which all may be chosen: 24 orders.
    num_rows = 6000
    batch = batch_of_pieces([[[5, 6, 7, 8]]] * num_rows, 6)
    chosen = choose(batch, 0.67)
    assert chosen.weight_M.sum() == 4 * num_rows
    swapped = swap_tokens(batch, chosen, key=2)
    _, count = np.unique(swapped.numpy(), axis=0, return_counts=True)
    expected = num_rows / 24
    # chi-square with 23 degrees of freedom: 49.7 is exceeded once in a thousand.
    assert len(count) == 24 and ((count - expected) ** 2 / expected).sum() < 49.7


@pytest.mark.parametrize("length", [8, 9, 32, 63, 128, 512])
@pytest.mark.parametrize("fraction", [0.05, 0.15, 0.25, 0.5, 0.99])
def test_kept_and_inserted_tokens_fill_a_row_and_no_more(length, fraction):
    kept, inserted = num_kept(length, fraction), num_inserted(length, fraction)
    assert kept * (1 + fraction) <= length < (kept + 1) * (1 + fraction)
    assert inserted >= 1 and kept + inserted <= length


def test_the_sizes_of_insertion_at_fifteen_percent():
    assert [(num_kept(n, 0.15), num_inserted(n, 0.15)) for n in (32, 128, 512)] == [
        (27, 4),
        (111, 17),
        (445, 67),
    ]


def test_insertion_keeps_the_first_tokens_in_order_and_marks_what_it_adds():
    batch = random_batch(60, 63, VOCABULARY)
    insertion = insert(batch)
    longer, kept = insertion.batch, num_kept(63, 0.15)
    for row in range(60):
        is_real = batch.piece_BS[row] > 0
        first = batch.token_ids_BS[row][is_real][:kept]
        is_new = insertion.is_inserted_BS[row]
        is_old = (longer.piece_BS[row] > 0) & ~is_new
        assert torch.equal(longer.token_ids_BS[row][is_old], first)
        assert torch.equal(longer.piece_BS[row][is_old], batch.piece_BS[row][is_real][:kept])
        assert torch.equal(longer.segment_BS[row][is_old], batch.segment_BS[row][is_real][:kept])
        assert (longer.token_ids_BS[row][is_new] == MASK).all()
        gaps = len(first) - len(batch.piece_BS[row][is_real][:kept].unique())
        assert is_new.sum() == min(gaps, max(1, round(0.15 * len(first))))
        # Nothing is inserted in front of a piece, and the row holds no hole.
        assert not is_new[longer.position_BS[row] == 0].any()
        num_real = int((longer.piece_BS[row] > 0).sum())
        assert (longer.piece_BS[row][:num_real] > 0).all()
        assert (longer.token_ids_BS[row][num_real:] == PADDING).all()
    assert set(longer.segment_BS[insertion.is_inserted_BS].tolist()) == {0, 1}


def test_positions_count_the_inserted_tokens():
    longer = insert(random_batch(30, 63, VOCABULARY)).batch
    for positions, piece in zip(longer.position_BS, longer.piece_BS, strict=True):
        for number in piece.unique().tolist():
            own = positions[piece == number]
            assert own.tolist() == (list(range(len(own))) if number else [0] * len(own))


def test_the_slots_are_the_inserted_places():
    insertion = insert(random_batch(20, 63, VOCABULARY))
    slots = insertion.inserted
    is_used = slots.weight_M > 0
    found = torch.zeros_like(insertion.is_inserted_BS).flatten()
    found[slots.index_M[is_used]] = True
    assert torch.equal(found.view_as(insertion.is_inserted_BS), insertion.is_inserted_BS)
    assert (slots.target_M[is_used] == MASK).all()


def test_every_gap_is_as_likely():
    num_rows, words = 4000, list(range(5, 25))
    insertion = insert(batch_of_pieces([[words]] * num_rows, 32))
    # 22 tokens give 3 of 21 gaps; count by the token behind the gap.
    follows = insertion.batch.token_ids_BS.roll(-1, 1)[insertion.is_inserted_BS]
    _, count = np.unique(follows.numpy(), return_counts=True)
    expected = 3 * num_rows / 21
    assert len(count) == 21
    # Counts of draws without replacement vary less than a chi-square with 20 degrees (45.3 at 0.001).
    assert ((count - expected) ** 2 / expected).sum() < 45.3


def test_what_is_drawn_depends_on_the_sample_alone():
    batch = random_batch(12, 32, VOCABULARY)
    one, whole = part_of(batch, slice(5, 6)), batch
    assert torch.equal(insert(one).batch.token_ids_BS, insert(whole).batch.token_ids_BS[5:6])
    assert torch.equal(crop(one).batch.token_ids_BS, crop(whole).batch.token_ids_BS[5:6])
    swapped = [swap_tokens(b, choose(b), key=2) for b in (one, whole)]
    assert torch.equal(swapped[0], swapped[1][5:6])
    wider = with_more_padding(batch, 8)
    assert torch.equal(crop(wider).batch.token_ids_BS[:, :32], crop(whole).batch.token_ids_BS)
    longer = insert_masks(wider, row_length=32, fraction=0.15, mask_id=MASK, padding_id=PADDING, key=7)
    assert torch.equal(longer.batch.token_ids_BS[:, :32], insert(whole).batch.token_ids_BS)


@pytest.mark.parametrize("keeps_cls", [False, True])
def test_a_crop_is_a_contiguous_span_of_nine_tenths_whose_positions_restart(keeps_cls):
    batch = random_batch(60, 64, VOCABULARY)
    crops = crop(batch, keeps_cls=keeps_cls)
    originals, views = pieces_of(batch), pieces_of(crops.batch)
    num_long = 0
    for row, (pieces, found) in enumerate(zip(originals, views, strict=True)):
        long = [piece for piece in pieces if len(piece) >= 8]
        num_long += len(long)
        assert len(found) == len(long)
        for piece, view in zip(long, found, strict=True):
            size = int(0.9 * len(piece))
            span = view
            if keeps_cls and len(view) > size:
                assert view[0] == CLS
                span = view[1:]
            assert len(span) == size
            assert any(piece[at : at + size] == span for at in range(len(piece) - size + 1))
            if keeps_cls:
                assert view[0] == CLS
        is_real = crops.batch.piece_BS[row] > 0
        assert (crops.batch.token_ids_BS[row][~is_real] == PADDING).all()
        for number in crops.batch.piece_BS[row][is_real].unique():
            own = crops.batch.position_BS[row][crops.batch.piece_BS[row] == number]
            assert own.tolist() == list(range(len(own)))
    is_used = crops.weight_N > 0
    assert is_used.sum() == num_long > 60
    tokens, positions = crops.batch.token_ids_BS.flatten(), crops.batch.position_BS.flatten()
    assert (batch.token_ids_BS.flatten()[crops.whole_N[is_used]] == CLS).all()
    assert (positions[crops.crop_N[is_used]] == 0).all() and (tokens[crops.crop_N[is_used]] != PADDING).all()
    pieces = batch.piece_BS.flatten()[crops.whole_N[is_used]]
    assert torch.equal(pieces, crops.batch.piece_BS.flatten()[crops.crop_N[is_used]])


def test_every_start_of_a_crop_is_as_likely():
    num_rows = 3000
    crops = crop(batch_of_pieces([[list(range(5, 33))]] * num_rows, 30))
    # 27 of 30 tokens: 4 starts.
    is_used = crops.weight_N > 0
    count = np.bincount((crops.crop_N - crops.whole_N)[is_used].numpy())
    assert len(count) == 4
    # chi-square with 3 degrees of freedom at 0.001.
    assert ((count - num_rows / 4) ** 2 / (num_rows / 4)).sum() < 16.3


def test_short_pieces_and_empty_rows_have_no_crop():
    crops = crop(batch_of_pieces([[[5] * 5], [], [[5] * 6]], 16))
    assert crops.weight_N.tolist() == [0, 0, 0, 0, 1, 0]
    assert not crops.batch.piece_BS[:2].any()


def test_rows_without_words_and_without_tokens_can_be_lengthened():
    insertion = insert(batch_of_pieces([[[]], []], 16))
    # [CLS] and [SEP] leave the one gap between them.
    assert insertion.batch.token_ids_BS[0, :3].tolist() == [CLS, MASK, SEP]
    assert insertion.inserted.weight_M.sum() == 1 and not insertion.batch.piece_BS[1].any()
