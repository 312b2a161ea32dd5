"""Blocks of text → documents: a blank line, a line or the file ends one; or a field of each line of JSON."""

import json
from collections.abc import Iterable, Iterator

from electra_cli.data.documents import Document, Tally, cut_into_parts
from electra_cli.errors import CorruptError, InputError

STRETCH_CHARACTERS = 1 << 20
"""A document longer than this leaves in stretches that end where a part ends."""
RECORD_CHARACTERS = 256 << 20
"""Longest line of JSON: one record has to be parsed whole."""


class _Assembler:
    """Collects the text of one document after another and lets whole parts go as soon as it grows large.

    A stretch of nothing but white space carries no token and is not emitted.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._pieces: list[str] = []
        self._size = 0
        self._is_emitted = False
        self._offset = 0

    @property
    def is_open(self) -> bool:
        """Whether the document has any text yet."""
        return bool(self._pieces) or self._is_emitted

    def add(self, text: str) -> Iterator[Document]:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > STRETCH_CHARACTERS:
            *whole, rest = cut_into_parts("".join(self._pieces))
            self._pieces = [rest]
            self._size = len(rest)
            yield from self._emit("".join(whole))

    def _emit(self, text: str) -> Iterator[Document]:
        if text and not text.isspace():
            self._is_emitted = True
            yield Document(text, self._offset)

    def finish(self) -> Iterator[Document]:
        yield from self._emit("".join(self._pieces))
        if self._is_emitted:
            self._offset += 1
        else:
            self._tally.drop("empty")
        self._pieces, self._size, self._is_emitted = [], 0, False


def plain_documents(texts: Iterable[str], document: str, tally: Tally) -> Iterator[Document]:
    r"""Documents of plain text. Only `\n` and `\r\n` end a line; a document is its lines joined by `\n`.

    document: `blank-line` (a line of nothing but white space ends one), `line`, or `file`.
    """
    assembler = _Assembler(tally)
    is_line_open = False
    for line, is_whole in _lines(texts):
        if is_line_open:
            yield from assembler.add(line)
        elif document == "blank-line" and is_whole and (not line or line.isspace()):
            if assembler.is_open:
                yield from assembler.finish()
        else:
            yield from assembler.add("\n" + line if assembler.is_open else line)
        is_line_open = not is_whole
        if document == "line" and is_whole:
            yield from assembler.finish()
    if assembler.is_open or document == "file":
        yield from assembler.finish()


def _lines(texts: Iterable[str], limit: int = STRETCH_CHARACTERS) -> Iterator[tuple[str, bool]]:
    r"""Lines without their ends; one longer than `limit` comes in several pieces, all but the last `False`.

    Text after the last line end is a line of its own; nothing after it is none.
    """
    pending = ""
    has_piece = False
    for text in texts:
        lines = (pending + text).replace("\r\n", "\n").split("\n")
        pending = lines.pop()
        for line in lines:
            yield line, True
        if lines:
            has_piece = False
        if len(pending) > limit:
            # A carriage return at the very end may belong to a line end that is still to come.
            end = len(pending) - pending.endswith("\r")
            yield pending[:end], False
            pending, has_piece = pending[end:], True
    if pending or has_piece:
        yield pending, True


def record_documents(texts: Iterable[str], tally: Tally) -> Iterator[Document]:
    """One document a text, as the rows of a table hold them; line ends inside stay as they are."""
    assembler = _Assembler(tally)
    for text in texts:
        yield from assembler.add(text)
        yield from assembler.finish()


def json_documents(
    texts: Iterable[str], name: str, column: str, errors: str, tally: Tally
) -> Iterator[Document]:
    """The string under `column` of each line of JSON; lines of white space are passed over.

    Raises `CorruptError` for a line that is no JSON and `InputError` for one without such a string, both with
    the number of the line.
    """
    assembler = _Assembler(tally)
    pieces: list[str] = []
    size = 0
    number = 1
    for line, is_whole in _lines(texts):
        pieces.append(line)
        size += len(line)
        if size > RECORD_CHARACTERS:
            raise InputError(
                f"{name}, line {number}: a record of more than {RECORD_CHARACTERS:,} characters",
                path=name,
                line=number,
                hint="write such a text as plain .txt, which streams whatever its length",
            )
        if not is_whole:
            continue
        record, pieces, size = "".join(pieces), [], 0
        if record and not record.isspace():
            text = _field(record, name, number, column)
            yield from assembler.add(_without_surrogates(text, name, number, errors, tally))
            yield from assembler.finish()
        number += 1


def _field(record: str, name: str, line: int, column: str) -> str:
    try:
        value = json.loads(record)
    except (ValueError, RecursionError) as error:
        raise CorruptError(
            f"{name}, line {line}: not a line of JSON ({error})",
            path=name,
            line=line,
            hint="every line of a .jsonl file is one JSON object",
        ) from error
    if not isinstance(value, dict):
        raise InputError(
            f"{name}, line {line}: a JSON value that is {_json_type(value)}, not an object",
            path=name,
            line=line,
        )
    if column not in value:
        there = ", ".join(sorted(value)[:10]) or "nothing"
        raise InputError(
            f"{name}, line {line}: no field {column!r}; the record has {there}",
            path=name,
            line=line,
            key="corpus.text_column",
            hint="name the field that holds the text: corpus.text_column",
        )
    text = value[column]
    if not isinstance(text, str):
        raise InputError(
            f"{name}, line {line}: the field {column!r} holds {_json_type(text)}, not a string",
            path=name,
            line=line,
            key="corpus.text_column",
            hint="remove or repair that record, or name another field: corpus.text_column",
        )
    return text


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    names: dict[type, str] = {str: "a string", list: "a list", dict: "an object"}
    return names[type(value)]


def _without_surrogates(text: str, name: str, line: int, errors: str, tally: Tally) -> str:
    r"""JSON can spell half a surrogate pair (`"\ud800"`), which no UTF-8 text can hold."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        if errors == "strict":
            raise CorruptError(
                f"{name}, line {line}: an unpaired surrogate U+{ord(text[error.start]):04X} in the text",
                path=name,
                line=line,
                hint='repair the record, or set corpus.encoding_errors = "replace"',
            ) from error
        repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        tally.repair("unpaired surrogate", repaired.count("\ufffd") - text.count("\ufffd"))
        return repaired
    return text
