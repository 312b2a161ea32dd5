"""Learning a vocabulary: the same bytes every time, never longer than asked, no special id from raw text."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.data.learning import learn
from electra_cli.data.tokenizer_parts import SPECIAL_PIECES, normalizer, pre_tokenizer, wordpiece
from electra_cli.data.word_counts import WordCounter
from electra_cli.errors import InputError
from electra_cli.settings import Vocab

PROPERTY = settings(max_examples=100, derandomize=True, deadline=None)
# Every plane that a cleaning step treats in its own way, and what stands for the special pieces.
UNICODE = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aé中ก्\u0301ß\ufffd\u200d[]#")),
    max_size=30,
)


def count(text: str, options: Vocab) -> WordCounter:
    counter = WordCounter(options)
    counter.add(text)
    counter.flush()
    return counter


def words_of_the_library(text: str, options: Vocab) -> Counter[str]:
    cleaned = normalizer(options).normalize_str(text)
    found = Counter(word for word, _ in pre_tokenizer(options).pre_tokenize_str(cleaned))
    return Counter({word: n for word, n in found.items() if len(word) <= options.max_input_chars})


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize(("lowercase", "strip"), [(True, True), (True, False), (False, True), (False, False)])
@PROPERTY
@given(text=UNICODE)
def test_counts_are_those_of_the_tokenizer(kind, lowercase, strip, text):
    options = Vocab(kind=kind, lowercase=lowercase, strip_accents=strip)
    assert count(text, options).words == words_of_the_library(text, options)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@PROPERTY
@given(text=st.text("ab1É \u0301.中", max_size=60))
def test_words_that_are_too_long_are_left_out_exactly(kind, text):
    options = Vocab(kind=kind, max_input_chars=4)
    assert count(text, options).words == words_of_the_library(text, options)


def test_long_words_are_counted_but_not_learned():
    options = Vocab(max_input_chars=10)
    counter = count("short " + "x" * 11 + " 中" * 20 + " " + "y" * 5000, options)
    assert counter.num_long_words == 2
    assert counter.words == {"short": 1, "中": 20}


SENTENCES = [
    " ".join(
        random.Random(number).choices(["alpha", "beta", "gamma", "delta", "Über", "naïve", "中文", "x1"], k=9)
    )
    for number in range(200)
]

_BUILD = """
import sys
from electra_cli.data.learning import learn
from electra_cli.data.word_counts import WordCounter
from electra_cli.settings import Vocab
text = sys.stdin.read()
options = Vocab(kind=sys.argv[1], size=int(sys.argv[2]))
counter = WordCounter(options)
counter.add(text)
counter.flush()
print(learn(counter.words, options).tokenizer.to_str())
"""


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 700), ("bpe", 700), ("unigram", 120)])
def test_case_A01_property_P14_ten_processes_learn_the_same(kind, size):
    if kind == "unigram":
        pytest.importorskip("sentencepiece")
    text = " ".join(
        Path(__file__).with_name(name).read_text()
        for name in ("test_corpus_text.py", "test_corpus_formats.py")
    )
    results = set()
    for seed in range(10 if kind == "wordpiece" else 4):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(seed % 3 + 1)}
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, kind, str(size)],
            input=text,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        results.add(done.stdout)
    assert len(results) == 1


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_property_P14_the_order_of_the_text_does_not_matter(kind):
    options = Vocab(kind=kind, size=320)
    shuffled = SENTENCES.copy()
    random.Random(1).shuffle(shuffled)
    one, other = (
        learn(count("\n".join(lines), options).words, options).tokenizer.to_str()
        for lines in (SENTENCES, shuffled)
    )
    assert one == other


def test_property_P13_special_pieces_come_first_then_the_alphabet():
    options = Vocab(size=60)
    tokenizer = learn({"abc": 5, "bcd": 4, "xyz": 1}, options).tokenizer
    pieces = [tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())]
    assert pieces[:12] == [*SPECIAL_PIECES, *"abcdxyz"]
    assert pieces[12:17] == ["##b", "##c", "##d", "##y", "##z"]
    assert "##bc" in pieces or "bc" in pieces or "abc" in pieces


def test_case_A02_an_alphabet_that_does_not_fit_is_refused():
    words = {chr(0x4E00 + number): 1 for number in range(300)}
    with pytest.raises(InputError, match=r"vocab\.size = 50 .* alphabet of 300 .* at least 305") as caught:
        learn(words, Vocab(size=50))
    assert "305" in caught.value.hint
    assert learn(words, Vocab(size=305)).tokenizer.get_vocab_size() == 305


@PROPERTY
@given(
    words=st.dictionaries(st.text("abcdeé中", min_size=1, max_size=6), st.integers(1, 5), max_size=30),
    size=st.integers(32, 60),
    limit=st.integers(1, 12),
)
def test_case_A02_a_vocabulary_is_never_longer_than_asked(words, size, limit):
    learned = learn(words, Vocab(size=size, limit_alphabet=limit))
    assert learned.tokenizer.get_vocab_size() <= size
    assert learned.alphabet_size <= limit
    assert 0 <= learned.character_coverage <= 1


def test_pitfall_K23_the_most_frequent_characters_are_kept_and_ties_fall_to_the_lower():
    learned = learn({"ab": 5, "ca": 3, "dc": 3, "zy": 3}, Vocab(size=40, limit_alphabet=3))
    pieces = learned.tokenizer.get_vocab()
    assert [c for c in "abcdyz" if c in pieces] == ["a", "b", "c"]
    assert learned.character_coverage == pytest.approx((8 + 5 + 6) / 28)


def test_pitfall_K23_rare_pairs_are_not_merged():
    words = {"abab": 1, "cdcd": 3}
    assert "cdcd" in learn(words, Vocab(size=40, min_frequency=3)).tokenizer.get_vocab()
    assert "abab" not in learn(words, Vocab(size=40, min_frequency=3)).tokenizer.get_vocab()


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@PROPERTY
@given(
    text=st.one_of(
        UNICODE, st.lists(st.sampled_from([*SPECIAL_PIECES, "[unused0]", " a", "##b"])).map("".join)
    )
)
def test_property_P10_raw_text_never_yields_a_special_id(kind, text):
    tokenizer = LEARNED[kind]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert not {0, 2, 3, 4} & set(ids)


def _learned(kind: str) -> object:
    if kind == "unigram":
        from electra_cli.data.tokenizer_parts import unigram

        scores = [(piece, 0.0) for piece in SPECIAL_PIECES] + [(c, -3.0) for c in "▁[]PADUNKCLSEPMAabc#"]
        tokenizer = unigram(scores, Vocab(kind=kind))
    else:
        options = Vocab(kind=kind, size=400)
        tokenizer = learn(count("\n".join(SENTENCES) + " [ ] # sep cls", options).words, options).tokenizer
    tokenizer.encode_special_tokens = True
    return tokenizer


LEARNED = {kind: _learned(kind) for kind in ("wordpiece", "bpe", "unigram")}


@PROPERTY
@given(text=UNICODE)
def test_property_P11_cleaning_twice_gives_the_ids_of_once(text):
    options = Vocab()
    tokenizer = LEARNED["wordpiece"]
    once = normalizer(options).normalize_str(text)
    assert tokenizer.encode(once).ids == tokenizer.encode(text).ids


@PROPERTY
@given(text=st.text("aábc̈̃eö ñ", max_size=30))
def test_case_A05_composed_and_decomposed_text_agree(text):
    import unicodedata

    options = Vocab(lowercase=False, strip_accents=False)
    tokenizer = wordpiece([*SPECIAL_PIECES, *"aábceöñ", *("##" + c for c in "aábceöñ̈̃")], options)
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
    assert tokenizer.encode(forms[0]).ids == tokenizer.encode(forms[1]).ids
    assert count(forms[0], options).words == count(forms[1], options).words


def test_unigram_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(InputError, match='"unigram" needs sentencepiece'):
        learn({"▁ab": 3}, Vocab(kind="unigram", size=40))
