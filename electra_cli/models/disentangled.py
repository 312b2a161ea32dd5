"""Disentangled attention (He et al. 2021, arXiv 2006.03654, eq. 3 and 4) within the pieces of a row.

A_ij = Qc_i · Kc_j + Qc_i · Kr_δ(i−j) + Kc_j · Qr_δ(i−j), weights softmax(A / √(3K)).

Both relative terms read the same row δ(i−j) of the table, as the official code and its checkpoints do; the
paper writes δ(j−i) for the last one. A piece is contiguous, so the distance of two of its tokens is the
distance of their places. Each product with the table is made once a distance, [S, 2S], and then read
diagonally: a view, no gathered copy.
"""

# B batch, S sequence, H heads, D hidden, K width of a head, C = 2S distances, R rows of the relative table

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from electra_cli.kernels.layer_passes import dropped

RELATIVE_TERMS = 3
"""Products in a score: content to content, content to position, position to content."""


@dataclass(frozen=True, kw_only=True)
class Relative:
    """The relative table as a row of length S needs it; all layers share it."""

    table_RD: Tensor
    """Normalised rows, those alone that occur."""
    row_C: Tensor
    """int64; the row of each distance S, S − 1, …, −(S − 1)."""


def log_bucket(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Signed bucket of each distance: exact up to `num_buckets` // 2, logarithmic up to `max_distance`.

    In float32, as the official code: where a logarithm falls on a border, its rounding is part of the model.
    """
    middle = num_buckets // 2
    near = distance.abs().clamp(min=middle)
    share = torch.log(near / middle) / torch.log(torch.tensor((max_distance - 1) / middle))
    far = torch.ceil(share * (middle - 1)) + middle
    return torch.where(distance.abs() <= middle, distance, (far * distance.sign()).to(distance.dtype))


def relative_rows(sequence: int, num_buckets: int, max_distance: int, device: torch.device) -> Tensor:
    """The table's row for the distances S, S − 1, …, −(S − 1), int64 [C]."""
    distance_C = sequence - torch.arange(2 * sequence, device=device)
    bucket_C = log_bucket(distance_C, num_buckets, max_distance)
    return (bucket_C + num_buckets).clamp(0, 2 * num_buckets - 1)


def needed_rows(sequence: int, num_buckets: int, max_distance: int) -> tuple[int, int]:
    """First row of the table that a row of S tokens needs, and the one behind the last."""
    reach = torch.tensor([sequence, -sequence])
    high, low = (log_bucket(reach, num_buckets, max_distance) + num_buckets).tolist()
    return max(0, low), min(2 * num_buckets, high + 1)


def disentangled_attention(
    query_BSD: Tensor,
    key_BSD: Tensor,
    value_BSD: Tensor,
    relative: Relative,
    projection: tuple[Tensor, Tensor],
    mask_B1SS: Tensor,
    *,
    num_heads: int,
    dropout: float,
) -> Tensor:
    """Context [B, S, D] of `num_heads` heads.

    `projection`: weight [2D, D] and bias [2D] of the layer's own query and key, which the table shares.
    `dropout` is the rate at which attention weights are dropped, 0 outside training.
    """
    query_BHSK, key_BHSK, value_BHSK = (
        part_BSD.reshape(*part_BSD.shape[:2], num_heads, -1).transpose(1, 2)
        for part_BSD in (query_BSD, key_BSD, value_BSD)
    )
    place_query_RD, place_key_RD = F.linear(relative.table_RD, *projection).chunk(2, dim=-1)
    place_key_HKC = _by_distance(place_key_RD, relative.row_C, num_heads)
    # The other way round: position to content reads the query's distance from the key.
    place_query_HKC = _by_distance(place_query_RD, _opposite(relative.row_C), num_heads)
    scale = 1 / math.sqrt(RELATIVE_TERMS * query_BHSK.shape[-1])
    query_BHSK = query_BHSK * scale
    # Products may be bfloat16 under autocast; their sum and the softmax are float32 at least.
    exact = torch.promote_types(query_BHSK.dtype, torch.float32)
    score_BHSS = (query_BHSK @ key_BHSK.transpose(-1, -2)).to(exact)
    score_BHSS = score_BHSS + _diagonals(query_BHSK @ place_key_HKC)
    score_BHSS = score_BHSS + _diagonals(key_BHSK @ (place_query_HKC * scale)).transpose(-1, -2)
    weight_BHSS = torch.softmax(score_BHSS + mask_B1SS, dim=-1)
    weight_BHSS = dropped(weight_BHSS, dropout)
    context_BHSK = weight_BHSS.to(value_BHSK.dtype) @ value_BHSK
    return context_BHSK.transpose(1, 2).flatten(2)


def _by_distance(place_RD: Tensor, row_C: Tensor, num_heads: int) -> Tensor:
    """The projected table's row for each distance, split into heads [H, K, C]."""
    return place_RD.index_select(0, row_C).view(len(row_C), num_heads, -1).permute(1, 2, 0)


def _opposite(row_C: Tensor) -> Tensor:
    """The rows of the distances −S, 1 − S, …, S − 1: the first is never read."""
    return torch.cat([row_C[-1:], row_C[1:].flip(0)])


def _diagonals(score_BHSC: Tensor) -> Tensor:
    """View [B, H, S, S] whose element (a, b) is column S − a + b of row a."""
    batch, num_heads, sequence, _ = score_BHSC.shape
    shifted_BHL = score_BHSC.flatten(2)[:, :, sequence:]
    return shifted_BHL.view(batch, num_heads, sequence, 2 * sequence - 1)[..., :sequence]
