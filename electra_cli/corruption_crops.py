"""Crops of pieces, the second view of a text in contrastive learning: pure tensor functions."""

# B batch, S sequence, N slots for pieces of the batch

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from electra_cli import keyed
from electra_cli.corruption import first_places, into_slots
from electra_cli.data.batches import Batch


@dataclass(frozen=True, kw_only=True)
class Crops:
    """One contiguous span of every piece that is long enough; a function of (key, sample, place)."""

    batch: Batch
    """Of the same shape: a crop lies where it was, its positions restart, all else is padding."""
    whole_N: Tensor
    """int64; place of the piece's first token in the flattened batch."""
    crop_N: Tensor
    """int64; place of its crop's first token."""
    weight_N: Tensor
    """float32; 1 for a piece, 0 for an unused slot."""


def crop_pieces(
    batch: Batch,
    *,
    fraction: float,
    min_tokens: int,
    keeps_cls: bool,
    cls_id: int,
    padding_id: int,
    key: int,
) -> Crops:
    """Crop each piece of n ≥ `min_tokens` tokens to a uniformly placed span of ⌊fraction · n⌋.

    [CLS] and [SEP] count; a span may lose them. With `keeps_cls` a span that begins later gets a [CLS] in
    front, in place of the token there. There are S // min_tokens slots a row, as many as can be needed.
    """
    length = batch.token_ids_BS.shape[1]
    is_real_BS = batch.piece_BS > 0
    place_S = torch.arange(length, device=batch.piece_BS.device)
    first_BS = first_places(batch.piece_BS)
    size_BS = torch.zeros_like(first_BS).scatter_add(1, first_BS, is_real_BS.long()).gather(1, first_BS)
    is_long_BS = size_BS >= min_tokens
    span_BS = torch.floor(size_BS.double() * fraction).long().clamp(min=1)
    share_BS = keyed.uniform(key, batch.sample_B[:, None], first_BS)
    begin_BS = torch.where(is_long_BS, (share_BS * (size_BS - span_BS + 1)).long(), 0)
    offset_BS = place_S - first_BS
    is_crop_BS = is_long_BS & (offset_BS >= begin_BS) & (offset_BS < begin_BS + span_BS)
    token_ids_BS = batch.token_ids_BS
    if keeps_cls:
        begin_BS = (begin_BS - 1).clamp(min=0)
        is_cls_BS = is_long_BS & (offset_BS == begin_BS)
        is_crop_BS = is_crop_BS | is_cls_BS
        token_ids_BS = token_ids_BS.masked_fill(is_cls_BS, cls_id)
    slots = into_slots(batch.token_ids_BS, is_long_BS & (offset_BS == 0), length // min_tokens)
    return Crops(
        batch=replace(
            batch,
            token_ids_BS=token_ids_BS.masked_fill(~is_crop_BS, padding_id),
            piece_BS=batch.piece_BS.masked_fill(~is_crop_BS, 0),
            position_BS=(offset_BS - begin_BS).masked_fill(~is_crop_BS, 0),
            segment_BS=batch.segment_BS.masked_fill(~is_crop_BS, 0),
        ),
        whole_N=slots.index_M,
        crop_N=slots.index_M + begin_BS.flatten()[slots.index_M],
        weight_N=slots.weight_M,
    )
