"""Shards opened for reading: checked against their manifest, then memory-mapped.

`build_shards` of `shard_build` writes them. Sizes and the manifest are checked at every start, the sha256 of
a shard once per unchanged file.
"""

# T tokens

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from electra_cli.data.checked_manifest import NAME
from electra_cli.data.shard_build import ShardReport, build_shards
from electra_cli.data.shard_files import Tokens, map_stream
from electra_cli.data.shard_folder import VERIFIED, is_shard_name
from electra_cli.data.shard_manifest import read_manifest
from electra_cli.durable import sha256_file, write_json
from electra_cli.errors import CorruptError, InputError, StorageError

__all__ = ["Shard", "ShardReport", "ShardSet", "build_shards", "open_shards"]

_REBUILD = "restore the file, or build it again: electra shard-corpus --force"


@dataclass(frozen=True)
class Shard:
    """One file of shards/."""

    path: Path
    split: Literal["train", "heldout"]
    source: str
    num_parts: int
    stream: Tokens
    """The flat token stream `[CLS] … [SEP] [CLS] …`, memory-mapped, uint16 or uint32."""


@dataclass(frozen=True)
class ShardSet:
    """All shards of a corpus."""

    folder: Path
    manifest: Mapping[str, Any]
    manifest_sha256: str
    """Names the shards: the manifest holds the sha256 of each."""
    train: tuple[Shard, ...]
    heldout: tuple[Shard, ...]
    num_content_tokens: int
    """Tokens without [CLS] and [SEP], held-out ones included."""


def open_shards(folder: Path, *, vocabulary_sha256: str, verify: bool = False) -> ShardSet:
    """Open the shards of a folder; `verify` hashes every file, however well it is known.

    `InputError`: there are none, or they were cut with another vocabulary. `CorruptError`: a file is missing,
    cut short or changed; it is named with what was expected and what was found.
    """
    manifest, manifest_sha256 = read_manifest(folder)
    if manifest["vocab_sha256"] != vocabulary_sha256:
        raise InputError(
            f"the shards in {folder} were cut with another vocabulary: sha256 {manifest['vocab_sha256']}; "
            f"the vocabulary here has {vocabulary_sha256}",
            path=folder,
            hint="put that vocabulary back, or cut the text again: electra shard-corpus --force",
        )
    _check_sizes(folder, manifest)
    _check_hashes(folder, manifest, verify)
    shards = [
        Shard(
            path=folder / facts["file"],
            split=facts["split"],
            source=facts["source"],
            num_parts=facts["num_parts"],
            stream=map_stream(folder / facts["file"], manifest["dtype"]),
        )
        for facts in manifest["shards"]
    ]
    return ShardSet(
        folder=folder,
        manifest=manifest,
        manifest_sha256=manifest_sha256,
        train=tuple(shard for shard in shards if shard.split == "train"),
        heldout=tuple(shard for shard in shards if shard.split == "heldout"),
        num_content_tokens=manifest["num_content_tokens"],
    )


def _check_sizes(folder: Path, manifest: Mapping[str, Any]) -> None:
    for facts in manifest["shards"]:
        if not is_shard_name(facts["file"]):
            raise CorruptError(
                f"{folder / NAME} names {facts['file']!r}, which is no shard",
                path=folder / NAME,
                hint=_REBUILD,
            )
        path = folder / facts["file"]
        actual = f"{path.stat().st_size:,} bytes" if path.is_file() else "no such file"
        if actual != f"{facts['bytes']:,} bytes":
            raise CorruptError(
                f"{path} is damaged: expected {facts['bytes']:,} bytes, found {actual}",
                path=path,
                hint=_REBUILD,
            )


def _check_hashes(folder: Path, manifest: Mapping[str, Any], verify: bool) -> None:
    known = {} if verify else _remembered(folder)
    verified: dict[str, dict[str, object]] = {}
    for facts in manifest["shards"]:
        path = folder / facts["file"]
        state = _state(path)
        if known.get(facts["file"]) != {**state, "sha256": facts["sha256"]}:
            actual = sha256_file(path)
            if actual != facts["sha256"]:
                raise CorruptError(
                    f"{path} is damaged: expected sha256 {facts['sha256']}, found {actual}",
                    path=path,
                    hint=_REBUILD,
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
