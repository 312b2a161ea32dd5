"""Inputs on which an exported model must agree with the one that was trained, and where both are kept."""

# B batch, S sequence

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from electra_cli import durable
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.models.folders import HFFolder

TEXTS = (
    "Paris is the capital of France.",
    "The whale, she said, was never seen again!",
    "Möchte MÜSSTE café – 1234,5 (naïve)",
    "",
)
PAIR = ("What did the captain see?", "A white whale.")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One batch of encoded texts, padded at the end, one piece a row."""

    token_ids_BS: Tensor
    segment_BS: Tensor
    is_real_BS: Tensor


def make_probe(vocabulary: Vocabulary, *, max_length: int) -> Probe:
    """The texts, and one pair with token types 0 and 1, cut to `max_length` tokens."""
    rows: list[tuple[list[int], list[int]]] = []
    for text in TEXTS:
        content = vocabulary.tokenizer.encode(text, add_special_tokens=False).ids[: max_length - 2]
        rows.append(([vocabulary.cls_id, *content, vocabulary.sep_id], [0] * (len(content) + 2)))
    half = (max_length - 3) // 2
    first, second = (vocabulary.tokenizer.encode(t, add_special_tokens=False).ids[:half] for t in PAIR)
    pair = [vocabulary.cls_id, *first, vocabulary.sep_id, *second, vocabulary.sep_id]
    rows.append((pair, [0] * (len(first) + 2) + [1] * (len(second) + 1)))
    longest = max(len(ids) for ids, _ in rows)
    token_ids_BS = torch.full((len(rows), longest), vocabulary.padding_id)
    segment_BS = torch.zeros_like(token_ids_BS)
    is_real_BS = torch.zeros_like(token_ids_BS, dtype=torch.bool)
    for number, (ids, segments) in enumerate(rows):
        token_ids_BS[number, : len(ids)] = torch.tensor(ids)
        segment_BS[number, : len(ids)] = torch.tensor(segments)
        is_real_BS[number, : len(ids)] = True
    return Probe(token_ids_BS=token_ids_BS, segment_BS=segment_BS, is_real_BS=is_real_BS)


@torch.no_grad()
def expected_outputs(exports: Mapping[str, HFFolder], probe: Probe) -> dict[str, Tensor]:
    """What the trained networks answer, in evaluation mode: hidden states or logits, by folder name."""
    position_BS = torch.arange(probe.token_ids_BS.shape[1]).expand_as(probe.token_ids_BS)
    piece_BS = probe.is_real_BS.int()
    return {
        kind: folder.run(probe.token_ids_BS, piece_BS, position_BS * piece_BS, probe.segment_BS).float()
        for kind, folder in exports.items()
    }


def write_probe(path: Path, probe: Probe, expected: Mapping[str, Tensor]) -> None:
    """One safetensors file that the self-check reads in its own process."""
    tensors = {"token_ids": probe.token_ids_BS, "segments": probe.segment_BS, "is_real": probe.is_real_BS}
    tensors |= {f"expected.{kind}": output.contiguous() for kind, output in expected.items()}
    durable.write_bytes(path, save(tensors))
