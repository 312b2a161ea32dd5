"""manifest.json of `vocab/` and `shards/`: strict JSON that carries a checksum over itself."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_cli.durable import write_bytes
from electra_cli.errors import CorruptError, InputError

NAME = "manifest.json"
_CHECKSUM = "checksum"


class OtherFormatError(InputError):
    """The folder is that of another version of this program."""


def _dumped(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write manifest.json, with a checksum over the rest of it as its last field."""
    checksum = hashlib.sha256(_dumped(content)).hexdigest()
    write_bytes(folder / NAME, _dumped({**content, _CHECKSUM: checksum}))


def read_checked(
    folder: Path, *, wanted_format: str, nothing: str, command: str
) -> tuple[dict[str, Any], str]:
    """The manifest that `command` wrote, and the sha256 of its bytes; `nothing` says that there is none.

    `InputError` where there is none, or one of another program; `CorruptError` where any byte of it changed.
    """
    path = folder / NAME
    rebuild = f"{command} --force builds it again"
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{nothing} in {folder}", path=folder, hint=f"run {command} first") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", path=path) from error
    actual = hashlib.sha256(data).hexdigest()
    damaged = CorruptError(
        f"{path} is damaged: it is not the text that {command} wrote (now sha256 {actual})",
        path=path,
        hint=rebuild,
    )
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if not isinstance(content, dict):
        raise damaged
    checksum = content.pop(_CHECKSUM, None)
    family = wanted_format.rpartition("-")[0]
    if checksum is None and not str(content.get("format", "")).startswith(family):
        raise InputError(f"{path} is no manifest of {command}", path=path, hint="name another folder")
    if _dumped({**content, _CHECKSUM: hashlib.sha256(_dumped(content)).hexdigest()}) != data:
        raise damaged
    if content.get("format") != wanted_format:
        raise OtherFormatError(
            f"{path} has the format {content.get('format')}; this version reads {wanted_format}",
            path=path,
            hint=rebuild,
        )
    return {**content, _CHECKSUM: checksum}, actual
