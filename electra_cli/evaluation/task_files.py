"""The files of a task in a folder, by their usual names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from electra_cli.errors import InputError
from electra_cli.evaluation.sentiment import missing_parts
from electra_cli.evaluation.tables import ENDINGS
from electra_cli.evaluation.tasks import Part, Split, Task, plain

_PARQUET_PART = re.compile(r"-\d{5}-of-\d{5}\.parquet")


@dataclass(frozen=True, kw_only=True)
class SplitFiles:
    """The files of a split: of the whole of it, or one of each of its sources."""

    whole: tuple[Path, ...] = ()
    parts: Mapping[Part, Path] = field(default_factory=dict)


def task_folder(task: Task, folder: Path) -> Path | None:
    """The task's folder below `folder`, whatever its case and hyphens; `folder` itself if it is so named.

    The task's own names go before the further ones.
    """
    if not folder.is_dir():
        return None
    for some in ((task.name, task.title), task.folders):
        names = {plain(name) for name in some}
        below = sorted(entry for entry in folder.iterdir() if plain(entry.name) in names and entry.is_dir())
        if below:
            return below[0]
        if plain(folder.resolve().name) in names:
            return folder
    return None


def found_files(task: Task, folder: Path, wanted: Sequence[Split]) -> dict[Split, SplitFiles]:
    """The files of each split. Of two dev splits one may be missing; nothing else may."""
    files = {entry.name: entry for entry in sorted(folder.iterdir()) if entry.is_file()}
    below = _one_folder_down(folder) if any(split.parts for split in wanted) else {}
    anywhere = {path.name: path for path in below.values()} | below | files
    found: dict[Split, SplitFiles] = {}
    for split in wanted:
        whole = _files_of(split.stems, files) or _files_of(_inside(split.stems, task.folders), below)
        parts = {part: paths[0] for part in split.parts if (paths := _files_of(part.stems, anywhere))}
        if whole:
            found[split] = SplitFiles(whole=tuple(whole))
        elif split.parts and len(parts) == len(split.parts):
            found[split] = SplitFiles(parts=parts)
        elif parts:
            raise missing_parts(split, [part for part in split.parts if part not in parts], folder)
    has_dev = any(split.role == "dev" for split in found)
    for split in wanted:
        if split not in found and (split.role != "dev" or not has_dev):
            listed = ", ".join([*files, *below][:12]) or "nothing"
            raise InputError(
                f"{task.title}: no {split.role} file in {folder}; it holds {listed}",
                path=folder,
                hint=f"looked for {' or '.join(split.stems)} with "
                + " ".join(ENDINGS)
                + ", text also as .gz",
            )
    return found


def _one_folder_down(folder: Path) -> dict[str, Path]:
    """Files of the folders inside, by "folder/name"."""
    return {
        f"{inner.name}/{entry.name}": entry
        for inner in sorted(folder.iterdir())
        if inner.is_dir()
        for entry in sorted(inner.iterdir())
        if entry.is_file()
    }


def _inside(stems: Sequence[str], folders: Sequence[str]) -> list[str]:
    return [f"{folder}/{stem}" for folder in folders for stem in stems]


def _files_of(stems: Sequence[str], files: Mapping[str, Path]) -> list[Path]:
    """The files of the first stem that has any: one, or the parts of one."""
    by_name = {name.casefold(): path for name, path in files.items()}
    for stem in stems:
        for ending in ENDINGS:
            for name in (f"{stem}{ending}".casefold(), f"{stem}{ending}.gz".casefold()):
                if name in by_name:
                    return [by_name[name]]
        parts = [
            path
            for name, path in by_name.items()
            if name.startswith(stem.casefold()) and _PARQUET_PART.fullmatch(name[len(stem) :])
        ]
        if parts:
            return sorted(parts)
    return []
