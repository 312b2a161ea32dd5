"""The folder `shards/`: whose it is, what a killed process left in it, and how a build appears in it."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_cli.data.checked_files import VERIFIED
from electra_cli.data.checked_manifest import NAME, write_manifest
from electra_cli.durable import remove_leftovers, write_text
from electra_cli.errors import InputError

WORK = ".work-"
"""Folders of unfinished work begin like this; the rest of the name is a fingerprint of the build."""
CARD = "DATA_CARD.md"
_LOCK = ".lock"
_SHARD = re.compile(r"(shard|heldout)-\d{5,}\.arrow")
_OURS = re.compile(r"\.tmp-.*|" + _SHARD.pattern)


def is_shard_name(name: str) -> bool:
    """Whether a name, such as one in a manifest, is that of a shard: no path, and nothing else."""
    return bool(_SHARD.fullmatch(name))


def _is_ours(name: str) -> bool:
    return name in (NAME, CARD, VERIFIED, _LOCK) or name.startswith(WORK) or bool(_OURS.fullmatch(name))


def refuse_foreign(folder: Path) -> None:
    """`InputError` where the folder holds anything that shard-corpus did not write."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder", path=folder, hint="move it away")
    names = sorted(entry.name for entry in folder.iterdir())
    foreign = [name for name in names if not _is_ours(name)]
    marks = [name for name in names if name in (NAME, _LOCK) or name.startswith(WORK)]
    if foreign or (names and not marks):
        shown = ", ".join((foreign or names)[:5])
        raise InputError(
            f"{folder} holds files that electra shard-corpus did not write: {shown}",
            path=folder,
            hint="move them away; nothing was changed",
        )


def leave_no_empty_folder(folder: Path) -> None:
    """Remove a folder that a refused build has made for its lock alone."""
    if folder.is_dir() and [entry.name for entry in folder.iterdir()] == [_LOCK]:
        shutil.rmtree(folder)


def is_whole(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether every file of a build is there with its size."""
    paths = {folder / shard["file"]: shard["bytes"] for shard in manifest["shards"]}
    return (folder / CARD).is_file() and all(
        path.is_file() and path.stat().st_size == size for path, size in paths.items()
    )


def clear(folder: Path, keep: str = "") -> bool:
    """Remove what killed processes left, but the work folder `keep`; says whether that one is there."""
    remove_leftovers(folder)
    for entry in folder.iterdir():
        if entry.name.startswith(WORK) and entry.name != keep:
            shutil.rmtree(entry)
    if not keep or not (folder / keep).is_dir():
        return False
    remove_leftovers(folder / keep)
    return True


def retire(folder: Path) -> None:
    """End an older build: without its manifest the shards are unfinished work."""
    (folder / NAME).unlink(missing_ok=True)
    (folder / VERIFIED).unlink(missing_ok=True)


def publish(folder: Path, manifest: Mapping[str, Any], card: str) -> None:
    """Make the shards that lie in the folder whole: the manifest comes last, then the work folder goes."""
    written = {shard["file"] for shard in manifest["shards"]}
    for entry in folder.iterdir():
        if _SHARD.fullmatch(entry.name) and entry.name not in written:
            entry.unlink()
    write_text(folder / CARD, card)
    write_manifest(folder, manifest)
    clear(folder)
