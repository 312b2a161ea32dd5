"""build-vocab as a stage and as a command: what it writes, finds up to date, and refuses."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from electra_cli.data.checked_manifest import write_manifest
from electra_cli.data.vocabulary import (
    SPECIAL_PIECES,
    VocabularyReport,
    build_vocabulary,
    continuation_ids,
    load_vocabulary,
    tokenizer_class,
)
from electra_cli.durable import locked
from electra_cli.errors import CorruptError, InputError
from electra_cli.progress import Silent
from electra_cli.project import project_from_settings
from electra_cli.settings import Corpus, CorpusSource, ProjectSettings, Vocab

TURKISH = "şanlıurfa öğün çocuk İstanbul IĞDIR"
TEXT = (
    "The quick brown fox jumps over the lazy dog. It was unbelievable!\n\nMöchte MÜSSTE café naïve.\n\n" * 30
)


class Heard(Silent):
    def __init__(self) -> None:
        self.warnings: dict[str, str] = {}
        self.messages: list[str] = []

    def warning(self, text: str, *, code: str = "") -> None:
        self.warnings[code] = text

    def message(self, text: str) -> None:
        self.messages.append(text)


def build(
    root: Path,
    *,
    force: bool = False,
    heard: Heard | None = None,
    corpus: Corpus | None = None,
    **vocab: object,
) -> VocabularyReport:
    options = {"size": 200, **vocab}
    settings = ProjectSettings(corpus=corpus or Corpus(), vocab=Vocab(**options))
    return build_vocabulary(project_from_settings(settings, root), heard or Heard(), force=force)


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text(TEXT)
    return tmp_path


def test_what_is_written(root):
    report = build(root)
    names = {entry.name for entry in (root / "vocab").iterdir()} - {".lock", ".inputs.json"}
    assert names == {"tokenizer.json", "vocab.txt", "manifest.json"}
    manifest = json.loads((root / "vocab" / "manifest.json").read_text())
    assert {
        "format",
        "kind",
        "size",
        "sha256",
        "settings",
        "inputs",
        "tokens_per_word",
        "unknown_fraction",
    } < set(manifest)
    assert {"character_coverage", "sampled_bytes"} < set(manifest)
    assert manifest["inputs"][0]["path"] == "corpus/a.txt"
    assert manifest["sampled_bytes"] == manifest["text_bytes"] == len(TEXT.replace("\n\n", "").encode())
    assert manifest["unknown_fraction"] == 0 and manifest["character_coverage"] == 1
    assert manifest["num_documents"] == 60
    assert report.is_fresh and 1 < report.tokens_per_word < 4
    vocabulary = report.vocabulary
    lines = (root / "vocab" / "vocab.txt").read_text().splitlines()
    assert [vocabulary.tokenizer.id_to_token(i) for i in range(vocabulary.size)] == lines
    assert lines[:5] == list(SPECIAL_PIECES)
    ids = (
        vocabulary.padding_id,
        vocabulary.unknown_id,
        vocabulary.cls_id,
        vocabulary.sep_id,
        vocabulary.mask_id,
    )
    assert ids == (0, 1, 2, 3, 4)
    assert vocabulary.lowercase


def test_raw_text_never_yields_a_special_id_after_loading(root):
    tokenizer = build(root).vocabulary.tokenizer
    assert not {0, 2, 3, 4} & set(tokenizer.encode("a [SEP] [MASK] [PAD]", add_special_tokens=False).ids)
    pair = tokenizer.encode("the fox", "the dog")
    assert pair.tokens[0] == "[CLS]" and pair.tokens[-1] == "[SEP]"
    assert set(pair.type_ids) == {0, 1}


def test_the_same_again_is_up_to_date_and_writes_nothing(root):
    first = build(root)
    before = {p.name: p.stat().st_mtime_ns for p in (root / "vocab").iterdir() if p.name != ".lock"}
    again = build(root)
    assert not again.is_fresh
    assert again.vocabulary.sha256 == first.vocabulary.sha256
    assert {p.name: p.stat().st_mtime_ns for p in (root / "vocab").iterdir() if p.name != ".lock"} == before
    assert again.tokens_per_word == first.tokens_per_word


def test_a_touched_file_is_hashed_again_and_found_equal(root):
    build(root)
    os.utime(root / "corpus" / "a.txt", (1, 1))
    assert not build(root).is_fresh


def test_other_settings_or_text_are_refused_with_both_values(root):
    build(root)
    with pytest.raises(InputError, match=r"vocab\.lowercase: true there, false now") as caught:
        build(root, lowercase=False)
    assert "--force" in caught.value.hint
    old = (root / "corpus" / "a.txt").stat()
    (root / "corpus" / "a.txt").write_text(TEXT.replace("fox", "cat"))
    os.utime(root / "corpus" / "a.txt", ns=(old.st_atime_ns, old.st_mtime_ns))
    with pytest.raises(InputError, match=r"corpus/a\.txt: [\d,]+ bytes, sha256 \w+… there, .* now"):
        build(root)
    (root / "corpus" / "b.txt").write_text("more")
    with pytest.raises(InputError, match=r"corpus/b\.txt: not there, 4 bytes now"):
        build(root)
    assert build(root, force=True).is_fresh


def test_damage_is_named_and_force_builds_again(root):
    build(root)
    for name in ("vocab.txt", "tokenizer.json", "manifest.json"):
        path = root / "vocab" / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptError, match=name):
            load_vocabulary(root / "vocab")
        with pytest.raises(CorruptError, match=name):
            build(root)
        assert build(root, force=True).is_fresh
    (root / "vocab" / "vocab.txt").unlink()
    with pytest.raises(CorruptError, match="missing"):
        build(root)


@pytest.mark.parametrize("name", ["../corpus/a.txt", "/etc/passwd", "vocab.txt/../x"])
def test_security_S02_a_manifest_leads_nowhere_else(root, name):
    content = dict(build(root).vocabulary.manifest)
    content.pop("checksum", None)
    write_manifest(root / "vocab", content | {"sha256": {name: "0" * 64}})
    with pytest.raises(CorruptError, match="no file of a vocabulary"):
        load_vocabulary(root / "vocab")


def test_a_foreign_folder_is_left_alone(root):
    (root / "vocab").mkdir()
    (root / "vocab" / "thesis.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(InputError, match=r"did not write: thesis\.txt"):
            build(root, force=force)
    assert [path.name for path in (root / "vocab").iterdir()] == ["thesis.txt"]


def test_a_refused_build_leaves_no_folder(root):
    (root / "corpus" / "a.txt").write_text(" \n\n\t\n")
    with pytest.raises(InputError, match="0 documents"):
        build(root)
    assert not (root / "vocab").exists()


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize(
    ("text", "why"), [("x" * 500, "1 word of more than"), ("\x01\x02 \ufffd", "cleaning leaves nothing")]
)
def test_input_I03_text_without_a_word_is_refused_and_nothing_written(root, text, why, kind):
    (root / "corpus" / "a.txt").write_text(text)
    with pytest.raises(InputError, match=f"1 file, .* holds no word to learn from: {why}"):
        build(root, kind=kind, size=300)
    assert not (root / "vocab").exists()


def test_a_killed_build_is_finished_by_the_next(root):
    expected = build(root).vocabulary.sha256
    (root / "vocab" / "manifest.json").unlink()
    (root / "vocab" / ".tmp-1-vocab.txt").write_text("half")
    with pytest.raises(InputError, match="no vocabulary"):
        load_vocabulary(root / "vocab")
    assert build(root).vocabulary.sha256 == expected
    assert not list((root / "vocab").glob(".tmp-*"))


def test_case_A02_an_alphabet_too_large_is_refused_and_nothing_written(root):
    (root / "corpus" / "a.txt").write_text(" ".join(chr(0x4E00 + i) for i in range(300)))
    with pytest.raises(InputError, match=r"alphabet of 300 .* at least 305 pieces"):
        build(root, size=50)
    assert not (root / "vocab").exists()
    assert build(root, size=305).vocabulary.size == 305


def test_pitfall_K23_a_cut_alphabet_is_reported(root):
    heard = Heard()
    build(root, heard=heard, limit_alphabet=10)
    assert "vocab.limit_alphabet = 10 keeps the most frequent" in heard.warnings["alphabet-limit"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_case_A04_turkish_keeps_its_letters(root, lowercase):
    (root / "corpus" / "a.txt").write_text((TURKISH + "\n") * 100)
    vocabulary = build(root, lowercase=lowercase, strip_accents=False).vocabulary
    encoded = vocabulary.tokenizer.encode(TURKISH, add_special_tokens=False)
    assert vocabulary.unknown_id not in encoded.ids
    text = "".join(encoded.tokens).replace("##", "")
    assert "ş" in text and "ı" in text and "ğ" in text


def test_case_A04_input_I02_changes_of_letters_are_reported(root):
    heard = Heard()
    (root / "corpus" / "a.txt").write_text((TURKISH + "\n") * 100)
    build(root, heard=heard)
    assert "strip_accents changes" in heard.warnings["accents"]
    heard = Heard()
    build(root, heard=heard, strip_accents=False, force=True)
    assert "accents" not in heard.warnings
    for text, code in (
        ("ภาษาไทย ที่นี่\n", "marks"),
        ("한국어 문장\n", "hangul"),
        ("a\ue000b\u00adc\n", "dropped-characters"),
    ):
        heard = Heard()
        (root / "corpus" / "a.txt").write_text(text * 100)
        build(root, heard=heard, force=True)
        assert code in heard.warnings


def test_case_A05_unicode_forms_learn_the_same(root):
    shas = []
    for form in ("NFC", "NFD"):
        (root / "corpus" / "a.txt").write_text(unicodedata.normalize(form, TEXT))
        shas.append(build(root, lowercase=False, strip_accents=False, force=True).vocabulary.sha256)
    assert shas[0] == shas[1]
    assert (
        json.loads((root / "vocab" / "manifest.json").read_text())["settings"]["vocab"]["unicode_norm"]
        == "NFC"
    )


def test_property_P06_line_ends_bom_compression_and_splits_learn_the_same(root):
    expected = build(root).vocabulary.sha256
    blank = TEXT.index("\n\n", len(TEXT) // 2) + 2
    variants = [
        {"a.txt": TEXT.replace("\n", "\r\n").encode()},
        {"a.txt": b"\xef\xbb\xbf" + TEXT.encode()},
        {"a.txt.gz": gzip.compress(TEXT.encode())},
        {"a.txt": TEXT[:blank].encode(), "b.txt": TEXT[blank:].encode()},
    ]
    for files in variants:
        shutil.rmtree(root / "corpus")
        (root / "corpus").mkdir()
        for name, data in files.items():
            (root / "corpus" / name).write_bytes(data)
        assert build(root, force=True).vocabulary.sha256 == expected


def test_a_sample_is_chosen_by_hash_and_bounded(root):
    documents = [f"document {number} " + "text " * 40 for number in range(1000)]
    (root / "corpus" / "a.txt").write_text("\n\n".join(documents))
    whole = build(root).vocabulary.manifest
    part = build(root, sample_bytes=40_000, force=True).vocabulary.manifest
    assert whole["sampled_bytes"] == whole["text_bytes"]
    assert 0.8 * 40_000 < part["sampled_bytes"] <= 40_000
    sha = build(root, sample_bytes=40_000, force=True).vocabulary.sha256
    (root / "corpus" / "a.txt").write_text("\n\n".join(reversed(documents)))
    assert build(root, sample_bytes=40_000, force=True).vocabulary.sha256 == sha


def test_sources_are_sampled_by_weight(root):
    (root / "one.txt").write_text("\n\n".join(f"abab {i}" * 20 for i in range(50)))
    (root / "two.txt").write_text("\n\n".join(f"cdcd {i}" * 20 for i in range(500)))
    sources = [
        CorpusSource(name="one", files=["one.txt"], weight=3),
        CorpusSource(name="two", files=["two.txt"]),
    ]
    corpus = Corpus(source=sources)
    manifest = build(root, corpus=corpus).vocabulary.manifest
    assert manifest["sampled_bytes"] == pytest.approx(manifest["text_bytes"], rel=0.03)
    changed = [sources[0].model_copy(update={"weight": 1.0}), sources[1]]
    with pytest.raises(InputError, match=r"corpus\.source"):
        build(root, corpus=Corpus(source=changed))


def test_an_exponent_weighs_sources_by_a_power_of_their_size(root):
    (root / "one.txt").write_text("\n\n".join(f"abab {i}" * 20 for i in range(20)))
    (root / "two.txt").write_text("\n\n".join(f"cdcd {i}" * 20 for i in range(2000)))
    sources = [CorpusSource(name="one", files=["one.txt"]), CorpusSource(name="two", files=["two.txt"])]
    counted = {}
    for exponent in (1.0, 0.3):
        corpus = Corpus(source=sources, source_exponent=exponent)
        made = build(root, corpus=corpus, sample_bytes=60_000, force=True).vocabulary
        # A word of the small source is cut into fewer pieces the more it weighs.
        counted[exponent] = len(made.tokenizer.encode("abab 7abab 7abab", add_special_tokens=False).ids)
    assert counted[0.3] <= counted[1.0]
    with pytest.raises(InputError, match="source_exponent"):
        build(root, corpus=Corpus(source=sources, source_exponent=0.5), sample_bytes=60_000)


def test_one_writer_at_a_time(root):
    code = (
        "import sys\nfrom pathlib import Path\nfrom electra_cli.durable import locked\n"
        "with locked(Path(sys.argv[1]), 'x'):\n    print('on', flush=True)\n    input()\n"
    )
    command = [sys.executable, "-c", code, str(root / "vocab")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"on\n"
        with pytest.raises(InputError, match="already running"):
            build(root)
        holder.communicate(b"\n")
    with locked(root / "vocab", "x"):
        pass


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_case_A09_an_own_vocabulary_with_any_line_end_is_the_same(root, end, bom):
    pieces = ["[unused0]", *SPECIAL_PIECES, "the", "fox", "##es"]
    (root / "own.txt").write_bytes((bom + "".join(piece + end for piece in pieces)).encode())
    report = build(root, path="own.txt")
    vocabulary = report.vocabulary
    assert (vocabulary.size, vocabulary.padding_id, vocabulary.mask_id) == (9, 1, 5)
    assert vocabulary.tokenizer.encode("The FOXES", add_special_tokens=False).ids == [6, 7, 8]
    assert report.tokens_per_word is None
    assert (root / "vocab" / "vocab.txt").read_text().splitlines() == pieces
    assert not build(root, path="own.txt").is_fresh
    (root / "lf.txt").write_text("".join(piece + "\n" for piece in pieces))
    other = build(root, path="lf.txt", force=True).vocabulary
    assert other.sha256 == vocabulary.sha256


@pytest.mark.parametrize("missing", [["[UNK]"], ["[MASK]"], ["[CLS]", "[SEP]"]])
def test_pitfall_K1_missing_special_pieces_are_named_with_the_file(root, missing):
    pieces = [piece for piece in [*SPECIAL_PIECES, "a"] if piece not in missing]
    (root / "own.txt").write_text("\n".join(pieces))
    with pytest.raises(InputError, match=r"own\.txt lacks " + ", ".join(missing).replace("[", r"\[")):
        build(root, path="own.txt")
    assert not (root / "vocab").exists()


def test_case_B10_a_directory_is_met_with_the_file_that_was_meant(root):
    (root / "other").mkdir()
    (root / "other" / "vocab.txt").write_text("x")
    with pytest.raises(InputError, match=r"is a directory; did you mean other/vocab\.txt\?"):
        build(root, path="other/")
    with pytest.raises(InputError, match="does not exist"):
        build(root, path="nowhere.txt")


def test_own_vocabularies_with_holes_are_named(root):
    for content, message in (
        ("[PAD]\n\n[UNK]", "line 2: an empty"),
        ("[PAD]\na\na", "line 3: .* on line 2"),
        ("{", "no tokenizer"),
        ('{"model": {}}', "no tokenizer"),
    ):
        (root / "own.txt").write_text(content)
        with pytest.raises((InputError, CorruptError), match=message):
            build(root, path="own.txt")


def test_an_own_tokenizer_brings_its_cleaning_along(root):
    learned = build(root, kind="bpe", size=300, lowercase=False, strip_accents=False).vocabulary
    shutil.copy(root / "vocab" / "tokenizer.json", root / "own.json")
    again = build(root, path="own.json", force=True).vocabulary
    text = "Möchte MÜSSTE [MASK] café"
    assert again.tokenizer.encode(text).ids == learned.tokenizer.encode(text).ids
    assert again.manifest["kind"] == "bpe"
    assert not again.lowercase


def test_continuations_by_kind(root):
    vocabulary = build(root).vocabulary
    marks = continuation_ids(vocabulary)
    pieces = [vocabulary.tokenizer.id_to_token(i) for i in range(vocabulary.size)]
    assert [p for p, mark in zip(pieces, marks, strict=True) if mark] == [
        p for p in pieces if p.startswith("##")
    ]
    vocabulary = build(root, kind="bpe", size=300, force=True).vocabulary
    marks = continuation_ids(vocabulary)
    assert not marks[:5].any()
    encoded = vocabulary.tokenizer.encode("unbelievable dog.", add_special_tokens=False)
    starts = [not marks[i] for i in encoded.ids]
    assert [t for t, s in zip(encoded.tokens, starts, strict=True) if s][-1] == "."
    assert sum(t.startswith("Ġ") for t in encoded.tokens) == 2


@pytest.mark.parametrize("norm", ["NFC", "NFKC", "none"])
@pytest.mark.parametrize(("lowercase", "strip"), [(True, True), (True, False), (False, True), (False, False)])
def test_pitfall_K22_the_named_class_gives_the_training_ids(root, tmp_path, norm, lowercase, strip):
    transformers = pytest.importorskip("transformers")
    text = "Möchte MÜSSTE café " + TURKISH + " e\u0301te\u0301 ﬁne 中文 a\u00adb"
    (root / "corpus" / "a.txt").write_text(((text + "\n") * 20) + TEXT)
    vocabulary = build(root, lowercase=lowercase, strip_accents=strip, unicode_norm=norm, size=260).vocabulary
    name = tokenizer_class(vocabulary)
    expected = lowercase == strip and (norm == "none" or (norm == "NFC" and strip))
    assert (name == "BertTokenizer") == expected
    folder = tmp_path / "export"
    folder.mkdir()
    shutil.copy(root / "vocab" / "tokenizer.json", folder)
    shutil.copy(root / "vocab" / "vocab.txt", folder)
    config = {"tokenizer_class": name, "do_lower_case": lowercase, "model_max_length": 128}
    config |= {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    ids = vocabulary.tokenizer.encode(text).ids
    assert loaded(text)["input_ids"] == ids
    assert vocabulary.unknown_id not in ids


def test_the_command_from_end_to_end(electra, root):
    done = electra("build-vocab", "corpus/", "-s", "vocab.size=200", cwd=root)
    lines = done.stdout.splitlines()
    assert lines[0] == "vocab/tokenizer.json  vocab/vocab.txt  vocab/manifest.json"
    assert "tokens per word" in lines[1] and "% of characters covered" in lines[1]
    assert "Next: electra shard-corpus" in done.stdout + done.stderr
    again = electra("build-vocab", "corpus/", "-s", "vocab.size=200", cwd=root)
    assert "vocab/ is up to date" in again.stdout
    other = electra("build-vocab", "corpus/", "-s", "vocab.size=210", cwd=root, check=4)
    assert "200 there, 210 now" in other.stderr and "--force" in other.stderr
    assert "Traceback" not in other.stderr


def test_input_I01_bad_text_ends_the_command_with_its_place(electra, root):
    (root / "corpus" / "a.txt").write_bytes(b"good\nbad \xff\n")
    done = electra("build-vocab", "corpus/", cwd=root, check=5)
    assert "a.txt, line 2" in done.stderr and "byte offset 9" in done.stderr
    assert not (root / "vocab").exists()


@pytest.mark.long
@pytest.mark.parametrize("unit", ["x", "abc123 ", "中文字"])
def test_case_A13_input_I03_a_line_of_100_megabytes(electra, root, unit):
    import resource

    data, rest = unit.encode(), b"".join(b"line %d of another text\n\n" % n for n in range(1000))
    (root / "corpus" / "a.txt").write_bytes(data * (100_000_000 // len(data)) + b"\n\n" + rest)
    vocabulary = electra("build-vocab", "corpus/", "-s", "vocab.size=300", cwd=root, timeout=120)
    electra("shard-corpus", "corpus/", "-s", "vocab.size=300", cwd=root, timeout=120)
    # Largest of all children so far, in KiB.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 << 20
    if unit == "x":
        assert "of more than vocab.max_input_chars = 100" in vocabulary.stderr
