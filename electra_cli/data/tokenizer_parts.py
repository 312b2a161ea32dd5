"""The tokenizers that a project can have, put together from its `[vocab]` settings.

WordPiece cleans and splits text as BERT does; Unigram and byte-level BPE clean it the same way, then mark the
beginning of a word with `▁` or `Ġ`. Every kind adds [CLS] and [SEP] and token types 0 and 1 for pairs.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from electra_cli.settings import Vocab

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Pieces 0 to 4 of a learned vocabulary; in an own one they may lie elsewhere."""

CONTINUATION = "##"

IDEOGRAPH = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)
"""Ideographs that BERT's cleaning surrounds with blanks: each is a word."""


def normalizer(settings: Vocab) -> Any:
    """Unicode form, BERT's cleaning, and the two switches: folding of case, removal of accents.

    Cleaning removes NUL, U+FFFD and all control and format characters but tab and line ends, and turns every
    kind of white space into a blank; WordPiece also puts blanks around ideographs.
    """
    steps = [] if settings.unicode_norm == "none" else [getattr(normalizers, settings.unicode_norm)()]
    steps.append(
        normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=settings.kind == "wordpiece",
            strip_accents=settings.strip_accents,
            lowercase=settings.lowercase,
        )
    )
    if settings.kind != "wordpiece":
        # Here a blank is part of a piece; runs of blanks would become pieces of their own.
        steps += [normalizers.Replace(Regex(" +"), " "), normalizers.Strip()]
    return steps[0] if len(steps) == 1 else normalizers.Sequence(steps)


def pre_tokenizer(settings: Vocab) -> Any:
    """What cuts cleaned text into words; pieces never cross a word's edge."""
    if settings.kind == "wordpiece":
        return pre_tokenizers.BertPreTokenizer()
    if settings.kind == "bpe":
        return pre_tokenizers.ByteLevel(add_prefix_space=True)
    return pre_tokenizers.Metaspace()


def wordpiece(pieces: Sequence[str], settings: Vocab) -> Tokenizer:
    """WordPiece over these pieces; a piece's place is its id."""
    ids = {piece: number for number, piece in enumerate(pieces)}
    model = models.WordPiece(
        ids,
        unk_token="[UNK]",
        max_input_chars_per_word=settings.max_input_chars,
        continuing_subword_prefix=CONTINUATION,
    )
    return _assembled(model, settings, decoders.WordPiece(prefix=CONTINUATION))


def bpe(ids: Mapping[str, int], merges: Sequence[tuple[str, str]], settings: Vocab) -> Tokenizer:
    """Byte-level BPE."""
    return _assembled(models.BPE(dict(ids), list(merges)), settings, decoders.ByteLevel())


def unigram(scores: Sequence[tuple[str, float]], settings: Vocab) -> Tokenizer:
    """Unigram language model; a piece's place is its id, [UNK] has id 1."""
    return _assembled(models.Unigram(list(scores), unk_id=1), settings, decoders.Metaspace())


def _assembled(model: Any, settings: Vocab, decoder: Any) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer(settings)
    tokenizer.pre_tokenizer = pre_tokenizer(settings)
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken(p, special=True, normalized=False) for p in SPECIAL_PIECES])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(piece, tokenizer.token_to_id(piece)) for piece in ("[CLS]", "[SEP]")],
    )
    return tokenizer
