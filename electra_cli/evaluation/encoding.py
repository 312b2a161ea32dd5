"""Texts to token ids, pairs cut to length, and batches of about equal length."""

# B batch, S sequence, N examples

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor

from electra_cli import keyed
from electra_cli.data.tokenizer_file import read_tokenizer
from electra_cli.errors import InputError
from electra_cli.evaluation.examples import Examples
from electra_cli.models.folder_files import read_json

_CHUNK = 10_000
_BATCHES_SORTED_TOGETHER = 64


@dataclass(frozen=True)
class TextEncoder:
    """A tokenizer and the ids of its special pieces."""

    tokenizer: Tokenizer
    cls_id: int
    sep_id: int
    padding_id: int
    mask_id: int | None
    """`None` where the vocabulary has no such piece; fine-tuning needs none."""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Token ids of a split, end to end."""

    token_ids: NDArray[np.int32]
    start_N: NDArray[np.int64]
    """First token of each example."""
    length_N: NDArray[np.int64]
    first_length_N: NDArray[np.int64]
    """Tokens of segment 0: [CLS], the first text, [SEP]."""

    def __len__(self) -> int:
        return len(self.length_N)


@dataclass(frozen=True, kw_only=True)
class TextBatch:
    """Examples padded to the longest among them."""

    token_ids_BS: Tensor
    piece_BS: Tensor
    position_BS: Tensor
    segment_BS: Tensor


def load_text_encoder(folder: Path) -> TextEncoder:
    """The tokenizer of a model folder: tokenizer.json, else a WordPiece vocab.txt.

    Raises InputError where there is none or a special piece is missing, CorruptError for a damaged file.
    Text that spells a special piece stays text.
    """
    tokenizer = _load_tokenizer(folder)
    names = _special_names(folder)
    ids: dict[str, int] = {}
    for kind in ("cls_token", "sep_token", "pad_token"):
        name = names[kind]
        number = tokenizer.token_to_id(name)
        if number is None:
            raise InputError(
                f"the tokenizer of {folder} has no piece {name!r}",
                path=folder,
                hint="tokenizer_config.json may name its cls_token, sep_token and pad_token",
            )
        ids[kind] = number
    return TextEncoder(
        tokenizer=tokenizer,
        cls_id=ids["cls_token"],
        sep_id=ids["sep_token"],
        padding_id=ids["pad_token"],
        mask_id=tokenizer.token_to_id(names["mask_token"]),
    )


def _load_tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if path.is_file():
        return read_tokenizer(path)
    path = folder / "vocab.txt"
    if not path.is_file():
        raise InputError(f"{folder} holds neither tokenizer.json nor vocab.txt", path=folder)
    config = _tokenizer_config(folder)
    lowercase = config.get("do_lower_case", True) is not False
    pieces = path.read_bytes().decode("utf-8", "replace").split("\n")
    vocab = {piece.removesuffix("\r"): number for number, piece in enumerate(pieces) if piece}
    tokenizer = Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _tokenizer_config(folder: Path) -> Mapping[str, object]:
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def _special_names(folder: Path) -> dict[str, str]:
    config = _tokenizer_config(folder)
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    for kind in names:
        named = config.get(kind)
        if isinstance(named, dict):
            named = named.get("content")
        if isinstance(named, str):
            names[kind] = named
    return names


def cut_pair(first: int, second: int | None, max_length: int) -> tuple[int, int]:
    """Tokens to keep of each text so that with [CLS] and one [SEP] a text they fit into `max_length`.

    The longer text gives way first; at equal lengths the second does.
    """
    room = max(0, max_length - (2 if second is None else 3))
    if second is None:
        return min(first, room), 0
    if first + second <= room:
        return first, second
    if min(first, second) <= room // 2:
        return (room - second, second) if first > second else (first, room - first)
    return room - room // 2, room // 2


def encode(examples: Examples, encoder: TextEncoder, max_length: int) -> Encoded:
    """`[CLS] text [SEP]` or `[CLS] text [SEP] pair [SEP]` of every example, at most `max_length` ids."""
    parts: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    first_lengths: list[int] = []
    for start in range(0, len(examples), _CHUNK):
        texts = _ids(encoder, examples.texts[start : start + _CHUNK])
        pairs: list[list[int]] | list[None] = [None] * len(texts)
        if examples.pairs is not None:
            pairs = _ids(encoder, examples.pairs[start : start + _CHUNK])
        for text, pair in zip(texts, pairs, strict=True):
            ids, first_length = _joined(text, pair, encoder, max_length)
            parts.append(np.array(ids, dtype=np.int32))
            lengths.append(len(ids))
            first_lengths.append(first_length)
    length_N = np.array(lengths, dtype=np.int64)
    return Encoded(
        token_ids=np.concatenate(parts),
        start_N=np.cumsum(length_N) - length_N,
        length_N=length_N,
        first_length_N=np.array(first_lengths, dtype=np.int64),
    )


def _ids(encoder: TextEncoder, texts: tuple[str, ...]) -> list[list[int]]:
    encodings = encoder.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def _joined(
    text: list[int], pair: list[int] | None, encoder: TextEncoder, max_length: int
) -> tuple[list[int], int]:
    keep, keep_pair = cut_pair(len(text), None if pair is None else len(pair), max_length)
    ids = [encoder.cls_id, *text[:keep], encoder.sep_id]
    first_length = len(ids)
    if pair is not None:
        ids += [*pair[:keep_pair], encoder.sep_id]
    # Only an absurd `max_length` below the number of special pieces cuts here.
    return ids[:max_length], min(first_length, max_length)


def joined(parts: list[Encoded]) -> Encoded:
    """Several encoded splits as one, in their order."""
    length_N = np.concatenate([part.length_N for part in parts])
    return Encoded(
        token_ids=np.concatenate([part.token_ids for part in parts]),
        start_N=np.cumsum(length_N) - length_N,
        length_N=length_N,
        first_length_N=np.concatenate([part.first_length_N for part in parts]),
    )


def gather(encoded: Encoded, index_B: NDArray[np.int64], padding_id: int, device: torch.device) -> TextBatch:
    """The examples at `index_B`, padded to the longest of them."""
    length_B = encoded.length_N[index_B]
    place_S = np.arange(int(length_B.max()))
    is_token_BS = place_S < length_B[:, None]
    flat_BS = np.where(is_token_BS, encoded.start_N[index_B][:, None] + place_S, 0)
    token_ids_BS = np.where(is_token_BS, encoded.token_ids[flat_BS], padding_id).astype(np.int64)
    segment_BS = is_token_BS & (place_S >= encoded.first_length_N[index_B][:, None])
    return TextBatch(
        token_ids_BS=torch.from_numpy(token_ids_BS).to(device),
        piece_BS=torch.from_numpy(is_token_BS.astype(np.int32)).to(device),
        position_BS=torch.from_numpy(np.where(is_token_BS, place_S, 0)).to(device),
        segment_BS=torch.from_numpy(segment_BS.astype(np.int64)).to(device),
    )


def training_batches(
    length_N: NDArray[np.int64], batch_size: int, *, seed: int, epoch: int
) -> Iterator[NDArray[np.int64]]:
    """One epoch's batches in keyed order: every example once, neighbours of about equal length.

    Examples are permuted, sorted by length within stretches of 64 batches, cut into batches, and the
    batches permuted again; only the last stretch may hold a short batch.
    """
    number = len(length_N)
    order_N = keyed.permuted(np.arange(number), number, keyed.key(seed, f"fine-tuning order {epoch}"))
    stretch = batch_size * _BATCHES_SORTED_TOGETHER
    batches: list[NDArray[np.int64]] = []
    for start in range(0, number, stretch):
        part = order_N[start : start + stretch]
        part = part[np.argsort(length_N[part], kind="stable")]
        batches += [part[place : place + batch_size] for place in range(0, len(part), batch_size)]
    count = len(batches)
    for place in keyed.permuted(np.arange(count), count, keyed.key(seed, f"fine-tuning batches {epoch}")):
        yield batches[int(place)]


def scoring_batches(length_N: NDArray[np.int64], max_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Every example once, by length, as many a batch as `max_tokens` padded tokens allow."""
    order_N = np.argsort(length_N, kind="stable")
    start = 0
    for end in range(1, len(order_N) + 1):
        is_full = end == len(order_N) or int(length_N[order_N[end]]) * (end + 1 - start) > max_tokens
        if is_full:
            yield order_N[start:end]
            start = end
