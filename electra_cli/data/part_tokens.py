"""Text to token ids, exactly as the tokenizers library does it, in bulk.

Where a vocabulary provably splits text at blanks before anything else, each distinct word is tokenised by the
library once and remembered; running text repeats its words so often that most of the work goes away.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer

from electra_cli.data.tokenizer_parts import IDEOGRAPH

_LONGEST_WORD = 40
_MOST_WORDS = 400_000
_BATCH_CHARACTERS = 1 << 19

# None of these looks across a blank or a line feed: canonical composition, case folding and the removal of
# marks and controls stop there, and the splitters cut there.
_NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"}
_ATOM = re.compile("[A-Za-z0-9]+|.")
_AROUND_IDEOGRAPHS = re.compile(f"({IDEOGRAPH.pattern})")
_SPLITTERS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}


def splits_at_blanks(tokenizer: Tokenizer) -> bool:
    """Whether the ids of a text are those of its blank-separated words, one after the other."""
    content = json.loads(tokenizer.to_str())
    return (
        content["model"].get("type") == "WordPiece"
        and _splitter(tokenizer) in _SPLITTERS
        and _are_local(content.get("normalizer"))
        and all(token["special"] for token in content.get("added_tokens", []))
        and bool(tokenizer.encode_special_tokens)
    )


def _splitter(tokenizer: Tokenizer) -> str:
    content = json.loads(tokenizer.to_str())
    return str((content.get("pre_tokenizer") or {}).get("type", ""))


def _is_plain(word: str) -> bool:
    """ASCII without controls, some of it punctuation, of which BERT's splitter makes a word each."""
    return word.isascii() and word.isprintable() and not word.isalnum()


def _pads_ideographs(normalizer: Mapping[str, object] | None) -> bool:
    if normalizer is None:
        return False
    inner = normalizer.get("normalizers")
    if isinstance(inner, list):
        return any(map(_pads_ideographs, inner))
    return bool(normalizer.get("handle_chinese_chars"))


def _are_local(normalizer: Mapping[str, object] | None) -> bool:
    if normalizer is None:
        return True
    inner = normalizer.get("normalizers")
    if isinstance(inner, list):
        return all(_are_local(one) for one in inner)
    return normalizer.get("type") in _NORMALIZERS


class PartTokenizer:
    """Tokenises many texts; the bytes of the ids are all it returns."""

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        """`dtype` is the type of an id in the bytes, in little-endian order."""
        self._tokenizer = tokenizer
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._word_ids: dict[str, bytes] | None = {} if splits_at_blanks(tokenizer) else None
        self._cuts_punctuation = _splitter(tokenizer) == "BertPreTokenizer"
        content = json.loads(tokenizer.to_str())
        self._pads_ideographs = _pads_ideographs(content.get("normalizer"))
        self._max_chars = int(content["model"].get("max_input_chars_per_word", 0))
        # Nothing cuts, shortens or drops such a run, so the word that holds it is too long in either form.
        self._long_run = re.compile(f"([A-Za-z0-9]{{{self._max_chars + 1}}})[A-Za-z0-9]+")

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text, without [CLS] and [SEP]."""
        if self._word_ids is None:
            return self._encode(texts)
        words = [text.replace("\n", " ").split(" ") for text in texts]
        passing = self._learn(set(chain.from_iterable(words)))
        ids = [b"".join(map(self._word_ids.__getitem__, part)) for part in words]
        for word in passing:
            del self._word_ids[word]
        return ids

    def _learn(self, words: set[str]) -> list[str]:
        """Make the ids of all these words known; returns those not worth remembering."""
        known = self._word_ids
        assert known is not None
        missing = words.difference(known)
        if len(known) + len(missing) > _MOST_WORDS:
            known.clear()
            missing = words
        joined = {word: atoms for word in missing if (atoms := self._atoms(word)) is not None}
        simple = missing.difference(joined).union(chain.from_iterable(joined.values())).difference(known)
        ordered = sorted(simple)
        known.update(zip(ordered, self._encode(ordered), strict=True))
        known.update((word, b"".join(map(known.__getitem__, atoms))) for word, atoms in joined.items())
        return [word for word in missing if len(word) > _LONGEST_WORD]

    def _atoms(self, word: str) -> list[str] | None:
        """Shorter texts with the same ids one after the other; `None` for a word that is best left whole."""
        if self._cuts_punctuation and _is_plain(word):
            return [self._shortened(atom) for atom in _ATOM.findall(word)]
        if self._pads_ideographs and not word.isascii() and IDEOGRAPH.search(word):
            return [self._shortened(atom) for atom in _AROUND_IDEOGRAPHS.split(word) if atom]
        return [self._shortened(word)] if len(word) > self._max_chars else None

    def _shortened(self, word: str) -> str:
        """A word that becomes [UNK] for its length, at a length that the library passes over quickly."""
        return self._long_run.sub(r"\1", word) if len(word) > self._max_chars else word

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        ids: list[bytes] = []
        for batch in _batches(texts):
            encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            ids += [np.array(encoding.ids, dtype=self._dtype).tobytes() for encoding in encodings]
        return ids


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in groups that keep the library's working memory, some hundred bytes a token, small."""
    batch: list[str] = []
    num_characters = 0
    for text in texts:
        batch.append(text)
        num_characters += len(text)
        if num_characters >= _BATCH_CHARACTERS:
            yield batch
            batch, num_characters = [], 0
    if batch:
        yield batch
