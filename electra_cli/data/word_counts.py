"""Text → how often each word occurs, in memory bounded whatever the text.

Text is first counted by stretches between blanks, which is cheap; only distinct stretches pass through the
normaliser and the pre-tokenizer. Both treat the text on either side of a blank alone, so the counts are those
of the whole text.
"""

import re
from collections import Counter
from collections.abc import Iterator

from electra_cli.data.documents import cut_into_parts
from electra_cli.data.tokenizer_parts import IDEOGRAPH, normalizer, pre_tokenizer
from electra_cli.settings import Vocab

MAX_STRETCHES = 500_000
MAX_WORDS = 4_000_000
_LONG_STRETCH = 64
"""Text whose stretches are longer than this on average repeats too little to be counted by stretches."""


class WordCounter:
    """Counts words as a tokenizer would cut them; those over `max_input_chars` only by their number."""

    def __init__(self, settings: Vocab) -> None:
        self._normalizer = normalizer(settings)
        self._pre_tokenizer = pre_tokenizer(settings)
        self._max_chars = settings.max_input_chars
        self._splits_ideographs = settings.kind == "wordpiece"
        # Inside such a run nothing is cut and nothing cleaned away; byte-level BPE cuts letters from digits.
        kept = "[A-Za-z]" if settings.kind == "bpe" else "[A-Za-z0-9]"
        self._long_run = re.compile(f"({kept}{{{settings.max_input_chars + 1}}}){kept}+")
        self._stretches: dict[int, Counter[str]] = {}
        self.words: dict[str, int] = {}
        self.characters: Counter[str] = Counter()
        """Characters as they stand in the text, without blanks and line ends."""
        self.num_long_words = 0
        self.num_pruned_words = 0
        """Words seen once that were forgotten when there were more than `MAX_WORDS`."""

    def add(self, text: str, times: int = 1) -> None:
        """Count a text as often as `times` says."""
        for part in cut_into_parts(text.replace("\n", " ").replace("\t", " ").replace("\r", " ")):
            self._add_part(part, times)

    def _add_part(self, text: str, times: int) -> None:
        stretches = self._stretches.setdefault(times, Counter())
        if self._splits_ideographs and not text.isascii() and (ideographs := IDEOGRAPH.findall(text)):
            stretches.update(ideographs)
            text = IDEOGRAPH.sub(" ", text)
        found = text.split(" ")
        if len(text) > _LONG_STRETCH * len(found):
            self._count([text], times)
            return
        stretches.update(found)
        if len(stretches) > MAX_STRETCHES:
            self.flush()

    def flush(self) -> None:
        """Bring `words` and `characters` up to date."""
        for times, stretches in self._stretches.items():
            by_count: dict[int, list[str]] = {}
            for stretch, count in stretches.items():
                by_count.setdefault(count * times, []).append(stretch)
            for count, group in by_count.items():
                self._count(_joined(group), count)
        self._stretches = {}

    def _count(self, texts: "Iterator[str] | list[str]", count: int) -> None:
        words = self.words
        for text in texts:
            for character, occurrences in Counter(text).items():
                self.characters[character] += count * occurrences
            # A word that is too long anyway passes through the tokenizer shortened, which is much faster.
            text = self._long_run.sub(r"\1", text)
            for word, _ in self._pre_tokenizer.pre_tokenize_str(self._normalizer.normalize_str(text)):
                if len(word) > self._max_chars:
                    self.num_long_words += count
                else:
                    words[word] = words.get(word, 0) + count
        self.characters.pop(" ", None)
        if len(words) > MAX_WORDS:
            self.words = {word: number for word, number in words.items() if number > 1}
            self.num_pruned_words += len(words) - len(self.words)


def _joined(stretches: list[str], size: int = 1000) -> Iterator[str]:
    for start in range(0, len(stretches), size):
        yield " ".join(stretches[start : start + size])
