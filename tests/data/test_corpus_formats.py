"""Compression, JSON lines, Parquet, Arrow, and the Hub: the same documents, and every kind of damage."""

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.data.corpus import CorpusFile, Tally, list_files, read_documents
from electra_cli.data.hub import parse_reference
from electra_cli.data.readers import sniff
from electra_cli.errors import CorruptError, ElectraError, InputError
from electra_cli.settings import Corpus

PROPERTY = settings(max_examples=100, derandomize=True, deadline=None)
TEXT = "One document.\nWith two lines.\n\nAnother: Grüße, 中文.\n\n" + "\n\n".join(
    f"number {i} " + "text " * (i % 50) for i in range(400)
)


def compress_zstd(data: bytes, path: Path) -> bytes:
    with pyarrow.output_stream(str(path), compression="zstd") as stream:
        stream.write(data)
    return path.read_bytes()


def packed(data: bytes, suffix: str, folder: Path) -> bytes:
    if suffix == ".zst":
        return compress_zstd(data, folder / "scratch")
    return {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix](data)


def read(path: Path, tally: Tally | None = None, **options: str) -> list[str]:
    file = CorpusFile(path, path.name, path.stat().st_size, "corpus")
    return [d.text for d in read_documents(file, Corpus(**options), Tally() if tally is None else tally)]


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_property_P06_input_I05_compression_bom_and_line_ends_change_nothing(tmp_path, suffix, bom, end):
    plain, other = tmp_path / "a.txt", tmp_path / f"b.txt{suffix}"
    plain.write_bytes(TEXT.encode())
    other.write_bytes(packed((bom + TEXT.replace("\n", end)).encode(), suffix, tmp_path))
    assert read(other) == read(plain)
    assert len(read(plain)) == 402


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_case_B04_all_members_are_read(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(b"".join(packed(f"part {i}\n\n".encode(), suffix, tmp_path) for i in range(3)))
    assert read(path) == ["part 0", "part 1", "part 2"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_case_B04_input_I05_truncated_data_are_refused(tmp_path, suffix, share):
    data = packed("".join(f"{i * i}\n\n" for i in range(20_000)).encode(), suffix, tmp_path)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(
        CorruptError, match=r"a\.txt\.\w+: .* cut short or damaged after [\d,]+ bytes of text"
    ):
        read(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_kind_is_told_by_the_content_not_the_name(tmp_path, suffix):
    path = tmp_path / "a.txt"
    path.write_bytes(packed(b"hello\n", suffix, tmp_path))
    assert read(path) == ["hello"]
    wrong = tmp_path / f"b.txt{suffix}"
    wrong.write_bytes(b"plain\n")
    assert read(wrong) == ["plain"]


def test_input_I05_a_decompression_bomb_is_stopped(tmp_path):
    path = tmp_path / "bomb.txt.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(80):
            file.write(bytes(1 << 20))
    with pytest.raises(CorruptError, match="decompression bomb"):
        read(path)


def test_input_I05_an_empty_archive_is_no_text(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b""))
    assert read(path) == []


@pytest.mark.parametrize(
    ("inner", "what"), [(b"PK\x03\x04...", "zip archive"), (gzip.compress(b"x"), "gzip")], ids=["zip", "gzip"]
)
def test_input_I05_an_archive_inside_is_refused(tmp_path, inner, what):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(inner))
    with pytest.raises(CorruptError, match=f"holds a {what}, not text"):
        read(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_json_lines(tmp_path, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    records = ["one\ntwo", "zwei \u2028 中", "  ", "last"]
    lines = "".join(json.dumps({"text": t, "id": i}) + "\r\n\n" for i, t in enumerate(records))
    path.write_bytes(packed(lines.encode(), suffix, tmp_path))
    tally = Tally()
    assert read(path, tally) == ["one\ntwo", "zwei \u2028 中", "last"]
    assert tally.dropped == {"empty": 1}


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ('{"txt": "x"}', InputError, "no field 'text'; the record has txt"),
        ('{"text": null}', InputError, "'text' holds null"),
        ('{"text": 1}', InputError, "'text' holds a number"),
        ('{"text": ["x"]}', InputError, "'text' holds a list"),
        ('["x"]', InputError, "a JSON value that is a list"),
        ('{"text": "x"', CorruptError, "not a line of JSON"),
        ("[" * 100_000, CorruptError, "not a line of JSON"),
        ('{"text": "\\ud800"}', CorruptError, "unpaired surrogate U\\+D800"),
    ],
)
def test_input_I05_a_bad_record_is_named_by_its_line(tmp_path, line, error, message):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n\n' + line + "\n")
    with pytest.raises(error, match=rf"^a\.jsonl, line 3: .*{message}") as caught:
        read(path)
    assert caught.value.line == 3


def test_half_a_surrogate_pair_is_replaced_on_request(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\\ud800b \\ud83d\\ude00"}\n')
    tally = Tally()
    assert read(path, tally, encoding_errors="replace") == ["a\ufffdb 😀"]
    assert tally.repaired == {"unpaired surrogate": 1}


def table(values: list[str | None], kind: str = "string") -> pyarrow.Table:
    column = pyarrow.array(values, "string")
    return pyarrow.table(
        {
            "id": list(range(len(values))),
            "text": column.dictionary_encode() if kind == "dictionary" else column.cast(kind),
        }
    )


def write_table(path: Path, content: pyarrow.Table, form: str) -> None:
    if form == "parquet":
        pyarrow.parquet.write_table(content, path, row_group_size=100)
        return
    make = pyarrow.ipc.new_file if form == "arrow" else pyarrow.ipc.new_stream
    with make(path, content.schema) as writer:
        writer.write_table(content, max_chunksize=100)


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        (form, kind)
        for form in ("parquet", "arrow", "stream")
        for kind in ("string", "large_string", "dictionary", "string_view")
        # Parquet has no string_view.
        if (form, kind) != ("parquet", "string_view")
    ],
)
def test_columns_are_read_and_nulls_counted(tmp_path, form, kind):
    values = [f"text {i}\n\nsame document, 中" for i in range(1000)]
    content = table([*values[:300], None, "", *values[300:], None], kind)
    path = tmp_path / ("a.parquet" if form == "parquet" else "a.arrow")
    write_table(path, content, form)
    tally = Tally()
    assert read(path, tally) == values
    assert tally.dropped == {"null": 2, "empty": 1}


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_columns_in_a_compressed_file(tmp_path, form, suffix):
    write_table(tmp_path / "plain", table(["a", "b"]), form)
    path = tmp_path / f"a.{'parquet' if form == 'parquet' else 'arrow'}{suffix}"
    path.write_bytes(packed((tmp_path / "plain").read_bytes(), suffix, tmp_path))
    assert [file.name for file in list_files(Corpus(files=["."]), tmp_path).files] == [path.name, "plain"][:1]
    assert read(path) == ["a", "b"]


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_input_I05_truncated_columns_are_refused(tmp_path, form, share):
    path = tmp_path / ("a.parquet" if form == "parquet" else "a.arrow")
    write_table(path, table([f"text {i}" for i in range(2000)]), form)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(CorruptError, match=r"a\.\w+.* cut short or damaged after row"):
        read(path)


@PROPERTY
@given(
    place=st.integers(0, 10_000), bit=st.integers(0, 7), form=st.sampled_from(["parquet", "arrow", "stream"])
)
def test_a_flipped_bit_is_an_error_of_ours_or_goes_through(tmp_path_factory, place, bit, form):
    folder = tmp_path_factory.mktemp("flip")
    path = folder / ("a.parquet" if form == "parquet" else "a.arrow")
    write_table(path, table([f"text {i}" for i in range(20)]), form)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << bit
    path.write_bytes(data)
    try:
        read(path)
    except ElectraError:
        return


def test_a_missing_or_wrong_column_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(path, table(["a"]), "parquet")
    with pytest.raises(InputError, match="no single column 'body'; it has id, text"):
        read(path, text_column="body")
    with pytest.raises(InputError, match="'id' holds int64, not text"):
        read(path, text_column="id")


def test_a_name_that_promises_columns_is_held_to_it(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("only text\n")
    with pytest.raises(CorruptError, match=r"named \.parquet but does not begin like"):
        read(path)


def test_invalid_utf8_in_a_column_has_its_row(tmp_path):
    path = tmp_path / "a.arrow"
    column = pyarrow.StringArray.from_buffers(
        2, pyarrow.array([0, 1, 2], "int32").buffers()[1], pyarrow.py_buffer(b"a\xff")
    )
    write_table(path, pyarrow.table({"text": column}), "arrow")
    with pytest.raises(CorruptError, match=r"a\.arrow, row 2, line 1: byte 0xff"):
        read(path)
    tally = Tally()
    assert read(path, tally, encoding_errors="replace") == ["a", "\ufffd"]
    assert tally.repaired == {"invalid UTF-8": 1}


def test_magic_bytes():
    assert sniff(b"BZ house") == "text"
    assert sniff(b"BZhello") == "text"
    assert sniff(b"\x50\x2a\x4d\x18....") == "zstd"
    assert sniff(b"") == "text"


def test_hub_references():
    assert parse_reference("hf://a/b") == ("a/b", None, "train")
    assert parse_reference("hf://a/b/c") == ("a/b", "c", "train")
    assert parse_reference("hf://a/b/c/test") == ("a/b", "c", "test")


def test_a_hub_data_set_offline_is_a_clear_error(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    file = list_files(Corpus(files=["hf://nobody/nothing"]), tmp_path).files[0]
    with pytest.raises(InputError, match=r"not on this machine, and the network is off \(HF_HUB_OFFLINE=1\)"):
        list(read_documents(file, Corpus(), Tally()))


def test_a_hub_data_set_is_streamed(monkeypatch):
    datasets = pytest.importorskip("datasets")
    calls = []

    def load_dataset(*arguments: object, **options: object) -> object:
        calls.append((arguments, options))
        return iter([{"body": "one"}, {"body": None}, {"body": " "}, {"body": "two\n\nlines"}])

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    file = CorpusFile(Path("hf://a/b/c"), "hf://a/b/c", 0, "corpus")
    tally = Tally()
    documents = list(read_documents(file, Corpus(text_column="body"), tally))
    assert [d.text for d in documents] == ["one", "two\n\nlines"]
    assert tally.dropped == {"null": 1, "empty": 1}
    assert calls == [(("a/b", "c"), {"split": "train", "streaming": True})]
    with pytest.raises(InputError, match="no column 'text'; it has body"):
        list(read_documents(file, Corpus(), Tally()))
