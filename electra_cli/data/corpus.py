"""From files to documents to parts: the one way in which text enters.

`list_files` finds the files, `read_documents` streams the documents of one, `cut_into_parts` cuts a document.
"""

from collections.abc import Iterator
from itertools import chain

from electra_cli.data.columns import column_texts
from electra_cli.data.documents import (
    CONTROL,
    CorpusFile,
    Document,
    Listing,
    Tally,
    cut_into_parts,
    text_hash,
)
from electra_cli.data.hub import hub_texts
from electra_cli.data.listing import list_files
from electra_cli.data.readers import COLUMNAR, HEAD_BYTES, decode_blocks, read_blocks, sniff
from electra_cli.data.text_documents import json_documents, plain_documents, record_documents
from electra_cli.errors import CorruptError
from electra_cli.settings import Corpus

__all__ = [
    "CorpusFile",
    "Document",
    "Listing",
    "Tally",
    "cut_into_parts",
    "list_files",
    "read_documents",
    "text_hash",
]


def read_documents(file: CorpusFile, corpus: Corpus, tally: Tally) -> Iterator[Document]:
    """Stream the documents of one file in their order, in memory bounded whatever the file.

    A document of more than about a million characters comes as several `Document`s with the same offset,
    each a whole number of the parts that `cut_into_parts` makes of the document: parts do not depend on it.
    Documents of nothing but white space are dropped and counted.
    """
    for document in _documents(file, corpus, tally):
        if CONTROL.search(document.text):
            tally.repair("control characters")
        yield document


def _documents(file: CorpusFile, corpus: Corpus, tally: Tally) -> Iterator[Document]:
    column, errors = corpus.text_column, corpus.encoding_errors
    if file.is_remote:
        yield from record_documents(hub_texts(file.name, column, tally), tally)
        return
    blocks = read_blocks(file)
    first = next(blocks, b"")
    kind = sniff(first[:HEAD_BYTES])
    _check_suffix(file, kind)
    if kind in COLUMNAR:
        blocks.close()
        yield from record_documents(column_texts(file, kind, column, errors, tally), tally)
        return
    texts = decode_blocks(chain([first], blocks), file.name, errors, tally)
    if _is_json(file):
        yield from json_documents(texts, file.name, column, errors, tally)
    else:
        yield from plain_documents(texts, corpus.document, tally)


def _is_json(file: CorpusFile) -> bool:
    return any(suffix.lower() in (".jsonl", ".ndjson") for suffix in file.path.suffixes[-2:])


def _check_suffix(file: CorpusFile, kind: str) -> None:
    """The content decides, except that a name which promises columns cannot hold anything else."""
    promised = next(
        (s for s in (".parquet", ".arrow") if s in (x.lower() for x in file.path.suffixes[-2:])), ""
    )
    if promised and kind not in COLUMNAR:
        raise CorruptError(
            f"{file.name} is named {promised} but does not begin like such a file",
            path=file.name,
            hint="copy or download the file again, or give it the right name",
        )
    if kind != "text" and kind not in COLUMNAR:
        raise CorruptError(
            f"{file.name} holds a {kind}, not text",
            path=file.name,
            hint="unpack it, and name the files inside",
        )
