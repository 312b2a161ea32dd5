"""Self-attention within the pieces of a row."""

# B batch, S sequence, H heads, D hidden, K width of a head

import torch
from torch import Tensor
from torch.nn import functional as F


def piece_mask(piece_BS: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive mask [B, 1, S, S]: 0 within a piece, -inf between pieces.

    Padding (piece 0) attends to padding, so that every row of scores has a finite entry, an all-padding
    row included, and nothing real ever sees padding.
    """
    is_other_BSS = piece_BS.unsqueeze(2) != piece_BS.unsqueeze(1)
    mask_BSS = torch.zeros(is_other_BSS.shape, dtype=dtype, device=piece_BS.device)
    return mask_BSS.masked_fill_(is_other_BSS, float("-inf")).unsqueeze(1)


def attend(qkv_BSL: Tensor, mask_B1SS: Tensor, *, num_heads: int, dropout: float) -> Tensor:
    """Attention of `num_heads` heads; `qkv_BSL` holds query, key and value side by side (L = 3·D)."""
    batch, sequence, width = qkv_BSL.shape
    qkv = qkv_BSL.view(batch, sequence, 3, num_heads, width // 3 // num_heads)
    query_BHSK, key_BHSK, value_BHSK = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    if qkv_BSL.is_cuda:
        context_BHSK = F.scaled_dot_product_attention(
            query_BHSK, key_BHSK, value_BHSK, attn_mask=mask_B1SS, dropout_p=dropout
        )
    else:
        scale = query_BHSK.shape[-1] ** -0.5
        score_BHSS = torch.matmul(query_BHSK * scale, key_BHSK.transpose(2, 3)) + mask_B1SS
        weight_BHSS = F.dropout(torch.softmax(score_BHSS, dim=-1), dropout, training=dropout > 0)
        context_BHSK = torch.matmul(weight_BHSS, value_BHSK)
    return context_BHSK.transpose(1, 2).reshape(batch, sequence, width // 3)
