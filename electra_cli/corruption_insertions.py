"""Rows with inserted [MASK]s, for a task that has no original to restore: pure tensor functions."""

# B batch, S sequence

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from electra_cli import keyed
from electra_cli.corruption import Chosen, first_places, into_slots, num_chosen, ranks
from electra_cli.data.batches import Batch


@dataclass(frozen=True, kw_only=True)
class Insertion:
    """Shortened rows with [MASK]s between their tokens; all of it a function of (key, sample, place)."""

    batch: Batch
    """Of the same shape; pieces and positions count the inserted tokens, too."""
    inserted: Chosen
    """The slots of the inserted tokens; the target is [MASK] itself, for there is no original."""
    is_inserted_BS: Tensor


def num_kept(length: int, fraction: float) -> int:
    """Tokens of a row that stay, ⌊length / (1 + fraction)⌋, so that the inserted ones have room."""
    return int(length / (1 + fraction))


def num_inserted(length: int, fraction: float) -> int:
    """[MASK]s that a full row gets: the rule for chosen positions, over the tokens that stay."""
    kept = num_kept(length, fraction)
    return min(length - kept, num_chosen(kept, fraction))


def insert_masks(
    batch: Batch, *, row_length: int, fraction: float, mask_id: int, padding_id: int, key: int
) -> Insertion:
    """Insert [MASK]s at different random gaps of the first ⌊row_length / (1 + fraction)⌋ tokens of each row.

    `row_length`: the length that rows are cut to, whatever padding this batch has behind them. A row with n
    such tokens gets min(gaps, max(1, round(fraction · n))). A gap lies before any token of a piece but the
    first, so [CLS] stays in front; the inserted token joins the piece and the segment of the token that it
    stands before. Tokens beyond the first ones are left out of this row.
    """
    width = batch.token_ids_BS.shape[1]
    length = min(row_length, width)
    is_real_BS = batch.piece_BS > 0
    rank_BS = is_real_BS.cumsum(1) - 1
    is_kept_BS = is_real_BS & (rank_BS < num_kept(length, fraction))
    place_S = torch.arange(width, device=batch.piece_BS.device)
    is_gap_BS = is_kept_BS & (first_places(batch.piece_BS) != place_S)
    wanted_B = torch.round(is_kept_BS.sum(1).double() * fraction).to(torch.int64).clamp(min=1)
    count_B = torch.minimum(wanted_B, is_gap_BS.sum(1)).clamp(max=num_inserted(length, fraction))
    value_BS = keyed.uniform(key, batch.sample_B[:, None], place_S).masked_fill(~is_gap_BS, 2.0)
    is_opened_BS = ranks(value_BS) < count_B[:, None]
    target_BS = rank_BS + is_opened_BS.cumsum(1)
    layout = _Layout(
        token_to_BS=torch.where(is_kept_BS, target_BS, width),
        inserted_to_BS=torch.where(is_opened_BS, target_BS - 1, width),
    )
    piece_BS = layout.spread(batch.piece_BS, batch.piece_BS)
    token_ids_BS = layout.spread(batch.token_ids_BS, torch.full_like(rank_BS, mask_id), fill=padding_id)
    is_inserted_BS = layout.spread(torch.zeros_like(is_opened_BS), is_opened_BS)
    return Insertion(
        batch=replace(
            batch,
            token_ids_BS=token_ids_BS,
            piece_BS=piece_BS,
            position_BS=torch.where(piece_BS > 0, place_S - first_places(piece_BS), 0),
            segment_BS=layout.spread(batch.segment_BS, batch.segment_BS),
        ),
        inserted=into_slots(token_ids_BS, is_inserted_BS, num_inserted(length, fraction)),
        is_inserted_BS=is_inserted_BS,
    )


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where each token of the old row comes to lie, and the [MASK] before it; S for what does not."""

    token_to_BS: Tensor
    inserted_to_BS: Tensor

    def spread(self, token_BS: Tensor, inserted_BS: Tensor, *, fill: int = 0) -> Tensor:
        """The new row of a fact about tokens, and about the [MASK] before each."""
        num_rows, length = token_BS.shape
        # One column more takes what has no place.
        wide = torch.full((num_rows, length + 1), fill, dtype=token_BS.dtype, device=token_BS.device)
        wide = wide.scatter(1, self.token_to_BS, token_BS)
        return wide.scatter(1, self.inserted_to_BS, inserted_BS)[:, :length]
