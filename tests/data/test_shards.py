"""shard-corpus: nothing lost, nothing twice, the same bytes however the work is done, damage noticed."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.data import checked_files
from electra_cli.data.checked_manifest import write_manifest
from electra_cli.data.corpus import cut_into_parts, list_files, text_hash
from electra_cli.data.shard_map import part_bytes
from electra_cli.data.shards import ShardSet, build_shards, open_shards
from electra_cli.data.tokenizer_parts import SPECIAL_PIECES, wordpiece
from electra_cli.data.vocabulary import Vocabulary, load_vocabulary
from electra_cli.data.vocabulary_manifest import FORMAT
from electra_cli.durable import locked, sha256_file
from electra_cli.errors import CorruptError, ElectraError, InputError, ProjectError
from electra_cli.progress import Silent
from electra_cli.project import Project, project_from_settings
from electra_cli.settings import ProjectSettings, Vocab

WORDS = [f"{a}{b}{c}" for a in "bcdfgklmnprst" for b in "aeiou" for c in "lmnrst"]


def write_vocabulary(folder: Path, *, extra: tuple[str, ...] = ()) -> Vocabulary:
    """A vocabulary of letters and some whole words, in the layout of build-vocab."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,"
    pieces = [*SPECIAL_PIECES, *letters, *(f"##{c}" for c in letters), *WORDS[:200], *extra]
    folder.mkdir(parents=True, exist_ok=True)
    wordpiece(pieces, Vocab()).save(str(folder / "tokenizer.json"))
    sha256 = {"tokenizer.json": sha256_file(folder / "tokenizer.json")}
    write_manifest(folder, {"format": FORMAT, "kind": "wordpiece", "size": len(pieces), "sha256": sha256})
    return load_vocabulary(folder)


def document(number: int, length: int) -> str:
    """Deterministic running text; no two numbers give the same."""
    picks = np.random.Generator(np.random.PCG64(number)).integers(0, len(WORDS), length)
    return f"{number} " + " ".join(WORDS[n] for n in picks)


def write_corpus(root: Path, num_documents: int = 60, length: int = 80) -> None:
    (root / "corpus").mkdir(exist_ok=True)
    for name, numbers in (
        ("a.txt", range(0, num_documents, 2)),
        ("b.txt", range(1, num_documents, 2)),
    ):
        texts = [document(number, length + number % 7) for number in numbers]
        (root / "corpus" / name).write_text("\n\n".join(texts) + "\n")


def project_in(root: Path, **tables: dict[str, Any]) -> Project:
    tables = {"rows": {"sequence_length": 32}, **tables}
    return project_from_settings(ProjectSettings.model_validate(tables), root)


def build(root: Path, *, force: bool = False, **tables: dict[str, Any]) -> ShardSet:
    vocabulary = load_vocabulary(root / "vocab")
    report = build_shards(project_in(root, **tables), vocabulary, Silent(), force=force)
    return open_shards(report.folder, vocabulary_sha256=vocabulary.sha256)


def reopen(root: Path, *, verify: bool = False) -> ShardSet:
    sha256 = load_vocabulary(root / "vocab").sha256
    return open_shards(root / "shards", vocabulary_sha256=sha256, verify=verify)


def tree(folder: Path) -> dict[str, str]:
    """Every file but the memory of verified hashes, which holds inodes."""
    return {
        path.relative_to(folder).as_posix(): sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".verified.json"
    }


def parts_of(shards: ShardSet) -> Counter[tuple[int, ...]]:
    """The kept parts with their ids, [CLS] and [SEP] included."""
    found: Counter[tuple[int, ...]] = Counter()
    for shard in (*shards.train, *shards.heldout):
        ids = shard.stream.tolist()
        starts = [n for n, token in enumerate(ids) if token == 2]
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            found[tuple(ids[start:end])] += 1
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_vocabulary(tmp_path / "vocab")
    write_corpus(tmp_path)
    return tmp_path


def test_property_P05_pitfall_K8_tokens_equal_those_of_the_library(root: Path) -> None:
    (root / "corpus" / "c.txt").write_text(
        document(1000, 20_000) + "\n\n" + "\n\n".join(document(n, 3) for n in range(2000, 2100))
    )
    shards = build(root)
    tokenizer = load_vocabulary(root / "vocab").tokenizer
    texts = [
        text
        for name in ("a.txt", "b.txt", "c.txt")
        for text in (root / "corpus" / name).read_text().split("\n\n")
    ]
    expected = sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
    assert shards.num_content_tokens == expected
    assert shards.manifest["num_documents"] == len(texts)
    streams = [shard.stream for shard in (*shards.train, *shards.heldout)]
    assert sum(len(stream) for stream in streams) == shards.manifest["num_stream_tokens"]
    assert sum(int((stream > 4).sum()) for stream in streams) == expected
    assert shards.manifest["num_stream_tokens"] - 2 * shards.manifest["num_parts"] == expected
    assert shards.manifest["dropped"] == {}


def test_streams_are_memory_mapped_and_readable_by_others(root: Path) -> None:
    shards = build(root, corpus={"shard_bytes": 4096})
    assert len(shards.train) > 2
    for shard in shards.train:
        assert shard.stream.dtype == np.uint16 and not shard.stream.flags.owndata
        assert not shard.stream.flags.writeable
        with pa.memory_map(str(shard.path)) as source:
            table = pa.ipc.open_file(source).read_all()
        assert table.schema.field("input_ids").type == pa.large_list(pa.uint16())
        assert table.num_rows == shard.num_parts
        first = table["input_ids"][0].as_py()
        assert first == shard.stream[: len(first)].tolist() and first[0] == 2 and first[-1] == 3


def test_the_datasets_library_opens_the_shards(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    datasets = pytest.importorskip("datasets")
    shards = build(root)
    table = datasets.load_dataset(
        "arrow",
        data_files=[str(shard.path) for shard in shards.train],
        split="train",
        cache_dir=str(tmp_path_factory.mktemp("cache")),
    )
    assert sum(map(len, table["input_ids"])) == sum(len(shard.stream) for shard in shards.train)


def test_P08_sizes_are_bounded_and_sums_are_right(root: Path) -> None:
    shards = build(root, corpus={"shard_bytes": 4096})
    manifest = shards.manifest
    longest = max(len(part) for part in parts_of(shards))
    for facts in manifest["shards"]:
        path = root / "shards" / facts["file"]
        assert path.stat().st_size == facts["bytes"] and sha256_file(path) == facts["sha256"]
        assert facts["num_stream_tokens"] * 2 <= 4096 + 2 * longest
    for name in ("num_parts", "num_stream_tokens"):
        assert sum(facts[name] for facts in manifest["shards"]) == manifest[name]
    files = [facts["file"] for facts in manifest["shards"]]
    assert sorted(files) == sorted(p.name for p in (root / "shards").glob("*.arrow"))


def test_duplicates_are_dropped_wherever_they_stand(root: Path) -> None:
    before = parts_of(build(root))
    texts = (root / "corpus" / "a.txt").read_text().split("\n\n")
    (root / "corpus" / "z.txt").write_text(
        "\n\n".join([texts[3], "new words here", texts[3].strip(), texts[5]])
    )
    after = build(root, force=True)
    assert after.manifest["dropped"] == {"duplicates": 3}
    lost = after.manifest["dropped_tokens"]["duplicates"]
    tokenizer = load_vocabulary(root / "vocab").tokenizer
    expected = [len(tokenizer.encode(texts[n], add_special_tokens=False).ids) for n in (3, 3, 5)]
    assert lost == sum(expected)
    new = parts_of(after) - before
    assert len(new) == 1 and sum(new.values()) == 1 and set(parts_of(after).values()) == {1}


def test_duplicates_are_kept_on_request_and_never_straddle_the_cut(root: Path) -> None:
    shutil.copy(root / "corpus" / "a.txt", root / "corpus" / "copy.txt")
    shards = build(root, corpus={"drop_duplicates": False, "heldout_fraction": 0.05})
    assert max(parts_of(shards).values()) == 2 and shards.manifest["dropped"] == {}
    train = {tuple(s.stream.tolist()) for s in shards.train}
    assert train
    held = ShardSet(shards.folder, {}, "", (), shards.heldout, 0)
    rest = ShardSet(shards.folder, {}, "", shards.train, (), 0)
    assert not set(parts_of(held)) & set(parts_of(rest)) and parts_of(held)


@pytest.mark.parametrize(("fraction", "expected"), [(0.0, 1), (0.005, 1), (0.05, 3)])
def test_heldout_parts_are_the_lowest_hashes(root: Path, fraction: float, expected: int) -> None:
    shards = build(root, corpus={"heldout_fraction": fraction})
    assert sum(shard.num_parts for shard in shards.heldout) == expected
    texts = [t for name in "ab" for t in (root / "corpus" / f"{name}.txt").read_text().strip().split("\n\n")]
    lowest = sorted(texts, key=text_hash)[:expected]
    encode = load_vocabulary(root / "vocab").tokenizer.encode
    assert set(parts_of(ShardSet(shards.folder, {}, "", (), shards.heldout, 0))) == {
        (2, *encode(text, add_special_tokens=False).ids, 3) for text in lowest
    }


def test_text_without_a_token_is_counted(root: Path) -> None:
    (root / "corpus" / "z.txt").write_text("\x01\x02\n\n\u200b\n\nreal text")
    shards = build(root)
    assert shards.manifest["dropped"]["no token"] == 2


def test_K5_a_corpus_of_one_document_of_200_lines_makes_a_shard_and_a_heldout_part(root: Path) -> None:
    shutil.rmtree(root / "corpus")
    (root / "corpus").mkdir()
    (root / "corpus" / "x.txt").write_text("\n".join(document(n, 9) for n in range(200)))
    shards = build(root, rows={"sequence_length": 128})
    assert len(shards.train) == 1 and len(shards.heldout) == 1
    share = sum(s.num_parts for s in shards.heldout) / shards.manifest["num_parts"]
    assert 0 < share <= 0.05
    tokenizer = load_vocabulary(root / "vocab").tokenizer
    text = (root / "corpus" / "x.txt").read_text()
    assert shards.num_content_tokens == len(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no readable text"),
        (" \n\n\t\n", "holds no text|0 documents"),
        ("three small words", "one is held out|needs 29"),
        ("some words\n\nmore words\n\nand more", "comes to .* tokens to train on.* = 32 needs 29"),
    ],
)
def test_input_I03_pitfall_K5_too_little_text_is_refused_and_leaves_nothing(
    root: Path, text: str, message: str
) -> None:
    shutil.rmtree(root / "corpus")
    (root / "corpus").mkdir()
    (root / "corpus" / "x.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        build(root)
    assert not (root / "shards").exists()


def test_an_engine_that_is_not_there_is_refused(root: Path) -> None:
    with pytest.raises(ProjectError, match="not available"):
        build(root, corpus={"engine": "ray"})


def test_the_same_again_is_up_to_date_and_writes_nothing(root: Path) -> None:
    build(root)
    before = _stamps(root / "shards")
    vocabulary = load_vocabulary(root / "vocab")
    report = build_shards(project_in(root), vocabulary, Silent())
    assert not report.is_fresh
    assert _stamps(root / "shards") == before


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in folder.iterdir() if path.name != ".lock"]
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


def test_other_settings_or_text_are_refused_with_both_values_until_forced(root: Path) -> None:
    build(root)
    before = tree(root / "shards")
    with pytest.raises(InputError, match=r"corpus\.document: \"blank-line\" there, \"line\" now") as caught:
        build(root, corpus={"document": "line"})
    assert "--force" in caught.value.hint
    (root / "corpus" / "a.txt").write_text(document(5000, 900))
    (root / "corpus" / "new.txt").write_text(document(5001, 900))
    with pytest.raises(InputError, match=r"new\.txt: not there, .* now\n  corpus/a\.txt: .* there, .* now"):
        build(root)
    assert tree(root / "shards") == before
    build(root, force=True)
    assert tree(root / "shards") != before


def test_a_rebuild_leaves_no_shard_of_the_old_one(root: Path) -> None:
    many = build(root, corpus={"shard_bytes": 4096})
    few = build(root, force=True)
    assert len(many.train) > len(few.train)
    names = {facts["file"] for facts in few.manifest["shards"]}
    assert {p.name for p in (root / "shards").glob("*.arrow")} == names


def test_B09_flag_what_ends_a_document_is_honoured(root: Path) -> None:
    shutil.rmtree(root / "corpus")
    (root / "corpus").mkdir()
    text = "\n".join(f"{document(n, 30)}\n{document(n + 500, 30)}\n" for n in range(10))
    (root / "corpus" / "x.txt").write_text(text)
    counts = {
        kind: build(root, force=True, corpus={"document": kind}).manifest["num_documents"]
        for kind in ("blank-line", "line", "file")
    }
    assert counts == {"blank-line": 10, "line": 20, "file": 1}


def test_pitfall_K3_R14_shards_of_another_vocabulary_are_refused_with_both_hashes(root: Path) -> None:
    build(root)
    old = load_vocabulary(root / "vocab").sha256
    # The same size, two pieces swapped.
    swapped = json.loads((root / "vocab" / "tokenizer.json").read_text())
    ids = swapped["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    (root / "vocab" / "tokenizer.json").write_text(json.dumps(swapped))
    sha256 = sha256_file(root / "vocab" / "tokenizer.json")
    write_manifest(root / "vocab", {"format": FORMAT, "sha256": {"tokenizer.json": sha256}})
    with pytest.raises(InputError, match=f"{old}.*{sha256}") as caught:
        reopen(root)
    assert "shard-corpus --force" in caught.value.hint
    with pytest.raises(InputError, match=f"vocabulary: {old} there, {sha256} now"):
        build(root)


def test_missing_shards_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no shards") as caught:
        open_shards(tmp_path / "shards", vocabulary_sha256="")
    assert "electra shard-corpus" in caught.value.hint


def flips(size: int, number: int, seed: int) -> Iterator[tuple[int, int]]:
    chosen = np.random.Generator(np.random.PCG64(seed))
    for _ in range(number):
        yield int(chosen.integers(size)), 1 << int(chosen.integers(8))


@pytest.mark.parametrize("kind", ["shard", "heldout", "manifest"])
def test_R08_pitfall_K7_every_flipped_bit_and_truncation_is_noticed(root: Path, kind: str) -> None:
    build(root, corpus={"shard_bytes": 4096})
    path = next(p for p in sorted((root / "shards").iterdir()) if p.name.startswith(kind))
    whole = path.read_bytes()
    for place, bit in flips(len(whole), 40, seed=1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        with pytest.raises(CorruptError, match=path.name) as caught:
            reopen(root)
        assert "shard-corpus" in caught.value.hint
    for length in {0, 1, len(whole) // 2, len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptError, match=path.name):
            reopen(root)
    path.write_bytes(whole)
    reopen(root)


def test_R08_the_message_names_expected_and_actual(root: Path) -> None:
    shards = build(root)
    path = shards.train[0].path
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    expected, actual = shards.manifest["shards"][0]["sha256"], hashlib.sha256(data).hexdigest()
    with pytest.raises(CorruptError, match=f"expected sha256 {expected}, found {actual}"):
        reopen(root)
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptError, match=f"expected {len(data):,} bytes, found {len(data) - 1:,} bytes"):
        reopen(root)
    path.unlink()
    with pytest.raises(CorruptError, match="found no such file"):
        reopen(root)
    # The next run of the command repairs what is missing.
    rebuilt = build(root)
    assert rebuilt.manifest == shards.manifest


def test_an_unchanged_shard_is_hashed_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(root)
    (root / "shards" / ".verified.json").unlink(missing_ok=True)
    hashed: list[Path] = []

    def counted(path: Path, **_: Callable[[int], None]) -> str:
        hashed.append(path)
        return sha256_file(path)

    monkeypatch.setattr(checked_files, "sha256_file", counted)
    monkeypatch.setattr(checked_files.time, "time_ns", lambda: 2**62)
    reopen(root)
    assert len(hashed) == 2
    reopen(root)
    assert len(hashed) == 2
    reopen(root, verify=True)
    assert len(hashed) == 4
    path = root / "shards" / "shard-00000.arrow"
    path.write_bytes(path.read_bytes())
    reopen(root)
    assert hashed[4:] == [path]


def test_a_just_written_shard_is_not_yet_trusted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(root)
    newest = max(p.stat().st_ctime_ns for p in (root / "shards").glob("*.arrow"))
    monkeypatch.setattr(checked_files.time, "time_ns", lambda: newest + 1_000_000)
    (root / "shards" / ".verified.json").unlink(missing_ok=True)
    reopen(root)
    assert not (root / "shards" / ".verified.json").exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"shard-00000.arrow": 3}', "\x00"])
def test_a_damaged_memory_of_hashes_is_ignored(root: Path, content: str) -> None:
    build(root)
    (root / "shards" / ".verified.json").write_text(content)
    reopen(root)


def test_R14_shards_of_two_builds_do_not_mix(root: Path) -> None:
    build(root)
    shutil.copytree(root / "shards", root / "other")
    (root / "corpus" / "a.txt").write_text((root / "corpus" / "a.txt").read_text().replace("1", "2"))
    build(root, force=True)
    shutil.copy(root / "other" / "shard-00000.arrow", root / "shards" / "shard-00000.arrow")
    with pytest.raises(CorruptError, match="shard-00000"):
        reopen(root)


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json", "shard-00000.arrow"])
def test_security_S11_a_foreign_folder_is_refused_untouched(root: Path, name: str) -> None:
    (root / "shards").mkdir()
    (root / "shards" / name).write_text("{}")
    for force in (False, True):
        with pytest.raises(InputError):
            build(root, force=force)
    assert [(p.name, p.read_text()) for p in (root / "shards").iterdir() if p.name != ".lock"] == [
        (name, "{}")
    ]


def test_security_S11_a_foreign_file_among_ours_is_refused_untouched(root: Path) -> None:
    build(root)
    (root / "shards" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        build(root, force=True)
    assert (root / "shards" / "notes.txt").read_text() == "mine"
    assert reopen(root).train


@pytest.mark.parametrize(
    "name", ["../corpus/a.txt", "/etc/passwd", "shard-00000.arrow/../x", "shard-0.arrow\n"]
)
def test_security_S02_a_manifest_leads_nowhere_else(root: Path, name: str) -> None:
    content = dict(build(root).manifest)
    content.pop("checksum")
    content["shards"] = [content["shards"][0] | {"file": name}]
    write_manifest(root / "shards", content)
    with pytest.raises(CorruptError, match="which is no shard"):
        reopen(root)


def test_a_damaged_manifest_is_rebuilt_only_when_forced(root: Path) -> None:
    whole = build(root).manifest
    path = root / "shards" / "manifest.json"
    path.write_text(path.read_text().replace('"num_documents": 60', '"num_documents": 61'))
    with pytest.raises(CorruptError, match="manifest"):
        build(root)
    assert build(root, force=True).manifest == whole


def test_R09_a_second_build_is_refused_and_names_the_first(root: Path) -> None:
    build(root)
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]); import test_shards as t\n"
        "from electra_cli.errors import InputError\n"
        "try: t.build(Path(sys.argv[1]))\n"
        "except InputError as error: print(error.message)\n"
    )
    with locked(root / "shards", "electra shard-corpus"):
        done = subprocess.run(
            [sys.executable, "-c", code, root, Path(__file__).parent],
            capture_output=True,
            text=True,
            check=True,
        )
    assert "is in use: electra shard-corpus is already running (pid" in done.stdout


def test_several_sources_keep_to_their_own_shards(root: Path) -> None:
    (root / "other").mkdir()
    (root / "other" / "x.txt").write_text("\n\n".join(document(n, 50) for n in range(7000, 7040)))
    sources = [{"name": "big", "files": ["corpus/"]}, {"name": "small", "files": ["other/"], "weight": 2.0}]
    shards = build(root, corpus={"source": sources, "shard_bytes": 4096})
    assert {shard.source for shard in shards.train} == {"big", "small"}
    order = [shard.source for shard in shards.train]
    assert order == sorted(order)
    texts = (root / "other" / "x.txt").read_text().split("\n\n")
    encode = load_vocabulary(root / "vocab").tokenizer.encode
    small = {(2, *encode(text, add_special_tokens=False).ids, 3) for text in texts}
    for shard in (*shards.train, *shards.heldout):
        mine = set(parts_of(ShardSet(shards.folder, {}, "", (shard,), (), 0)))
        assert mine <= small if shard.source == "small" else not mine & small


def test_a_source_that_fills_no_row_is_named(root: Path) -> None:
    (root / "tiny.txt").write_text("two words")
    sources = [{"name": "big", "files": ["corpus/"]}, {"name": "tiny", "files": ["tiny.txt"]}]
    with pytest.raises(InputError, match="the source tiny comes to"):
        build(root, corpus={"source": sources})


def test_the_data_card_holds_no_markup_of_the_data(root: Path) -> None:
    (root / "corpus" / "a|b<script>\n[x](y).txt").write_text(document(1, 50))
    build(root)
    card = (root / "shards" / "DATA_CARD.md").read_text()
    assert "<script>" not in card and "[x](y)" not in card
    row = next(line for line in card.splitlines() if "script" in line)
    assert row.count("|") == 4


def test_file_names_of_any_bytes_are_recorded(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root / "corpus") + b"/\xff\xfe.txt")).write_text(document(1, 50))
    shards = build(root)
    assert any("\\udcff" in entry["path"] or "\\xff" in entry["path"] for entry in shards.manifest["inputs"])


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=3, max_size=15),
    st.integers(4096, 9000),
    st.floats(0, 0.05),
    st.booleans(),
)
def test_P05_P08_any_corpus_keeps_each_different_part_once(
    tmp_path_factory: pytest.TempPathFactory,
    numbers: list[int],
    shard_bytes: int,
    heldout: float,
    drops: bool,
) -> None:
    root = tmp_path_factory.mktemp("corpus")
    write_vocabulary(root / "vocab")
    (root / "corpus").mkdir()
    texts = [document(number, 40) for number in numbers]
    for name, some in (("a", texts[::2]), ("b", texts[1::2])):
        (root / "corpus" / f"{name}.txt").write_text("\n\n".join(some))
    chosen = {"drop_duplicates": drops, "heldout_fraction": heldout, "shard_bytes": shard_bytes}
    try:
        shards = build(root, corpus=chosen)
    except InputError as error:
        assert len(set(numbers)) <= 2, error
        return
    encode = load_vocabulary(root / "vocab").tokenizer.encode
    # In so small a corpus a document comes in several parts.
    size = part_bytes(list_files(project_in(root).settings.corpus, root))
    parts = [part for text in texts for part in cut_into_parts(text, size)]
    expected = Counter((2, *encode(part, add_special_tokens=False).ids, 3) for part in parts)
    kept = parts_of(shards)
    assert kept == (Counter(set(expected)) if drops else expected)
    assert shards.manifest["dropped"].get("duplicates", 0) == sum(expected.values()) - sum(kept.values())
    assert shards.train and shards.heldout
    shutil.rmtree(root)


def test_every_refusal_is_an_error_for_the_person(root: Path) -> None:
    (root / "shards").write_text("a file")
    with pytest.raises(ElectraError, match="is no folder"):
        build(root)
