"""A tokenizer.json of the tokenizers library, read for use on data."""

from pathlib import Path

from tokenizers import Tokenizer

from electra_cli.errors import CorruptError, InputError


def read_tokenizer(path: Path, *, key: str = "") -> Tokenizer:
    """The tokenizer of the file, for whole texts: see `tokenizer_of`. `key` is the setting that names it.

    `InputError` where it cannot be read, `CorruptError` where it is no tokenizer.
    """
    return tokenizer_of(read_utf8(path, key=key), path)


def tokenizer_of(text: str, path: Path) -> Tokenizer:
    """The tokenizer that `text`, read from `path`, describes; `CorruptError` where it describes none.

    It neither cuts nor pads, and text that spells a special piece stays text, whatever the file says.
    """
    try:
        tokenizer = Tokenizer.from_str(text)
    # The library raises plain Exception, and nothing narrower, for content that it cannot read.
    except Exception as error:
        raise CorruptError(f"{path} is no tokenizer of the tokenizers library: {error}", path=path) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # Never saved in the file: without it "[SEP]" in raw text would become a separator.
    tokenizer.encode_special_tokens = True
    return tokenizer


def read_utf8(path: Path, *, key: str = "") -> str:
    """A text file without its byte order mark."""
    try:
        return path.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise CorruptError(
            f"{path}: the byte at byte offset {error.start:,} is not valid UTF-8", path=path
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", path=path, key=key) from error
