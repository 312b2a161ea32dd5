"""Bytes on disk → blocks of text: compression and kind by magic bytes, encoding errors with their place."""

import bz2
import lzma
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from electra_cli.data.documents import CorpusFile, Tally
from electra_cli.errors import CorruptError, InputError

BLOCK_BYTES = 1 << 20
HEAD_BYTES = 512

EXPANSION_LIMIT = 200
"""A compressed file may grow to this many times its size (text rarely exceeds 10) …"""
EXPANSION_FREE_BYTES = 64 << 20
"""… once it has grown beyond this."""

_MAGIC: tuple[tuple[bytes, int, str], ...] = (
    (b"\x1f\x8b", 0, "gzip"),
    (b"\x28\xb5\x2f\xfd", 0, "zstd"),
    (b"BZh", 0, "bz2"),
    (b"\xfd7zXZ\x00", 0, "xz"),
    (b"PAR1", 0, "parquet"),
    (b"ARROW1", 0, "arrow"),
    (b"\xff\xff\xff\xff", 0, "arrow-stream"),
    (b"PK\x03\x04", 0, "zip archive"),
    (b"PK\x05\x06", 0, "zip archive"),
    (b"%PDF-", 0, "PDF"),
    (b"\x89PNG", 0, "image"),
    (b"\xff\xd8\xff", 0, "image"),
    (b"GIF8", 0, "image"),
    (b"7z\xbc\xaf\x27\x1c", 0, "7z archive"),
    (b"Rar!\x1a\x07", 0, "rar archive"),
    (b"\x7fELF", 0, "program"),
    (b"SQLite format 3\x00", 0, "database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0, "office file"),
    (b"ustar", 257, "tar archive"),
)
COMPRESSIONS = ("gzip", "zstd", "bz2", "xz")
COLUMNAR = ("parquet", "arrow", "arrow-stream")


def sniff(head: bytes) -> str:
    """What a file is, by its first bytes: a name of `_MAGIC`, or `text` when none fits.

    A pzstd file begins with a skippable frame; BZh is followed by a digit in a real bzip2 file.
    """
    for magic, place, kind in _MAGIC:
        if head[place : place + len(magic)] == magic:
            if kind == "bz2" and not head[3:4].isdigit():
                continue
            return kind
    if head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:
        return "zstd"
    return "text"


def head_of(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


@contextmanager
def _reading(file: CorpusFile) -> Iterator[None]:
    """Turns a failing `open` or `read` into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot read {file.name}: {error.strerror or error}",
            path=file.name,
            hint="check that it is still there and may be read",
        ) from error


def read_blocks(file: CorpusFile) -> Generator[bytes, None, None]:
    """The uncompressed bytes of a file, block by block; every member or frame of a compressed file is read.

    Raises `CorruptError` when compressed data end early, are damaged, or grow beyond `EXPANSION_LIMIT`.
    """
    with _reading(file):
        kind = sniff(head_of(file.path))
        raw = file.path.open("rb")
    with raw:
        if kind not in COMPRESSIONS:
            while True:
                with _reading(file):
                    block = raw.read(BLOCK_BYTES)
                if not block:
                    return
                yield block
        yield from _decompressed(file, raw, kind)


def _decompressed(file: CorpusFile, raw: IO[bytes], kind: str) -> Iterator[bytes]:
    stream = _open_compressed(raw, kind)
    num_bytes = 0
    while True:
        try:
            block: bytes = stream.read(BLOCK_BYTES)
        except (OSError, ValueError, EOFError, lzma.LZMAError) as error:
            raise CorruptError(
                f"{file.name}: the {kind} data are cut short or damaged after "
                f"{num_bytes:,} bytes of text ({error})",
                path=file.name,
                hint="copy or download the file again",
            ) from error
        if not block:
            return
        num_bytes += len(block)
        if num_bytes > max(EXPANSION_FREE_BYTES, EXPANSION_LIMIT * file.num_bytes):
            raise CorruptError(
                f"{file.name}: {file.num_bytes:,} bytes of {kind} data have grown to more than "
                f"{num_bytes:,}, over {EXPANSION_LIMIT} times as many; this looks like a decompression bomb",
                path=file.name,
                hint="decompress it yourself if it is meant, and name the plain file",
            )
        yield block


def _open_compressed(raw: IO[bytes], kind: str) -> Any:
    if kind == "xz":
        return lzma.open(raw)
    if kind == "bz2":
        return bz2.open(raw)
    import pyarrow

    return pyarrow.input_stream(raw, compression=kind)


def decode_blocks(blocks: Iterable[bytes], name: str, errors: str, tally: Tally) -> Iterator[str]:
    """UTF-8 bytes → text, without a byte order mark at the start.

    `errors = "strict"` raises `CorruptError` with line and byte offset (both of the uncompressed bytes);
    `"replace"` puts U+FFFD in place of each malformed sequence and counts it, wherever blocks are cut.
    """
    pending = b""
    num_bytes = num_lines = 0
    for block in blocks:
        data = pending + block
        end = len(data) - _incomplete_tail(data)
        pending = data[end:]
        data = data[:end]
        yield _decode(data, num_bytes, num_lines, name, errors, tally)
        num_bytes += end
        num_lines += data.count(b"\n")
    if pending:
        yield _decode(pending, num_bytes, num_lines, name, errors, tally)


def _decode(data: bytes, num_bytes: int, num_lines: int, name: str, errors: str, tally: Tally) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if errors == "strict":
            line = num_lines + data.count(b"\n", 0, error.start) + 1
            raise CorruptError(
                f"{name}, line {line}: byte 0x{data[error.start]:02x} at byte offset "
                f"{num_bytes + error.start:,} is not valid UTF-8{_suspicion(data, num_bytes)}",
                path=name,
                line=line,
                hint='convert the file (iconv -t UTF-8), or set corpus.encoding_errors = "replace"',
            ) from error
        text = data.decode("utf-8", "replace")
        tally.repair("invalid UTF-8", text.count("\ufffd") - data.count(b"\xef\xbf\xbd"))
    if num_bytes == 0 and text.startswith("\ufeff"):
        tally.repair("byte order mark")
        return text[1:]
    return text


def _suspicion(data: bytes, num_bytes: int) -> str:
    if num_bytes == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "; the file begins like UTF-16"
    kind = sniff(data[:HEAD_BYTES]) if num_bytes == 0 else "text"
    return "" if kind == "text" else f"; the data begin like a file of kind {kind}"


def _incomplete_tail(data: bytes) -> int:
    """Bytes at the end that may be the beginning of a longer sequence."""
    for length in range(1, min(3, len(data)) + 1):
        byte = data[-length]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return length if needed > length else 0
    return 0
