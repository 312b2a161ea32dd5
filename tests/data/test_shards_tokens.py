"""Tokenising in bulk gives exactly the ids of the tokenizers library."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

from electra_cli.data.part_tokens import PartTokenizer, splits_at_blanks

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = [
    "The quick brown fox jumps over the lazy dog, naïvely.",
    "Große Straßen; ΌΣΟΣ ὀδυσσεύς. 東京は 日本 の首都。 שלום עולם",
    "e\u0301 \u0301 a\u0323\u0307 \u1100\u1161\u11a8 ﬁne ½ \u00a8 İstanbul I\u0307 ẞ",
] * 3


def tokenizer_of(kind: str) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert = normalizers.BertNormalizer(lowercase=kind != "cased", strip_accents=kind != "cased")
    form = {"nfkc": normalizers.NFKC(), "cased": normalizers.NFC()}.get(kind, normalizers.NFD())
    made.normalizer = normalizers.Sequence([form, bert])
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=SPECIALS, show_progress=False, min_frequency=1
    )
    made.train_from_iterator(TEXT, trainer)
    made.encode_special_tokens = True
    return made


def ids_of(tokenizer: PartTokenizer, texts: list[str]) -> list[list[int]]:
    return [np.frombuffer(ids, dtype=np.uint16).tolist() for ids in tokenizer.encode(texts)]


KINDS = {kind: tokenizer_of(kind) for kind in ("nfkc", "cased", "nfd")}
FAST = {kind: PartTokenizer(made, "uint16") for kind, made in KINDS.items()}

# Blanks, line ends, combining marks, jamo and compatibility characters far more often than by chance.
characters = st.one_of(
    st.sampled_from(
        list("ab \n\t\r \u00a0\u0301\u0323\u1100\u1161\u11a8\u00a8\u0345ΣσİßﬁZ.[]\u200b\u3000\x00\x1c")
    ),
    # Ideographs, which are words without blanks, and runs longer than a word may be.
    st.sampled_from(["東", "京", "語", "、", "\uf900", "\ufe00", "\U0002b820", "\u3099"]),
    st.characters(exclude_categories=["Cs"]),
)

# … and runs that are longer than a word may be.
runs = st.tuples(st.sampled_from("xZ9Ä"), st.integers(25, 70)).map(lambda run: run[0] * run[1])
texts_of_runs = st.lists(st.one_of(st.text(characters), runs), max_size=4).map("".join)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(texts_of_runs, max_size=6), st.sampled_from(sorted(KINDS)))
def test_P05_bulk_ids_equal_those_of_the_library(texts: list[str], kind: str) -> None:
    expected = [KINDS[kind].encode(text, add_special_tokens=False).ids for text in texts]
    assert ids_of(FAST[kind], texts) == expected
    # And again, with every word remembered.
    assert ids_of(FAST[kind], texts) == expected


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from([*SPECIALS, "the", " ", "\n", "[", "CLS", "##a", "[unused0]"])))
def test_raw_text_never_yields_a_special_id(words: list[str]) -> None:
    for kind, tokenizer in FAST.items():
        ids = ids_of(tokenizer, ["".join(words)])[0]
        assert ids == KINDS[kind].encode("".join(words), add_special_tokens=False).ids
        assert not {0, 2, 3, 4} & set(ids)


def test_every_assigned_character_alone_and_between_blanks_agrees() -> None:
    texts = [
        f"a{chr(code)}b {chr(code)} {chr(code)}" for code in range(0x3000) if not 0xD800 <= code < 0xE000
    ]
    for kind, made in KINDS.items():
        assert splits_at_blanks(made)
        assert ids_of(FAST[kind], texts) == [
            encoding.ids for encoding in made.encode_batch_fast(texts, add_special_tokens=False)
        ]


def test_other_kinds_of_vocabulary_are_left_to_the_library() -> None:
    wordpiece = tokenizer_of("nfd")
    wordpiece.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])
    assert not splits_at_blanks(wordpiece)
    phrase = tokenizer_of("nfd")
    phrase.add_tokens([AddedToken("lazy dog", special=False)])
    assert not splits_at_blanks(phrase)
    unsafe = tokenizer_of("nfd")
    unsafe.encode_special_tokens = False
    assert not splits_at_blanks(unsafe)
    bpe = Tokenizer(models.BPE(unk_token="[UNK]"))
    bpe.pre_tokenizer = pre_tokenizers.Metaspace()
    bpe.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIALS, show_progress=False)
    )
    bpe.encode_special_tokens = True
    assert not splits_at_blanks(bpe)
    for made in (wordpiece, phrase, bpe):
        expected = [made.encode(text, add_special_tokens=False).ids for text in TEXT]
        assert ids_of(PartTokenizer(made, "uint16"), TEXT) == expected


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra_cli.data.part_tokens._MOST_WORDS", 50)
    made = tokenizer_of("nfd")
    tokenizer = PartTokenizer(made, "uint16")
    texts = [f"{word}{number} {'x' * 50}{number}" for word in ("a", "fox") for number in range(60)]
    for start in range(0, len(texts), 10):
        batch = texts[start : start + 10]
        assert ids_of(tokenizer, batch) == [made.encode(t, add_special_tokens=False).ids for t in batch]
        assert len(tokenizer._word_ids or {}) <= 50


def test_ids_beyond_65535_keep_their_value(tmp_path: Path) -> None:
    vocabulary = {word: n for n, word in enumerate([*SPECIALS, *(f"w{n}" for n in range(70_000))])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.encode_special_tokens = True
    ids = PartTokenizer(made, "uint32").encode(["w69999 w1"])[0]
    assert np.frombuffer(ids, dtype=np.uint32).tolist() == [70_004, 6]
