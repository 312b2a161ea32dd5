"""Listing the corpus: order, what is passed over, what is refused."""

import os
import socket
import stat
from pathlib import Path

import pytest

from electra_cli.data import listing as listing_module
from electra_cli.data.corpus import list_files
from electra_cli.errors import InputError
from electra_cli.settings import Corpus, CorpusSource


def names(folder: Path, *files: str) -> list[str]:
    return [file.name for file in list_files(Corpus(files=list(files) or ["corpus"]), folder).files]


def test_order_is_bytewise_and_recursive(tmp_path):
    for name in ("b.txt", "a/z.txt", "a.txt", "B.txt", "ä.txt", "a-b.txt", "a/10.txt", "a/9.txt"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    expected = ["B.txt", "a-b.txt", "a.txt", "a/10.txt", "a/9.txt", "a/z.txt", "b.txt", "ä.txt"]
    assert names(tmp_path) == [f"corpus/{name}" for name in expected]


def test_input_I06_odd_entries_are_skipped_and_counted(tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "sub").mkdir(parents=True)
    (corpus / "good.txt").write_text("text\n")
    (corpus / "sub" / "loop").symlink_to(corpus, target_is_directory=True)
    (corpus / "self.txt").symlink_to(corpus / "self.txt")
    (corpus / "gone.txt").symlink_to(corpus / "nowhere")
    os.link(corpus / "good.txt", corpus / "twice.txt")
    (corpus / "alias.txt").symlink_to(corpus / "good.txt")
    os.mkfifo(corpus / "pipe.txt")
    (corpus / "null.txt").symlink_to("/dev/null")
    (corpus / ".hidden.txt").write_text("no\n")
    (corpus / "empty.txt").touch()
    (corpus / "notes.pdf").write_bytes(b"%PDF-1.7")
    (corpus / "fake.txt").write_bytes(b"PK\x03\x04 and so on")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(corpus)
        server.bind("socket.txt")
        os.chdir(here)
        listing = list_files(Corpus(files=["corpus"]), tmp_path)
    assert [file.name for file in listing.files] == ["corpus/alias.txt"]
    assert dict(listing.skipped) == {
        "FIFO": ("corpus/pipe.txt",),
        "device": ("corpus/null.txt",),
        "empty file": ("corpus/empty.txt",),
        "folder seen before (link or loop)": ("corpus/sub/loop",),
        "hidden": ("corpus/.hidden.txt",),
        "link to nothing": ("corpus/gone.txt", "corpus/self.txt"),
        "other kind of file": ("corpus/notes.pdf",),
        "same file as another": ("corpus/good.txt", "corpus/twice.txt"),
        "socket": ("corpus/socket.txt",),
        "zip archive": ("corpus/fake.txt",),
    }


def test_input_I06_unreadable_files_are_counted(tmp_path, monkeypatch):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x\n")

    def head_of(path: Path) -> bytes:
        # Permissions do not stop root, under whom tests may run.
        if path.name == "b.txt":
            raise PermissionError
        return b"x\n"

    monkeypatch.setattr(listing_module, "head_of", head_of)
    listing = list_files(Corpus(files=["."]), tmp_path)
    assert listing.skipped == {"unreadable": ("b.txt",)}


@pytest.mark.parametrize(
    "name", ["new\nline.txt", "esc\x1b[2J.txt", "[", "a[bold]b", "\udcff.txt", "[bold]x.txt"]
)
def test_input_I06_case_G05_case_G06_odd_names_are_listed(tmp_path, name):
    name = name if name.endswith(".txt") else f"{name}.txt"
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / name).write_text("text\n")
    shown = name.replace("\n", "\\x0a").replace("\x1b", "\\x1b")
    assert names(tmp_path) == [f"corpus/{shown}"]


def test_a_named_file_is_read_whatever_its_suffix(tmp_path):
    (tmp_path / "notes.md").write_text("text\n")
    assert names(tmp_path, "notes.md") == ["notes.md"]


def test_files_outside_keep_their_whole_name(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out.txt").write_text("text\n")
    assert names(tmp_path / "in", "../out.txt", str(tmp_path / "out.txt"))[0].endswith("out.txt")
    assert len(names(tmp_path / "in", "../out.txt", str(tmp_path / "out.txt"))) == 1


def test_nothing_to_read_says_what_was_found(tmp_path):
    (tmp_path / "corpus").mkdir()
    for name in ("a.pdf", "b.pdf", "c.pdf"):
        (tmp_path / "corpus" / name).write_text("x")
    with pytest.raises(InputError, match=r"corpus/? holds no readable text .*found: 3 \.pdf files"):
        names(tmp_path)


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere does not exist"):
        names(tmp_path, "nowhere")
    with pytest.raises(InputError, match="~nobody-of-that-name/x does not exist"):
        names(tmp_path, "~nobody-of-that-name/x")
    with pytest.raises(InputError, match="cannot be read: embedded null byte"):
        names(tmp_path, "a\0b")


def test_each_source_needs_text(tmp_path):
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / "b").mkdir()
    sources = [CorpusSource(name="a", files=["a.txt"]), CorpusSource(name="b", files=["b"])]
    with pytest.raises(InputError, match=r"^b holds no readable text"):
        list_files(Corpus(source=sources), tmp_path)
    (tmp_path / "b" / "b.txt").write_text("x\n")
    assert [file.source for file in list_files(Corpus(source=sources), tmp_path).files] == ["a", "b"]


def test_hub_references_are_listed_without_a_look(tmp_path):
    assert names(tmp_path, "hf://owner/name") == ["hf://owner/name"]
    with pytest.raises(InputError, match="no data set of the Hub"):
        names(tmp_path, "hf://name")


def test_a_fifo_named_itself_is_refused_without_a_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(InputError, match="FIFO"):
        names(tmp_path, "pipe")


def test_what_electra_wrote_is_no_text_of_the_corpus(tmp_path):
    for name in (
        "vocab/vocab.txt",
        "shards/shard-00000.arrow",
        "runs/a/log.txt",
        "mine/vocab/a.txt",
        "b.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text\n")
    listing = list_files(Corpus(files=["."]), tmp_path)
    assert [file.name for file in listing.files] == ["b.txt", "mine/vocab/a.txt"]
    assert listing.skipped["written by electra"] == ("runs", "shards", "vocab")


def test_an_empty_name_is_not_the_whole_folder(tmp_path):
    (tmp_path / "a.txt").write_text("text\n")
    with pytest.raises(InputError, match="an empty name"):
        list_files(Corpus(files=[""]), tmp_path)
