"""Plain text: lines, documents, encodings, huge documents, parts."""

import gzip
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.data.corpus import CorpusFile, Tally, cut_into_parts, read_documents, text_hash
from electra_cli.data.documents import PART_BYTES
from electra_cli.data.readers import decode_blocks
from electra_cli.data.text_documents import STRETCH_CHARACTERS, _lines, plain_documents
from electra_cli.errors import CorruptError
from electra_cli.settings import Corpus

PROPERTY = settings(max_examples=100, derandomize=True, deadline=None)
TEXT = st.text(st.sampled_from("ab \t\n\r\x0b\x0c\u2028\x85é中\x00"), max_size=60)


def read(path: Path, tally: Tally | None = None, **options: str) -> list[str]:
    file = CorpusFile(path, path.name, path.stat().st_size, "corpus")
    documents = list(read_documents(file, Corpus(**options), Tally() if tally is None else tally))
    assert [document.offset for document in documents] == list(range(len(documents)))
    return [document.text for document in documents]


def write(folder: Path, data: bytes | str, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("blank-line", ["one\ntwo", "three", " four "]),
        ("line", ["one", "two", "three", " four "]),
        ("file", ["one\ntwo\n\n \t\nthree\n\x0c\n four "]),
    ],
)
def test_what_ends_a_document(tmp_path, document, expected):
    path = write(tmp_path, "one\ntwo\n\n \t\nthree\n\x0c\n four \n")
    assert read(path, document=document) == expected


def test_case_B01_only_line_feeds_split_lines(tmp_path):
    path = write(tmp_path, "a\rb\r\nc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i\nj")
    assert read(path, document="line") == ["a\rb", "c\x0bd\x0ce\x1cf\x85g\u2028h\u2029i", "j"]
    assert read(path) == ["a\rb\nc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i\nj"]


def test_case_B01_arrow_agrees(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    text = "a\rb\nc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i\nj"
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", pyarrow.schema([("text", "string")])) as writer:
        writer.write_table(pyarrow.table({"text": text.split("\n")}))
    assert read(tmp_path / "a.arrow") == read(write(tmp_path, text), document="line")


@pytest.mark.parametrize("document", ["blank-line", "line", "file"])
@PROPERTY
@given(text=TEXT, cut=st.integers(0, 60))
def test_property_P06_documents_do_not_depend_on_blocks_or_line_ends(document, text, cut):
    text = text.replace("\r\n", "\n")
    whole = list(plain_documents([text], document, Tally()))
    assert list(plain_documents([text[:cut], text[cut:]], document, Tally())) == whole
    assert list(plain_documents(list(text), document, Tally())) == whole
    if "\r" not in text:
        assert list(plain_documents(list(text.replace("\n", "\r\n")), document, Tally())) == whole
    if not text.endswith(("\n", "\r")):
        assert list(plain_documents([text + "\n"], document, Tally())) == whole


@PROPERTY
@given(lines=st.lists(st.text(st.sampled_from("ab \x0c"), max_size=5), max_size=12), cut=st.integers(0, 12))
def test_property_P06_a_file_may_be_split_at_any_line(lines, cut):
    def documents(*files: list[str]) -> list[str]:
        return [
            d.text for f in files for d in plain_documents(["".join(x + "\n" for x in f)], "line", Tally())
        ]

    assert documents(lines) == documents(lines[:cut], lines[cut:])


@PROPERTY
@given(text=TEXT, limit=st.integers(1, 8))
def test_long_lines_come_in_pieces_that_join_again(text, limit):
    joined, current = [], ""
    for piece, is_whole in _lines(list(text), limit):
        current += piece
        if is_whole:
            joined.append(current)
            current = ""
    assert (joined, current) == ([line for line, _ in _lines([text])], "")


@PROPERTY
@given(data=st.binary(max_size=40), sizes=st.lists(st.integers(1, 5), max_size=20))
def test_replacement_is_the_same_wherever_blocks_are_cut(data, sizes):
    blocks, start = [], 0
    for size in [*sizes, len(data)]:
        blocks.append(data[start : start + size])
        start += size
    tally = Tally()
    text = "".join(decode_blocks(blocks, "a", "replace", tally))
    expected = data.decode("utf-8", "replace")
    assert text == expected.removeprefix("\ufeff")
    assert tally.repaired.get("invalid UTF-8", 0) == expected.count("\ufffd") - data.count(b"\xef\xbf\xbd")


@pytest.mark.parametrize(
    ("data", "line", "offset"),
    [
        (b"fine\nbad \xff here\n", 2, 9),
        ("Grüße\n".encode("latin-1"), 1, 2),
        ("text\n".encode("utf-16"), 1, 0),
        (b"\xef\xbb\xbfa\n\n\xc3", 3, 6),
        (b"x" * (1 << 20) + b"\n\xed\xa0\x80", 2, (1 << 20) + 1),
    ],
)
def test_input_I01_pitfall_K9_invalid_utf8_stops_with_its_place(tmp_path, data, line, offset):
    with pytest.raises(CorruptError, match=rf"a\.txt, line {line}: .* byte offset {offset:,} ") as caught:
        read(write(tmp_path, data))
    assert caught.value.line == line
    assert caught.value.exit_code == 5


def test_input_I01_invalid_utf8_is_replaced_and_counted_on_request(tmp_path):
    tally = Tally()
    path = write(tmp_path, b"a\xffb\xe4\xb8\n\n\xef\xbf\xbd ok\n")
    assert read(path, tally, encoding_errors="replace") == ["a\ufffdb\ufffd", "\ufffd ok"]
    assert tally.repaired == {"invalid UTF-8": 2}


def test_input_I04_one_byte_order_mark_is_removed(tmp_path):
    tally = Tally()
    assert read(write(tmp_path, "\ufeff\ufeffa\ufeff\n"), tally) == ["\ufeffa\ufeff"]
    assert tally.repaired == {"byte order mark": 1}


@pytest.mark.parametrize("data", [b"", b" ", b"\n" * 1_000_000, b" \r\n\t\n" * 1000, b" " * 3_000_000])
@pytest.mark.parametrize("document", ["blank-line", "line", "file"])
def test_input_I03_white_space_is_no_document(tmp_path, data, document):
    assert read(write(tmp_path, data), document=document) == []


def test_input_I03_one_byte_without_a_line_end(tmp_path):
    assert read(write(tmp_path, b"x")) == ["x"]


def test_input_I02_control_characters_stay_and_are_counted(tmp_path):
    tally = Tally()
    assert read(write(tmp_path, "a\0b\n\nc\x0cd\n\nplain\ttext\n"), tally) == [
        "a\0b",
        "c\x0cd",
        "plain\ttext",
    ]
    assert tally.repaired == {"control characters": 2}


def test_empty_lines_are_counted_where_a_line_is_a_document(tmp_path):
    tally = Tally()
    read(write(tmp_path, "a\n\n \nb\n"), tally, document="line")
    assert tally.dropped == {"empty": 2}


@PROPERTY
@given(text=st.text(st.sampled_from("ab \né中😀"), max_size=80), limit=st.integers(4, 20))
def test_parts_join_to_the_text_again(text, limit):
    parts = list(cut_into_parts(text, limit))
    assert "".join(parts) == text
    assert all(0 < len(part.encode()) <= limit for part in parts)
    for part, following in pairwise(parts):
        window = (part + following).encode()[:limit]
        if b"\n" in window:
            assert part.endswith("\n")
        elif b" " in window:
            assert part.endswith(" ")


@PROPERTY
@given(
    text=st.text(st.sampled_from("ab \né😀"), max_size=80), limit=st.integers(4, 20), pick=st.integers(0, 20)
)
def test_a_stretch_that_ends_at_a_cut_has_the_same_parts(text, limit, pick):
    parts = list(cut_into_parts(text, limit))
    stretches = ["".join(parts[:pick]), "".join(parts[pick:])]
    assert [part for stretch in stretches for part in cut_into_parts(stretch, limit)] == parts


@pytest.mark.parametrize("unit", ["word ", "x", "中", "😀", "line\n"])
@pytest.mark.parametrize("document", ["blank-line", "file"])
def test_a_huge_document_streams_in_whole_parts(tmp_path, unit, document):
    text = (unit * (3 * STRETCH_CHARACTERS // len(unit))).removesuffix("\n")
    path = write(tmp_path, f"{text}\n\nlast\n" if document == "blank-line" else text)
    file = CorpusFile(path, "a", 0, "corpus")
    documents = list(read_documents(file, Corpus(document=document), Tally()))
    stretches = [d.text for d in documents if d.offset == 0]
    assert len(stretches) > 2
    assert "".join(stretches) == text
    assert [p for s in stretches for p in cut_into_parts(s)] == list(cut_into_parts(text))
    assert max(len(p.encode()) for s in stretches for p in cut_into_parts(s)) <= PART_BYTES
    if document == "blank-line":
        assert [(d.text, d.offset) for d in documents if d.offset] == [("last", 1)]


def test_case_B19_nothing_of_a_long_line_is_lost(tmp_path):
    text = " ".join(f"word{i}" for i in range(100_000))
    assert "".join(read(write(tmp_path, text + "\nnext\n"), document="line")) == text + "next"


def test_memory_is_bounded_whatever_the_line(tmp_path):
    path = tmp_path / "a.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for number in range(400):
            file.write(f"{number:05}".encode() * 20_000)
    tracemalloc.start()
    size = sum(len(d.text) for d in read_documents(CorpusFile(path, "a", 1 << 20, "c"), Corpus(), Tally()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 40_000_000
    # Blocks of 1 MiB, a stretch of 1 MiB, and the copies that joining and cutting them makes.
    assert peak < 20 << 20


def test_hashes_are_fixed():
    assert text_hash("") == 0xB4B2797457A0A6E4
    assert text_hash("Größe") == 0x75091D141B5FDD18
