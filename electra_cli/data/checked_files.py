"""Files that a manifest lists, each with its size and sha256: checked before anything is read from them.

Sizes are checked at every start, the sha256 once per unchanged file (path, size, inode, times).
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_cli.durable import sha256_file, write_json
from electra_cli.errors import CorruptError, StorageError

VERIFIED = ".verified.json"
"""Remembers which files were found to have which sha256."""


def check_files(folder: Path, files: Sequence[Mapping[str, Any]], *, rebuild: str, verify: bool) -> None:
    """Compare every file with its entry (`file`, `bytes`, `sha256`); `verify` hashes even what is known.

    `CorruptError` names the file, what was expected, what was found, and `rebuild`, which says what to do.
    """
    for facts in files:
        path = folder / facts["file"]
        actual = f"{path.stat().st_size:,} bytes" if path.is_file() else "no such file"
        if actual != f"{facts['bytes']:,} bytes":
            raise CorruptError(
                f"{path} is damaged: expected {facts['bytes']:,} bytes, found {actual}",
                path=path,
                hint=rebuild,
            )
    known = {} if verify else _remembered(folder)
    verified: dict[str, dict[str, object]] = {}
    for facts in files:
        path = folder / facts["file"]
        state = _state(path)
        if known.get(facts["file"]) != {**state, "sha256": facts["sha256"]}:
            actual = sha256_file(path)
            if actual != facts["sha256"]:
                raise CorruptError(
                    f"{path} is damaged: expected sha256 {facts['sha256']}, found {actual}",
                    path=path,
                    hint=rebuild,
                )
        # A file changed within the clock's grain after its hash would look unchanged: trust only older ones.
        if time.time_ns() - max(state["mtime_ns"], state["ctime_ns"]) > 2_000_000_000:
            verified[facts["file"]] = {**state, "sha256": facts["sha256"]}
    if verified and verified != known:
        try:
            write_json(folder / VERIFIED, verified)
        except StorageError:
            # A folder that may only be read is hashed again at the next start.
            return


def _remembered(folder: Path) -> Mapping[str, object]:
    try:
        content = json.loads((folder / VERIFIED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _state(path: Path) -> dict[str, int]:
    status = path.stat()
    return {
        "bytes": status.st_size,
        "inode": status.st_ino,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
    }
