"""Shards opened for reading: checked against their manifest, then memory-mapped.

`build_shards` of `shard_build` writes them. Sizes and the manifest are checked at every start, the sha256 of
a shard once per unchanged file.
"""

# T tokens

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from electra_cli.data.checked_files import check_files
from electra_cli.data.checked_manifest import NAME
from electra_cli.data.shard_build import ShardReport, build_shards
from electra_cli.data.shard_files import Tokens, map_stream
from electra_cli.data.shard_folder import is_shard_name
from electra_cli.data.shard_manifest import read_manifest
from electra_cli.errors import CorruptError, InputError

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
    for facts in manifest["shards"]:
        if not is_shard_name(facts["file"]):
            raise CorruptError(
                f"{folder / NAME} names {facts['file']!r}, which is no shard",
                path=folder / NAME,
                hint=_REBUILD,
            )
    check_files(folder, manifest["shards"], rebuild=_REBUILD, verify=verify)
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
