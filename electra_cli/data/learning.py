"""Word counts → a vocabulary, the same to the byte in every process.

The stock trainer of WordPiece gives `##x` pieces their ids in the order of a hash map and breaks ties between
merges by id (tokenizers issue 1794), and cuts the alphabet in hash order. So the alphabet is chosen here, its
continuation pieces get their ids first, in sorted order, and the finished list is put into a plain order.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from electra_cli.data.tokenizer_parts import CONTINUATION, SPECIAL_PIECES, bpe, unigram, wordpiece
from electra_cli.data.unigram import unigram_scores
from electra_cli.errors import InputError
from electra_cli.settings import Vocab

_BATCH_WORDS = 1000


@dataclass(frozen=True)
class Learned:
    """A learned tokenizer and what it can spell."""

    tokenizer: Tokenizer
    alphabet_size: int
    num_characters: int
    """Different characters in all counted words, those beyond `limit_alphabet` included."""
    character_coverage: float
    """Share of the characters of all counted words that are in the alphabet."""


def learn(words: Mapping[str, int], settings: Vocab) -> Learned:
    """Learn a vocabulary of at most `settings.size` pieces from word counts.

    Raises `InputError` when single characters alone need more pieces than that; never returns more.
    """
    # Order of the counts must not matter: the trainer sees words in one order only.
    words = dict(sorted(words.items()))
    if settings.kind == "bpe":
        return _learn_bpe(words, settings)
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    # Ties at the limit fall to the lower code point.
    ranked = sorted(characters, key=lambda character: (-characters[character], character))
    alphabet = set(ranked[: settings.limit_alphabet])
    if len(alphabet) < len(ranked):
        words = {word: count for word, count in words.items() if alphabet.issuperset(word)}
    total = sum(characters.values())
    coverage = sum(characters[character] for character in alphabet) / total if total else 1.0
    learner = _learn_wordpiece if settings.kind == "wordpiece" else _learn_unigram
    return Learned(learner(words, sorted(alphabet), settings), len(alphabet), len(ranked), coverage)


def _check_size(settings: Vocab, smallest: int, alphabet_size: int, hint: str) -> None:
    if settings.size >= smallest:
        return
    raise InputError(
        f"vocab.size = {settings.size:,} is too small: the text has an alphabet of {alphabet_size:,} "
        f"characters, which needs at least {smallest:,} pieces",
        key="vocab.size",
        hint=hint,
    )


def _train(trainer: Any, model: Any, words: Mapping[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    tokenizer.train_from_iterator(_repeated(words), trainer)
    return tokenizer


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Each word as often as it was counted: the trainer takes text, no counts."""
    batch: list[str] = []
    num_words = 0
    for word, count in words.items():
        for start in range(0, count, _BATCH_WORDS):
            times = min(count - start, _BATCH_WORDS)
            batch.append(f"{word} " * times)
            num_words += times
            if num_words >= _BATCH_WORDS:
                yield "".join(batch)
                batch, num_words = [], 0
    yield "".join(batch)


def _learn_wordpiece(words: Mapping[str, int], alphabet: list[str], settings: Vocab) -> Tokenizer:
    continuations = [CONTINUATION + c for c in sorted({c for word in words for c in word[1:]})]
    base = [*SPECIAL_PIECES, *alphabet, *continuations]
    limit = (settings.size - len(SPECIAL_PIECES)) // 2
    _check_size(
        settings,
        len(base),
        len(alphabet),
        f"set vocab.size = {len(base)} or more, or vocab.limit_alphabet = {limit} to keep the most frequent",
    )
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_frequency,
        special_tokens=[*SPECIAL_PIECES, *continuations],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    trained = _train(trainer, models.WordPiece(unk_token="[UNK]"), words).get_vocab()
    known = set(base)
    merged = [piece for piece in sorted(trained, key=trained.__getitem__) if piece not in known]
    return wordpiece([*base, *merged], settings)


def _learn_bpe(words: Mapping[str, int], settings: Vocab) -> Learned:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    smallest = len(SPECIAL_PIECES) + len(alphabet)
    _check_size(
        settings, smallest, len(alphabet), f"set vocab.size = {smallest} or more: every byte is a piece"
    )
    trainer = trainers.BpeTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_frequency,
        special_tokens=list(SPECIAL_PIECES),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    model = json.loads(_train(trainer, models.BPE(), words).to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    return Learned(bpe(model["vocab"], merges, settings), len(alphabet), len(alphabet), 1.0)


def _learn_unigram(words: Mapping[str, int], alphabet: list[str], settings: Vocab) -> Tokenizer:
    smallest = len(SPECIAL_PIECES) + len(alphabet)
    _check_size(
        settings,
        smallest,
        len(alphabet),
        f"set vocab.size = {smallest} or more, or lower vocab.limit_alphabet to keep the most frequent",
    )
    scores = unigram_scores(words, settings.size - len(SPECIAL_PIECES))
    return unigram([*((piece, 0.0) for piece in SPECIAL_PIECES), *scores], settings)
