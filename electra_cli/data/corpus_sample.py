"""Which documents a vocabulary is learned from: chosen by a hash of their text, by weight of their source."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from electra_cli.data.corpus import CorpusFile, Listing, Tally, cut_into_parts, read_documents, text_hash
from electra_cli.data.listing import is_plain_text
from electra_cli.data.order import source_weights
from electra_cli.data.word_counts import WordCounter
from electra_cli.errors import InputError
from electra_cli.progress import Progress, counted
from electra_cli.settings import Corpus, Vocab

_BUCKET_BITS = 16
EXAMPLE_BYTES = 2 << 20
"""Text that figures such as tokens per word are measured on, about."""


@dataclass
class _Source:
    """What one source holds, by the first bits of its documents' hashes."""

    bytes_by_bucket: "np.ndarray[tuple[int], np.dtype[np.int64]]" = field(
        default_factory=lambda: np.zeros(1 << _BUCKET_BITS, dtype=np.int64)
    )
    whole_times: int = 1
    """How often every document counts …"""
    num_extra_buckets: int = 0
    """… and how many buckets of documents count once more."""

    def aim_at(self, num_bytes: float) -> None:
        """Choose so that the documents counted make at most `num_bytes` together, but at least one bucket."""
        total = int(self.bytes_by_bucket.sum())
        self.whole_times = int(num_bytes // total)
        cumulative = np.cumsum(self.bytes_by_bucket)
        extra = num_bytes - self.whole_times * total
        self.num_extra_buckets = int(np.searchsorted(cumulative, extra, side="right"))
        if self.times_total() == 0:
            self.num_extra_buckets = int(np.flatnonzero(self.bytes_by_bucket)[0]) + 1

    def times(self, bucket: int) -> int:
        return self.whole_times + (bucket < self.num_extra_buckets)

    def times_total(self) -> int:
        """Bytes that are counted, repeats included."""
        extra = int(self.bytes_by_bucket[: self.num_extra_buckets].sum())
        return self.whole_times * int(self.bytes_by_bucket.sum()) + extra


class _Examples:
    """The first parts of the documents with the lowest hashes."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._size = 0

    def offer(self, number: int, text: str) -> None:
        if self._size >= EXAMPLE_BYTES and number >= -self._heap[0][0]:
            return
        part = next(cut_into_parts(text))
        heapq.heappush(self._heap, (-number, part))
        self._size += len(part)
        while self._size - len(self._heap[0][1]) >= EXAMPLE_BYTES:
            self._size -= len(heapq.heappop(self._heap)[1])

    def texts(self) -> list[str]:
        return [text for _, text in sorted(self._heap, reverse=True)]


@dataclass(frozen=True)
class Sample:
    """The words of the sample, and what was read for it."""

    counter: WordCounter
    num_documents: int
    text_bytes: int
    """Bytes of text in the corpus."""
    sampled_bytes: int
    """Bytes that were counted; documents of a source with much weight and little text count repeatedly."""
    tally: Tally
    examples: list[str]


def sample_words(
    listing: Listing,
    corpus: Corpus,
    settings: Vocab,
    progress: Progress,
) -> Sample:
    """Count the words of documents of about `vocab.sample_bytes` in all, in bounded memory.

    A corpus that fits is read once; a larger one, or one of several sources, is read twice: the first pass
    finds the hash below which documents are taken. Raises `InputError` when there is no document.
    """
    sample_bytes = settings.sample_bytes
    sources = {name: _Source() for name in dict.fromkeys(f.source for f in listing.files)}
    counter = WordCounter(settings) if len(sources) == 1 and listing.num_bytes <= sample_bytes else None
    tally, examples = Tally(), _Examples()
    num_documents = text_bytes = 0
    is_plain = all(map(is_plain_text, listing.files))
    progress.begin("count" if counter else "survey", listing.num_bytes if is_plain else None, "B")
    for file, offset, text in _documents(listing, corpus, tally):
        size, number = len(text.encode("utf-8")), text_hash(text)
        sources[file.source].bytes_by_bucket[number >> (64 - _BUCKET_BITS)] += size
        num_documents += offset
        text_bytes += size
        examples.offer(number, text)
        if counter and text_bytes > sample_bytes:
            counter = None
        if counter:
            counter.add(text)
        progress.advance(size)
    progress.end()
    _check_text(num_documents, sources, listing, corpus)
    if counter is None:
        counter = _count_chosen(
            listing, corpus, min(sample_bytes, text_bytes), sources, WordCounter(settings), progress
        )
    counter.flush()
    sampled = sum(source.times_total() for source in sources.values())
    return Sample(counter, num_documents, text_bytes, sampled, tally, examples.texts())


def _documents(listing: Listing, corpus: Corpus, tally: Tally) -> Iterator[tuple[CorpusFile, int, str]]:
    """File, whether a document begins (1) or goes on (0), and text."""
    for file in listing.files:
        last = -1
        for document in read_documents(file, corpus, tally):
            yield file, int(document.offset != last), document.text
            last = document.offset


def _check_text(num_documents: int, sources: dict[str, _Source], listing: Listing, corpus: Corpus) -> None:
    empty = [name for name, source in sources.items() if not source.bytes_by_bucket.any()]
    if not empty:
        return
    what = ", ".join(corpus.files) if not corpus.source else f"source {', '.join(empty)}"
    count = sum(file.source in empty for file in listing.files)
    raise InputError(
        f"{what} holds no text: 0 documents in {counted(count, 'file')}",
        key="corpus.files",
        hint="the files hold nothing but white space",
    )


def _count_chosen(
    listing: Listing,
    corpus: Corpus,
    target: int,
    sources: dict[str, _Source],
    counter: WordCounter,
    progress: Progress,
) -> WordCounter:
    sizes = {name: int(source.bytes_by_bucket.sum()) for name, source in sources.items()}
    weights = source_weights(corpus, sizes)
    for name, source in sources.items():
        source.aim_at(target * weights[name] / sum(weights.values()))
    progress.begin("count", sum(source.times_total() for source in sources.values()), "B")
    for file, _, text in _documents(listing, corpus, Tally()):
        times = sources[file.source].times(text_hash(text) >> (64 - _BUCKET_BITS))
        if times:
            counter.add(text, times)
            progress.advance(len(text.encode("utf-8")) * times)
    progress.end()
    return counter
