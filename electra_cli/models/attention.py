"""Self-attention within the pieces of a row.

On CUDA it is torch's fused attention. On CPUs the fused kernel falls back to slow paths as soon as there is
attention dropout, and its backward pass is slow in bfloat16; there the products are written out, a block of
scores at a time, so that mask, softmax and dropout work on what is still in the cache.
"""

# B batch, S sequence, H heads, D hidden, K width of a head, N = rows of a block times heads of a block

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from electra_cli.kernels.dropout import draw_pattern, keep_scale
from electra_cli.kernels.layer_passes import softened, softened_back

BLOCK_SCORES = 1 << 18
"""Scores in a block, about: 1 MiB in float32, what a core's second-level cache holds."""


def piece_mask(piece_BS: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive mask [B, 1, S, S]: 0 within a piece, -inf between pieces.

    Padding (piece 0) attends to padding, so that every row of scores has a finite entry, an all-padding
    row included, and nothing real ever sees padding.
    """
    is_other_BSS = piece_BS.unsqueeze(2) != piece_BS.unsqueeze(1)
    mask_BSS = torch.zeros(is_other_BSS.shape, dtype=dtype, device=piece_BS.device)
    return mask_BSS.masked_fill_(is_other_BSS, float("-inf")).unsqueeze(1)


def attend(
    qkv_BSL: Tensor, mask_B1SS: Tensor, bias_HSS: Tensor | None = None, *, num_heads: int, dropout: float
) -> Tensor:
    """Attention of `num_heads` heads; `qkv_BSL` holds query, key and value side by side (L = 3·D).

    `bias_HSS` is added to the scaled scores of every row. `dropout` is the rate at which attention weights
    are dropped, 0 outside training.
    """
    if qkv_BSL.device.type != "cpu":
        return fused_attention(qkv_BSL, mask_B1SS, bias_HSS, num_heads=num_heads, dropout=dropout)
    has_gradient = qkv_BSL.requires_grad or (bias_HSS is not None and bias_HSS.requires_grad)
    keeps = torch.is_grad_enabled() and has_gradient
    context_BSD: Tensor = _BlockAttention.apply(qkv_BSL, mask_B1SS, bias_HSS, num_heads, dropout, keeps)  # type: ignore[no-untyped-call]
    return context_BSD


def fused_attention(
    qkv_BSL: Tensor, mask_B1SS: Tensor, bias_HSS: Tensor | None, *, num_heads: int, dropout: float
) -> Tensor:
    """As `attend`, by torch's own kernels."""
    query_BHSK, key_BHSK, value_BHSK = _split_heads(qkv_BSL, num_heads).unbind(0)
    if bias_HSS is not None:
        mask_B1SS = (mask_B1SS + bias_HSS).to(query_BHSK.dtype)
    context_BHSK = F.scaled_dot_product_attention(
        query_BHSK, key_BHSK, value_BHSK, attn_mask=mask_B1SS, dropout_p=dropout
    )
    return context_BHSK.transpose(1, 2).flatten(2)


def _split_heads(qkv_BSL: Tensor, num_heads: int) -> Tensor:
    """A view [3, B, H, S, K]."""
    batch, sequence, width = qkv_BSL.shape
    split = qkv_BSL.view(batch, sequence, 3, num_heads, width // 3 // num_heads)
    return split.permute(2, 0, 3, 1, 4)


def _blocks(batch: int, num_heads: int, sequence: int) -> Iterator[tuple[slice, slice]]:
    """Slices of rows and heads: several rows with all their heads, or some heads of one row."""
    num_maps = max(1, BLOCK_SCORES // sequence**2)
    heads = min(num_heads, num_maps)
    rows = max(1, num_maps // num_heads)
    for row in range(0, batch, rows):
        for head in range(0, num_heads, heads):
            yield slice(row, row + rows), slice(head, head + heads)


class _BlockAttention(torch.autograd.Function):
    """Keeps the attention weights of each block for the way back; what dropout keeps is made again there.

    `keeps`: whether there will be a way back. The two scales (of the scores, and of what dropout keeps) are
    applied to query and value, which are small.
    """

    @staticmethod
    def forward(
        ctx: Any,
        qkv_BSL: Tensor,
        mask_B1SS: Tensor,
        bias_HSS: Tensor | None,
        num_heads: int,
        dropout: float,
        keeps: bool,
    ) -> Tensor:
        # A copy even where the view is contiguous already: it is scaled in place.
        qkv = _split_heads(qkv_BSL, num_heads).clone(memory_format=torch.contiguous_format)
        query_BHSK, key_BHSK, value_BHSK = qkv.unbind(0)
        query_BHSK.mul_(query_BHSK.shape[-1] ** -0.5)
        if dropout:
            value_BHSK.mul_(keep_scale(dropout))
        context_BHSK = torch.empty_like(query_BHSK)
        saved = []
        for rows, heads in _blocks(*query_BHSK.shape[:3]):
            key_NKS = key_BHSK[rows, heads].flatten(0, 1).transpose(1, 2)
            score_NSS = torch.bmm(query_BHSK[rows, heads].flatten(0, 1), key_NKS)
            shape = context_BHSK[rows, heads].shape
            score_BHSS = score_NSS.view(*shape[:3], shape[2])
            if bias_HSS is not None:
                score_BHSS.add_(bias_HSS[heads])
            pattern = draw_pattern(dropout) if dropout else None
            weight_BHSS, used_BHSS = softened(score_BHSS, mask_B1SS[rows], pattern)
            if keeps:
                saved += [weight_BHSS] if pattern is None else [weight_BHSS, pattern]
            context_NSK = context_BHSK[rows, heads].flatten(0, 1)
            torch.bmm(used_BHSS.flatten(0, 1), value_BHSK[rows, heads].flatten(0, 1), out=context_NSK)
        ctx.save_for_backward(qkv, *saved)
        ctx.dropout = dropout
        ctx.bias_dtype = None if bias_HSS is None else bias_HSS.dtype
        return context_BHSK.transpose(1, 2).flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BSD: Tensor) -> tuple[Tensor, None, Tensor | None, None, None, None]:
        qkv, *saved = ctx.saved_tensors
        query_BHSK, key_BHSK, value_BHSK = qkv.unbind(0)
        batch, num_heads, sequence, _ = query_BHSK.shape
        of_context_BSHK = gradient_BSD.reshape(batch, sequence, num_heads, -1)
        of_context_BHSK = of_context_BSHK.transpose(1, 2).contiguous()
        of_qkv = torch.empty_like(qkv)
        of_bias_HSS = None
        if ctx.bias_dtype is not None:
            of_bias_HSS = qkv.new_zeros((num_heads, sequence, sequence), dtype=ctx.bias_dtype)
        remaining = iter(saved)
        for rows, heads in _blocks(batch, num_heads, sequence):
            weight_BHSS = next(remaining)
            pattern = next(remaining) if ctx.dropout else None
            of_query_NSK, of_key_NSK, of_value_NSK = of_qkv[:, rows, heads].flatten(1, 2).unbind(0)
            of_context_NSK = of_context_BHSK[rows, heads].flatten(0, 1)
            value_NKS = value_BHSK[rows, heads].flatten(0, 1).transpose(1, 2)
            of_used_BHSS = torch.bmm(of_context_NSK, value_NKS).view(weight_BHSS.shape)
            used_BHSS, of_score_BHSS = softened_back(of_used_BHSS, weight_BHSS, pattern)
            torch.bmm(used_BHSS.flatten(0, 1).transpose(1, 2), of_context_NSK, out=of_value_NSK)
            if of_bias_HSS is not None:
                of_bias_HSS[heads] += of_score_BHSS.sum(0, dtype=ctx.bias_dtype)
            of_score_NSS = of_score_BHSS.flatten(0, 1)
            torch.bmm(of_score_NSS, key_BHSK[rows, heads].flatten(0, 1), out=of_query_NSK)
            query_NSK = query_BHSK[rows, heads].flatten(0, 1)
            torch.bmm(of_score_NSS.transpose(1, 2), query_NSK, out=of_key_NSK)
        of_qkv[0].mul_(query_BHSK.shape[-1] ** -0.5)
        if ctx.dropout:
            of_qkv[2].mul_(keep_scale(ctx.dropout))
        return of_qkv.permute(1, 3, 0, 2, 4).flatten(2), None, of_bias_HSS, None, None, None
