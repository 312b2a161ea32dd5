"""Which files belong to the corpus: folders in bytewise order, all that is passed over counted by reason."""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from electra_cli.data.documents import CorpusFile, Listing
from electra_cli.data.hub import PREFIX, parse_reference
from electra_cli.data.readers import COLUMNAR, COMPRESSIONS, head_of, sniff
from electra_cli.errors import InputError
from electra_cli.progress import Progress, counted
from electra_cli.settings import Corpus

_COMPRESSION_SUFFIXES = (".gz", ".zst", ".bz2", ".xz")
_TEXT_SUFFIXES = (".txt", ".text", ".jsonl", ".ndjson", ".parquet", ".arrow", "")
DEFAULT_SOURCE = "corpus"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_OWN_FOLDERS = ("vocab", "shards", "runs", "evaluate")
"""What the stages write beside the project file is no text to learn from."""


def list_files(corpus: Corpus, root: Path) -> Listing:
    """List the corpus: files, folders (recursive) and Hub data sets, relative names seen from `root`.

    Inside a folder only files with a known suffix are taken; a file that is named itself is taken whatever
    its suffix. Nothing but regular files is opened. Raises `InputError` when a named path is missing or when
    there is no file left to read.
    """
    walker = _Walker(root)
    entries = (
        [(DEFAULT_SOURCE, corpus.files)] if not corpus.source else [(s.name, s.files) for s in corpus.source]
    )
    for source, names in entries:
        for name in names:
            walker.add(name, source)
    listing = walker.listing()
    for source, names in entries:
        if not any(file.source == source for file in listing.files):
            raise _nothing_to_read(names, listing)
    return listing


def _nothing_to_read(names: list[str], listing: Listing) -> InputError:
    found = Counter(
        f"{Path(name).suffix} file" if reason.startswith("other kind") and Path(name).suffix else reason
        for reason, skipped in listing.skipped.items()
        for name in skipped
    )
    there = ", ".join(
        counted(count, what) if what.endswith(" file") else f"{count:,} × {what}"
        for what, count in sorted(found.items())
    )
    return InputError(
        f"{', '.join(names)} holds no readable text (0 documents); found: {there or 'nothing'}",
        key="corpus.files",
        hint="the corpus is .txt, .jsonl, .parquet or .arrow, plain or compressed (.gz .zst .bz2 .xz)",
    )


def tell_skipped(listing: Listing, progress: Progress) -> None:
    """One line a reason for what was found and is not read."""
    for reason, names in listing.skipped.items():
        progress.message(
            f"skipped   {len(names):,} × {reason}: {', '.join(names[:3])}{', …' * (len(names) > 3)}"
        )


class _Walker:
    """Collects files; remembers inodes so that no text is read twice and no loop is followed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: list[CorpusFile] = []
        self._skipped: dict[str, list[str]] = {}
        self._seen: set[tuple[int, int]] = set()
        self._folders: set[tuple[int, int]] = set()
        self._own = {os.path.normpath(root / name) for name in _OWN_FOLDERS}

    def listing(self) -> Listing:
        return Listing(
            tuple(self._files), {reason: tuple(names) for reason, names in sorted(self._skipped.items())}
        )

    def add(self, text: str, source: str) -> None:
        """One entry of corpus.files."""
        if text.startswith(PREFIX):
            parse_reference(text)
            self._files.append(CorpusFile(Path(text), text, 0, source))
            return
        path = self._root / os.path.expanduser(text)  # noqa: PTH111 - Path may raise
        try:
            if not text:
                raise ValueError("an empty name")
            status = path.stat()
        except (OSError, ValueError) as error:
            is_absent = isinstance(error, FileNotFoundError)
            reason = "does not exist" if is_absent else f"cannot be read: {_reason(error)}"
            raise InputError(
                f"{text or repr(text)} {reason}",
                path=text,
                key="corpus.files",
                hint=f"looked at {path}; the command line or corpus.files names the text",
            ) from error
        if stat.S_ISDIR(status.st_mode):
            for name in sorted(self._walk(path), key=os.fsencode):
                self._take(Path(name), source, is_named=False)
        else:
            self._take(path, source, is_named=True)

    def _skip(self, reason: str, path: Path) -> None:
        self._skipped.setdefault(reason, []).append(self._shown(path))

    def _shown(self, path: Path) -> str:
        name = (path.relative_to(self._root) if path.is_relative_to(self._root) else path).as_posix()
        return _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", name)

    def _walk(self, folder: Path) -> Iterator[str]:
        """All names below a folder that are no folders; symbolic links to folders are followed once."""
        stack = [os.fspath(folder)]
        while stack:
            current = stack.pop()
            try:
                status = os.stat(current)  # noqa: PTH116 - bytewise names, 200,000 of them
                entries = sorted(os.scandir(current), key=lambda entry: os.fsencode(entry.name))
            except OSError:
                self._skip("unreadable", Path(current))
                continue
            identity = (status.st_dev, status.st_ino)
            if identity in self._folders:
                self._skip("folder seen before (link or loop)", Path(current))
                continue
            self._folders.add(identity)
            folders = []
            for entry in entries:
                if entry.name.startswith("."):
                    self._skip("hidden", Path(entry.path))
                elif os.path.normpath(entry.path) in self._own:
                    self._skip("written by electra", Path(entry.path))
                elif _is_folder(entry):
                    folders.append(entry.path)
                else:
                    yield entry.path
            stack.extend(reversed(folders))

    def _take(self, path: Path, source: str, *, is_named: bool) -> None:
        try:
            status = path.stat()
        except OSError as error:
            self._skip("link to nothing" if path.is_symlink() else str(error.strerror).lower(), path)
            return
        reason = _unfit(path, status.st_mode, status.st_size, is_named=is_named)
        if not reason and (status.st_dev, status.st_ino) in self._seen:
            reason = "same file as another"
        if reason:
            self._skip(reason, path)
            return
        self._seen.add((status.st_dev, status.st_ino))
        self._files.append(CorpusFile(path, self._shown(path), status.st_size, source))


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that leads to itself.
        return False


def _unfit(path: Path, mode: int, num_bytes: int, *, is_named: bool) -> str:
    """Why a file is not read; empty if it is."""
    if not stat.S_ISREG(mode):
        for test, name in ((stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket")):
            if test(mode):
                return name
        return "device"
    if not is_named and not has_known_suffix(path):
        return "other kind of file"
    if num_bytes == 0:
        return "empty file"
    try:
        kind = sniff(head_of(path))
    except OSError:
        return "unreadable"
    if kind in COMPRESSIONS or kind in COLUMNAR or kind == "text":
        return ""
    return kind


def has_known_suffix(path: Path) -> bool:
    """Whether a name ends like text: .txt, .jsonl, .parquet, .arrow, or those and a compression."""
    name = path.name.lower()
    compression = next((suffix for suffix in _COMPRESSION_SUFFIXES if name.endswith(suffix)), "")
    inner = Path(name.removesuffix(compression)).suffix if compression else Path(name).suffix
    return inner in _TEXT_SUFFIXES and bool(inner or compression)


def is_plain_text(file: CorpusFile) -> bool:
    """Whether a file's size, by its name, is about that of the text inside, so that progress has an end."""
    return file.path.suffix.lower() in (".txt", ".text", ".jsonl", ".ndjson")
