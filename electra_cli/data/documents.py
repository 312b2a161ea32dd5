"""What the corpus is made of: files, documents, parts, and the counts of all that is dropped or repaired."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PART_BYTES = 65_536
"""A part holds at most this many bytes of UTF-8."""


@dataclass(frozen=True)
class CorpusFile:
    """One file of the corpus, or one data set of the Hugging Face Hub."""

    path: Path
    """Where to open it; for a data set of the Hub the reference itself."""
    name: str
    """As shown: relative to the project's folder where it lies inside, with `/` and with control characters
    escaped; or `hf://owner/name`."""
    num_bytes: int
    """Size on disk; 0 for a data set of the Hub."""
    source: str
    """Name of its `[[corpus.source]]`, or `corpus`."""

    @property
    def is_remote(self) -> bool:
        """Whether it is read through the `datasets` library."""
        return self.name.startswith("hf://")


@dataclass(frozen=True)
class Listing:
    """The files to read, in bytewise order of their names a source, and what was passed over."""

    files: tuple[CorpusFile, ...]
    skipped: Mapping[str, tuple[str, ...]]
    """reason → names."""

    @property
    def num_bytes(self) -> int:
        """Bytes on disk, compressed ones as they lie there."""
        return sum(file.num_bytes for file in self.files)


@dataclass
class Tally:
    """Counts by reason; nothing is dropped or repaired without one."""

    dropped: dict[str, int] = field(default_factory=dict)
    """Documents left out: `empty` (nothing but white space), `null` (a missing value of a column)."""
    repaired: dict[str, int] = field(default_factory=dict)
    """`byte order mark` (files), `invalid UTF-8` (byte sequences replaced by U+FFFD), `unpaired surrogate`
    (characters), `control characters` (documents that hold some; see `CONTROL`)."""

    def drop(self, reason: str, count: int = 1) -> None:
        """Count documents left out."""
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def repair(self, reason: str, count: int = 1) -> None:
        """Count repairs."""
        if count:
            self.repaired[reason] = self.repaired.get(reason, 0) + count

    def add(self, other: "Tally") -> None:
        """Add the counts of another reader."""
        for reason, count in other.dropped.items():
            self.drop(reason, count)
        for reason, count in other.repaired.items():
            self.repair(reason, count)


@dataclass(frozen=True)
class Document:
    """A text, or one stretch of a huge one; see `read_documents`."""

    text: str
    offset: int
    """Running number of the document in its file; the stretches of a huge document share it."""


CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters other than tab, line feed and carriage return. The reader keeps them, so that no text is
lost before tokenization; the normaliser of a learned vocabulary removes them, as BERT's does. Documents that
hold one are counted."""


def text_hash(text: str) -> int:
    """Fixed-key 64-bit hash of the UTF-8 text, the same in every process; in [0, 2⁶⁴)."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def cut_into_parts(text: str, max_bytes: int = PART_BYTES) -> Iterator[str]:
    """Cut a text into parts of at most `max_bytes` (at least 4) of UTF-8; joined, they are the text again.

    A cut comes after the last line end that fits, else after the last blank, else between two code points.
    The choice looks at one window only, so cutting a stretch that ends at a cut gives the same parts.
    """
    data = text.encode("utf-8")
    start = 0
    while len(data) - start > max_bytes:
        end = _cut(data, start, start + max_bytes)
        yield data[start:end].decode("utf-8")
        start = end
    if start == 0:
        if text:
            yield text
        return
    yield data[start:].decode("utf-8")


def _cut(data: bytes, start: int, limit: int) -> int:
    for blank in (b"\n", b" "):
        place = data.rfind(blank, start, limit)
        if place >= 0:
            return place + 1
    while data[limit] & 0xC0 == 0x80:
        limit -= 1
    return limit
