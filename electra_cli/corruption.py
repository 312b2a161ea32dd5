"""What is hidden from the generator, and what the discriminator gets to see: pure tensor functions.

Every draw is a function of (key, sample, place) and so of nothing else: not of the micro-batch, the process,
the padding or the device. Shapes depend on the batch's shape alone: each row has K slots for chosen
positions; a slot that a row does not use has weight 0 and points at place 0 of its row.
"""

# B batch, S sequence, K slots of a row, M = B·K slots of the batch, V vocabulary

from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli import keyed
from electra_cli.data.batches import Batch

_WORD_PASSES = 6


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The chosen positions of a batch, in the order of their places."""

    index_M: Tensor
    """int64; place in the flattened batch of B·S tokens."""
    weight_M: Tensor
    """float32; 1 for a chosen position, 0 for an unused slot."""
    target_M: Tensor
    """int64; the original id at that place."""


def num_chosen(num_tokens: int, fraction: float) -> int:
    """Positions to choose among `num_tokens` real tokens ([CLS] and [SEP] count), if the candidates suffice.

    Half rounds to even, as in the official code: 0.15 · 10 = 1.5 gives 2, 0.25 · 10 = 2.5 gives 2.
    """
    return max(1, round(fraction * num_tokens))


def choose_positions(
    batch: Batch,
    *,
    fraction: float,
    never_masked: tuple[int, ...],
    key: int,
    continuation_V: Tensor | None = None,
) -> Chosen:
    """Choose min(candidates, max(1, round(fraction · n))) different positions of each row, uniformly.

    n counts the row's real tokens; candidates are those whose id is not in `never_masked`. The chosen are the
    candidates with the smallest keyed values, so never one twice. With `continuation_V` (bool, whether
    an id continues a word) whole words are chosen, in keyed order, each if it still fits into that number;
    the number is then an upper bound, but where every word is longer, one word is chosen all the same.
    """
    token_ids_BS = batch.token_ids_BS
    length, device = token_ids_BS.shape[1], token_ids_BS.device
    is_real_BS = batch.piece_BS > 0
    is_candidate_BS = is_real_BS
    for token_id in never_masked:
        is_candidate_BS = is_candidate_BS & (token_ids_BS != token_id)
    num_slots = num_chosen(length, fraction)
    # As `num_chosen`, on the device: float64 and half to even there too.
    wanted_B = torch.round(is_real_BS.sum(1).double() * fraction).to(torch.int64).clamp(min=1)
    count_B = torch.minimum(wanted_B, is_candidate_BS.sum(1))
    place_S = torch.arange(length, device=device)
    value_BS = keyed.uniform(key, batch.sample_B[:, None], place_S)
    if continuation_V is not None:
        words = _find_words(continuation_V[token_ids_BS], is_candidate_BS, batch.piece_BS)
        is_chosen_BS = _choose_words(value_BS, words, is_candidate_BS, count_B, num_slots)
    else:
        rank_BS = ranks(value_BS.masked_fill(~is_candidate_BS, 2.0))
        is_chosen_BS = rank_BS < count_B[:, None]
    return into_slots(token_ids_BS, is_chosen_BS, num_slots)


def ranks(value_BS: Tensor) -> Tensor:
    """Rank of each place among its row; equal values keep the order of their places."""
    order_BS = torch.sort(value_BS, dim=1, stable=True).indices
    place_BS = torch.arange(value_BS.shape[1], device=value_BS.device).expand_as(order_BS)
    return torch.zeros_like(order_BS).scatter(1, order_BS, place_BS)


def into_slots(token_ids_BS: Tensor, is_chosen_BS: Tensor, num_slots: int) -> Chosen:
    """The chosen places of each row in its first slots; no more than `num_slots` a row may be chosen."""
    num_rows, length = token_ids_BS.shape
    device = token_ids_BS.device
    # A stable sort brings the chosen places to the front, in the order of their places.
    place_BK = torch.sort((~is_chosen_BS).to(torch.uint8), dim=1, stable=True).indices[:, :num_slots]
    slot_K = torch.arange(num_slots, device=device)
    is_used_BK = slot_K < is_chosen_BS.sum(1, keepdim=True)
    start_B = torch.arange(num_rows, device=device) * length
    index_M = (torch.where(is_used_BK, place_BK, 0) + start_B[:, None]).flatten()
    return Chosen(
        index_M=index_M,
        weight_M=is_used_BK.flatten().float(),
        target_M=token_ids_BS.flatten()[index_M],
    )


def _choose_words(
    value_BS: Tensor, words: "_Words", is_candidate_BS: Tensor, count_B: Tensor, num_slots: int
) -> Tensor:
    """Which places belong to chosen words.

    Words are taken in the order of their keyed values, and those that do not fit any more are passed over.
    Each pass takes the words up to the first that does not fit; it, and all that are longer than what is
    left, are out for good. What a few passes leave open is left open.
    """
    order_BS = torch.sort(
        value_BS.gather(1, words.first_BS).masked_fill(~is_candidate_BS, 2.0), dim=1, stable=True
    ).indices
    is_candidate_BS = is_candidate_BS.gather(1, order_BS)
    size_BS, behind_BS = words.size_BS.gather(1, order_BS), words.behind_BS.gather(1, order_BS)

    def up_to(fits_BS: Tensor, limit_B1: Tensor) -> Tensor:
        return fits_BS & (fits_BS.long().cumsum(1) + behind_BS <= limit_B1)

    left_B1 = count_B[:, None]
    taken_BS = torch.zeros_like(is_candidate_BS)
    for _ in range(_WORD_PASSES):
        now_BS = up_to(is_candidate_BS & ~taken_BS & (size_BS <= left_B1), left_B1)
        taken_BS = taken_BS | now_BS
        left_B1 = left_B1 - now_BS.sum(1, keepdim=True)
    # Where every word is too long, the first that has room in the slots: a row is not left without a target.
    fits_BS = is_candidate_BS & (size_BS <= num_slots)
    only_BS = up_to(fits_BS, size_BS)
    taken_BS = torch.where(taken_BS.any(1, keepdim=True), taken_BS, only_BS)
    return torch.zeros_like(taken_BS).scatter(1, order_BS, taken_BS)


@dataclass(frozen=True, kw_only=True)
class _Words:
    """The word that each candidate belongs to: a first token and the candidates that continue it."""

    first_BS: Tensor
    """Place of the word's first token."""
    size_BS: Tensor
    """Tokens of the word."""
    behind_BS: Tensor
    """Tokens of the word that follow this one."""


def _find_words(continues_BS: Tensor, is_candidate_BS: Tensor, piece_BS: Tensor) -> _Words:
    place_S = torch.arange(piece_BS.shape[1], device=piece_BS.device)
    # Place 0 follows nothing; a candidate follows its neighbour only within a piece.
    follows_BS = torch.zeros_like(is_candidate_BS)
    follows_BS[:, 1:] = is_candidate_BS[:, 1:] & is_candidate_BS[:, :-1] & continues_BS[:, 1:]
    follows_BS[:, 1:] &= piece_BS[:, 1:] == piece_BS[:, :-1]
    first_BS = torch.where(follows_BS, 0, place_S).cummax(1).values
    size_BS = torch.zeros_like(first_BS).scatter_add(1, first_BS, is_candidate_BS.long()).gather(1, first_BS)
    return _Words(first_BS=first_BS, size_BS=size_BS, behind_BS=size_BS - 1 - (place_S - first_BS))


def draw(batch: Batch, chosen: Chosen, *, key: int) -> Tensor:
    """A keyed float64 in [0, 1) for each slot, a function of (key, sample, place)."""
    length = batch.token_ids_BS.shape[1]
    row_M = torch.div(chosen.index_M, length, rounding_mode="floor")
    return keyed.uniform(key, batch.sample_B[row_M], chosen.index_M - row_M * length)


def mask_tokens(batch: Batch, chosen: Chosen, *, mask_id: int, keep_fraction: float, key: int) -> Tensor:
    """The generator's input: each chosen token becomes [MASK], or with `keep_fraction` stays as it is."""
    is_hidden_M = draw(batch, chosen, key=key) >= keep_fraction
    shown_M = torch.where(is_hidden_M, mask_id, chosen.target_M)
    return put_samples(batch.token_ids_BS, chosen, shown_M)


def swap_tokens(batch: Batch, chosen: Chosen, *, key: int) -> Tensor:
    """The row with its chosen tokens shuffled among their places; each stays within its piece.

    So a swap changes the order of a text and never brings in a word of another one. A token may come to
    lie where it was, the only chosen one of a piece always does.
    """
    num_rows = len(batch.token_ids_BS)
    piece_M = batch.piece_BS.flatten()[chosen.index_M]
    # Slots run through the pieces in order, so sorting by piece first leaves each piece its own slots.
    value_M = torch.where(chosen.weight_M > 0, piece_M + draw(batch, chosen, key=key), torch.inf)
    order_BK = torch.sort(value_M.view(num_rows, -1), dim=1, stable=True).indices
    given_BK = chosen.target_M.view(num_rows, -1).gather(1, order_BK)
    return put_samples(batch.token_ids_BS, chosen, given_BK.flatten())


def first_places(piece_BS: Tensor) -> Tensor:
    """Place in its row of the first token of each token's piece; padding behind a piece is a piece, too."""
    place_S = torch.arange(piece_BS.shape[1], device=piece_BS.device)
    is_first_BS = torch.ones_like(piece_BS, dtype=torch.bool)
    is_first_BS[:, 1:] = piece_BS[:, 1:] != piece_BS[:, :-1]
    return torch.where(is_first_BS, place_S, 0).cummax(1).values


def put_samples(token_ids_BS: Tensor, chosen: Chosen, sampled_M: Tensor) -> Tensor:
    """The original ids with `sampled_M` at the chosen positions; unused slots change nothing."""
    # Differences are added, so that several unused slots may point at one place without a race.
    difference_M = (sampled_M - chosen.target_M) * chosen.weight_M.to(torch.int64)
    return token_ids_BS.flatten().index_add(0, chosen.index_M, difference_M).view_as(token_ids_BS)


def mark_chosen(token_ids_BS: Tensor, chosen: Chosen) -> Tensor:
    """Whether each token was chosen."""
    # Counts are added, for several unused slots may point at one place.
    count_N = torch.zeros(token_ids_BS.numel(), dtype=torch.float32, device=token_ids_BS.device)
    return count_N.index_add(0, chosen.index_M, chosen.weight_M).view_as(token_ids_BS) > 0


def label_replaced(corrupted_BS: Tensor, token_ids_BS: Tensor) -> Tensor:
    """Whether a token is not the original one; a sample that hits the original counts as original."""
    return corrupted_BS != token_ids_BS
