"""An own vocabulary, named by `vocab.path`: a vocab.txt or a tokenizer.json."""

from pathlib import Path

from tokenizers import Tokenizer

from electra_cli.data.tokenizer_file import read_utf8, tokenizer_of
from electra_cli.data.tokenizer_parts import SPECIAL_PIECES, wordpiece
from electra_cli.errors import InputError
from electra_cli.settings import Vocab


def check_path(path: Path, text: str) -> None:
    """`InputError` unless `path`, written as `text` in the project, is a file."""
    if path.is_dir():
        inside = [name for name in ("vocab.txt", "tokenizer.json") if (path / name).is_file()]
        meant = f"{text.rstrip('/')}/{inside[0] if inside else 'vocab.txt'}"
        raise InputError(
            f"vocab.path = {text!r} is a directory; did you mean {meant}?",
            path=path,
            key="vocab.path",
            hint="name the file: a vocab.txt or a tokenizer.json",
        )
    if not path.is_file():
        raise InputError(
            f"vocab.path = {text!r} does not exist", path=path, key="vocab.path", hint=f"looked at {path}"
        )


def read_own(path: Path, settings: Vocab) -> Tokenizer:
    """The tokenizer of an own vocabulary.

    A tokenizer.json brings its cleaning along; a vocab.txt (one WordPiece a line, `\\n` or `\\r\\n`) is used
    with the project's cleaning. `InputError` names missing special pieces, empty and repeated lines.
    """
    text = read_utf8(path, key="vocab.path")
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        return _from_json(text, path)
    return wordpiece(_pieces(text, path), settings.model_copy(update={"kind": "wordpiece"}))


def _pieces(text: str, path: Path) -> list[str]:
    pieces = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    line_of: dict[str, int] = {}
    for line, piece in enumerate(pieces, 1):
        if not piece:
            raise InputError(f"{path}, line {line}: an empty piece", path=path, line=line, key="vocab.path")
        first = line_of.setdefault(piece, line)
        if first != line:
            raise InputError(
                f"{path}, line {line}: the piece {piece!r} stands on line {first} too",
                path=path,
                line=line,
                key="vocab.path",
            )
    missing = [piece for piece in SPECIAL_PIECES if piece not in line_of]
    if missing:
        raise InputError(
            f"{path} lacks {', '.join(missing)}",
            path=path,
            key="vocab.path",
            hint="a vocabulary needs [PAD] [UNK] [CLS] [SEP] [MASK]; add the missing pieces to the file",
        )
    return pieces


def _from_json(text: str, path: Path) -> Tokenizer:
    tokenizer = tokenizer_of(text, path)
    ids = sorted(tokenizer.get_vocab(with_added_tokens=True).values())
    if ids != list(range(len(ids))):
        raise InputError(
            f"{path}: {len(ids):,} pieces, but their ids are not 0 to {len(ids) - 1:,}",
            path=path,
            key="vocab.path",
            hint="every id below the number of pieces must be taken exactly once",
        )
    return tokenizer
