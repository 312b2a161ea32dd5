"""A vocabulary on disk, `vocab/`: loaded and checked, and what other parts ask of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from electra_cli.data.tokenizer_file import read_tokenizer
from electra_cli.data.tokenizer_parts import SPECIAL_PIECES
from electra_cli.data.vocabulary_manifest import read_manifest
from electra_cli.durable import sha256_file
from electra_cli.errors import CorruptError, InputError

if TYPE_CHECKING:
    from electra_cli.progress import Progress
    from electra_cli.project import Project

__all__ = [
    "SPECIAL_PIECES",
    "Vocabulary",
    "VocabularyReport",
    "build_vocabulary",
    "continuation_ids",
    "load_vocabulary",
    "tokenizer_class",
]

_ROLES: Mapping[str, tuple[str, ...]] = {
    "[PAD]": ("[PAD]", "<pad>"),
    "[UNK]": ("[UNK]", "<unk>"),
    "[CLS]": ("[CLS]", "<s>"),
    "[SEP]": ("[SEP]", "</s>"),
    "[MASK]": ("[MASK]", "<mask>"),
}
"""The special pieces by role, each with the spellings that own vocabularies use, the first found counts."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer with what identifies it; raw text never yields a special id."""

    folder: Path
    tokenizer: Tokenizer
    size: int
    """Pieces; every id is below it."""
    sha256: str
    """Of tokenizer.json: the vocabulary's identity in shards, checkpoints and exports."""
    padding_id: int
    unknown_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    lowercase: bool
    manifest: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class VocabularyReport:
    """What build-vocab did."""

    vocabulary: Vocabulary
    is_fresh: bool
    """False: it was up to date."""
    tokens_per_word: float | None
    """Tokens a word between blanks, on the sample; `None` for an own vocabulary."""
    unknown_fraction: float | None
    """Share of the sample's tokens that are [UNK]."""
    character_coverage: float | None
    """Share of the characters of the text that the vocabulary can spell."""


def build_vocabulary(project: "Project", progress: "Progress", *, force: bool = False) -> VocabularyReport:
    """Learn the project's vocabulary, or take over its own one, into `vocab/`; or find it up to date.

    `InputError`: no text; a vocabulary of other text or settings is there (without `force`); a folder of
    somebody else; an alphabet that does not fit `vocab.size`; an own vocabulary without special pieces.
    """
    from electra_cli.data.vocabulary_build import build

    return build(project, progress, force=force)


def load_vocabulary(folder: Path) -> Vocabulary:
    """Open `vocab/` and check every file against the manifest's sha256.

    `InputError`: nothing there, or special pieces missing; `CorruptError`: a file is not the one written.
    """
    manifest = read_manifest(folder)
    for name, expected in manifest["sha256"].items():
        path = folder / name
        if name not in ("tokenizer.json", "vocab.txt"):
            raise CorruptError(f"{folder}/manifest.json names {name!r}, which is no file of a vocabulary")
        if not path.is_file():
            raise CorruptError(f"{path} is missing", path=path, hint="electra build-vocab --force")
        actual = sha256_file(path)
        if actual != expected:
            raise CorruptError(
                f"{path} is not the file that build-vocab wrote: sha256 {expected} expected, {actual} found",
                path=path,
                hint="electra build-vocab --force builds it again; shards and runs keep to the old one",
            )
    path = folder / "tokenizer.json"
    tokenizer = read_tokenizer(path)
    padding, unknown, cls, sep, mask = special_ids(tokenizer, path)
    return Vocabulary(
        folder,
        tokenizer,
        tokenizer.get_vocab_size(with_added_tokens=True),
        manifest["sha256"]["tokenizer.json"],
        padding,
        unknown,
        cls,
        sep,
        mask,
        _folds_case(json.loads(tokenizer.to_str()).get("normalizer")),
        manifest,
    )


def special_ids(tokenizer: Tokenizer, path: Path) -> tuple[int, ...]:
    """Ids of padding, unknown, [CLS], [SEP], mask; `InputError` names the missing ones and the file."""
    found = {
        role: next((i for name in names if (i := tokenizer.token_to_id(name)) is not None), None)
        for role, names in _ROLES.items()
    }
    missing = [role for role, number in found.items() if number is None]
    if missing:
        raise InputError(
            f"{path} lacks {', '.join(missing)}",
            path=path,
            key="vocab.path",
            hint="a vocabulary needs [PAD] [UNK] [CLS] [SEP] [MASK]; add the missing pieces to the file",
        )
    return tuple(number for number in found.values() if number is not None)


def _folds_case(normalizer: Any) -> bool:
    if not isinstance(normalizer, dict):
        return False
    if normalizer.get("type") == "Sequence":
        return any(_folds_case(step) for step in normalizer["normalizers"])
    return normalizer.get("type") == "Lowercase" or bool(normalizer.get("lowercase"))


def continuation_ids(vocabulary: Vocabulary) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """bool[V]: which pieces continue a word that an earlier piece began.

    WordPiece says so by its prefix, Metaspace and byte-level vocabularies mark the beginning instead; there,
    pieces that begin with punctuation count as words of their own. Special pieces continue nothing.
    """
    content = json.loads(vocabulary.tokenizer.to_str())
    special = {entry["id"] for entry in content["added_tokens"] if entry["special"]}
    prefix = content["model"].get("continuing_subword_prefix") or ""
    mark = _beginning_mark(content.get("pre_tokenizer"))
    result = np.zeros(vocabulary.size, dtype=np.bool_)
    for piece, number in vocabulary.tokenizer.get_vocab(with_added_tokens=True).items():
        if number in special or not piece:
            continue
        if prefix:
            result[number] = piece.startswith(prefix) and piece != prefix
        elif mark:
            result[number] = not piece.startswith(mark) and (piece[0].isalnum() or ord(piece[0]) > 0x7F)
    return result


def _beginning_mark(pre_tokenizer: Any) -> str:
    if not isinstance(pre_tokenizer, dict):
        return ""
    if pre_tokenizer["type"] == "Sequence":
        return next(filter(None, map(_beginning_mark, pre_tokenizer["pretokenizers"])), "")
    if pre_tokenizer["type"] == "Metaspace":
        return str(pre_tokenizer["replacement"])
    return "Ġ" if pre_tokenizer["type"] == "ByteLevel" else ""


def tokenizer_class(vocabulary: Vocabulary) -> str:
    """The class of transformers whose tokenizer gives the training ids.

    `BertTokenizer` builds its own cleaning from `do_lower_case` alone, removes accents exactly when it folds
    case, and knows no Unicode normal form. Composed and decomposed text agree for it only where accents go.
    Every other vocabulary is loaded as it stands, by `PreTrainedTokenizerFast`.
    """
    content = json.loads(vocabulary.tokenizer.to_str())
    steps = content.get("normalizer") or {}
    steps = steps["normalizers"] if steps.get("type") == "Sequence" else [steps]
    bert = steps[-1]
    is_bert = (
        content["model"]["type"] == "WordPiece"
        and content["model"]["max_input_chars_per_word"] == 100
        and content["model"]["continuing_subword_prefix"] == "##"
        and (content.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
        and bert.get("type") == "BertNormalizer"
        and bert["clean_text"]
        and bert["handle_chinese_chars"]
        and all(vocabulary.tokenizer.token_to_id(piece) is not None for piece in SPECIAL_PIECES)
    )
    strips = bert.get("lowercase") if bert.get("strip_accents") is None else bert["strip_accents"]
    forms = [step.get("type") for step in steps[:-1]]
    is_same = strips == bert.get("lowercase") and (not forms or (forms == ["NFC"] and strips))
    return "BertTokenizer" if is_bert and is_same else "PreTrainedTokenizerFast"
