"""Attention within the pieces of packed rows, for `gpu_check.py`: ours beside torch's other two ways.

Ours is the fused attention with a mask, the only one of the three that knows dropout. FlexAttention skips
blocks of the mask that no piece reaches, varlen_attn takes the pieces one behind the other.

Letters: B rows, S sequence, H heads, K width of a head, D = H·K, L = 3·D, T = B·S.
"""

from collections.abc import Callable, Iterator

import torch
from gpu_check import Finding, Scale
from gpu_check_speed import measured, seconds_of
from torch import Tensor

from electra_cli.models.attention import fused_attention, piece_mask

DROPOUT = 0.1
PIECES = 3
"""Of equal length in each row."""
MOST_DIFFERENCE = 0.02
"""Between two ways in bfloat16, values of size 1."""

Way = Callable[[Tensor], Tensor]


def pieces_of(rows: int, sequence: int, device: str) -> Tensor:
    """Numbers [B, S] of pieces, from 1 on."""
    place = torch.arange(sequence, device=device)
    return (1 + place * PIECES // sequence).expand(rows, sequence).contiguous()


def ways(scale: Scale, piece_BS: Tensor, num_heads: int) -> Iterator[tuple[str, Way]]:
    """Each way that this device has, from qkv [B, S, L] to the context [B, S, D]."""
    mask_B1SS = piece_mask(piece_BS, torch.bfloat16)
    for rate in (DROPOUT, 0.0):
        yield (
            f"mask, dropout {rate}",
            lambda qkv_BSL, rate=rate: fused_attention(
                qkv_BSL, mask_B1SS, None, num_heads=num_heads, dropout=rate
            ),
        )
    yield "FlexAttention", flex(scale, piece_BS, num_heads)
    if scale.device == "cuda":
        yield "varlen_attn", varlen(piece_BS, num_heads)


def flex(scale: Scale, piece_BS: Tensor, num_heads: int) -> Way:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    rows, sequence = piece_BS.shape

    def is_seen(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return piece_BS[row, query] == piece_BS[row, key]

    blocks = create_block_mask(is_seen, rows, None, sequence, sequence, device=scale.device)
    attention = flex_attention if scale.is_rehearsal else torch.compile(flex_attention)

    def attend(qkv_BSL: Tensor) -> Tensor:
        query, key, value = qkv_BSL.view(rows, sequence, 3, num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        context_BHSK: Tensor = attention(query, key, value, block_mask=blocks)
        return context_BHSK.transpose(1, 2).flatten(2)

    return attend


def varlen(piece_BS: Tensor, num_heads: int) -> Way:
    from torch.nn.attention.varlen import varlen_attn

    rows, sequence = piece_BS.shape
    row_T = torch.arange(rows, device=piece_BS.device).repeat_interleave(sequence)
    _, length_P = torch.unique_consecutive(row_T * (PIECES + 1) + piece_BS.flatten(), return_counts=True)
    end_P = torch.nn.functional.pad(length_P.cumsum(0), (1, 0)).int()
    longest = int(length_P.max())

    def attend(qkv_BSL: Tensor) -> Tensor:
        query, key, value = qkv_BSL.view(rows * sequence, 3, num_heads, -1).unbind(1)
        context_THK = varlen_attn(query, key, value, end_P, end_P, longest, longest)
        assert isinstance(context_THK, Tensor)
        return context_THK.view(rows, sequence, -1)

    return attend


def attention(scale: Scale) -> list[Finding]:
    """Forward and backward in bfloat16 (in a rehearsal forward alone): time, and how far from ours it is."""
    shapes = [(128, 128, 4), (32, 512, 12)] if not scale.is_rehearsal else [(2, 24, 2)]
    findings = []
    for rows, sequence, num_heads in shapes:
        width = num_heads * scale.pick(64, 16)
        qkv_BSL = torch.randn(rows, sequence, 3 * width, device=scale.device, dtype=torch.bfloat16)
        qkv_BSL.requires_grad_(not scale.is_rehearsal)
        piece_BS = pieces_of(rows, sequence, scale.device)
        expected_BSD: Tensor | None = None
        for name, way in ways(scale, piece_BS, num_heads):

            def there_and_back(way: Way = way, qkv_BSL: Tensor = qkv_BSL) -> None:
                output_BSD = way(qkv_BSL)
                if qkv_BSL.requires_grad:
                    output_BSD.sum().backward()

            seconds = seconds_of(scale, there_and_back)
            title = f"attention, {name}, {rows} × {sequence} × {num_heads} heads"
            findings.append(measured(title, f"{seconds * 1e3:.3f} ms", seconds=seconds))
            if str(DROPOUT) in name:
                continue
            output_BSD = way(qkv_BSL).detach()
            expected_BSD = output_BSD if expected_BSD is None else expected_BSD
            difference = float((output_BSD.float() - expected_BSD.float()).abs().max())
            if not difference <= MOST_DIFFERENCE:
                text = f"differs from the masked one by {difference:.3g}"
                findings.append(Finding(name=f"{title}, values", outcome="failed", text=text))
    return findings
