"""`vocab/manifest.json`: what a vocabulary was made of, and how two makings differ."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from electra_cli.data.checked_manifest import read_checked
from electra_cli.data.documents import CorpusFile
from electra_cli.durable import sha256_file, write_json
from electra_cli.errors import InputError
from electra_cli.progress import counted
from electra_cli.settings import ProjectSettings

FORMAT = "electra-vocabulary-1"
REMEMBERED = ".inputs.json"
_MOST_LINES = 3
"""Sizes, times and inodes of the inputs, so that unchanged files are not hashed again."""


def recorded_settings(settings: ProjectSettings) -> dict[str, Any]:
    """The settings that a vocabulary depends on."""
    corpus = settings.corpus
    if settings.vocab.path:
        return {"vocab": settings.vocab.model_dump(mode="json", exclude={"size", "sample_bytes"})}
    return {
        "vocab": settings.vocab.model_dump(mode="json"),
        "corpus": {
            "document": corpus.document,
            "text_column": corpus.text_column,
            "encoding_errors": corpus.encoding_errors,
            "source": [{"name": source.name, "weight": source.weight} for source in corpus.source],
            **({"source_exponent": corpus.source_exponent} if corpus.source_exponent else {}),
        },
    }


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest; `InputError` where there is none of ours, `CorruptError` where it is damaged."""
    return read_checked(
        folder, wanted_format=FORMAT, nothing="there is no vocabulary", command="electra build-vocab"
    )[0]


class Inputs:
    """Path, bytes and sha256 of the files read; one that looks as it did before is not hashed again."""

    def __init__(self, files: tuple[CorpusFile, ...], folder: Path, threads: int = 2) -> None:
        self._files = files
        self._folder = folder
        self._stamps: dict[str, list[Any]] = {}
        remembered = _remembered(folder)
        with ThreadPoolExecutor(threads) as pool:
            hashes = list(pool.map(lambda file: self._hash(file, remembered), files))
        self.facts: list[dict[str, Any]] = [
            {"path": shown(file), "bytes": file.num_bytes, "sha256": sha256, "source": file.source}
            for file, sha256 in zip(files, hashes, strict=True)
        ]

    def _hash(self, file: CorpusFile, remembered: Mapping[str, Any]) -> str:
        if file.is_remote:
            return ""
        name = os.fspath(file.path.absolute()).encode("utf-8", "backslashreplace").decode()
        stamp = self._stamp(file)
        known = remembered.get(name)
        sha256 = str(known[-1]) if isinstance(known, list) and known[:-1] == stamp else sha256_file(file.path)
        self._stamps[name] = [*stamp, sha256]
        return sha256

    def _stamp(self, file: CorpusFile) -> list[int]:
        try:
            status = file.path.stat()
        except OSError as error:
            raise InputError(f"cannot read {file.name}: {error.strerror}", path=file.name) from error
        return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]

    def check_unchanged(self) -> None:
        """`InputError` if a file was changed since it was hashed, so that what was learned is not of it."""
        for file in self._files:
            if file.is_remote:
                continue
            name = os.fspath(file.path.absolute()).encode("utf-8", "backslashreplace").decode()
            if self._stamps[name][:-1] != self._stamp(file):
                raise InputError(
                    f"{file.name} changed while it was being read",
                    path=file.name,
                    hint="run the command again",
                )

    def remember(self) -> None:
        """Keep the hashes for the next time, where they are not yet kept."""
        if _remembered(self._folder) != self._stamps:
            write_json(self._folder / REMEMBERED, self._stamps)


def shown(file: CorpusFile) -> str:
    """A file's name as UTF-8, whatever bytes it has on disk."""
    return file.name.encode("utf-8", "backslashreplace").decode("utf-8")


def _remembered(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / REMEMBERED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def differences(
    there: Mapping[str, Any], settings: Mapping[str, Any], inputs: list[dict[str, Any]]
) -> list[str]:
    """How the vocabulary that lies there differs from the wanted one, each with both values."""
    return [
        *_setting_differences(there.get("settings", {}), settings),
        *input_differences(there.get("inputs", []), inputs),
    ]


def input_differences(
    there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """How the files that something was built from differ from those it would be built from now."""
    old = {entry["path"]: entry for entry in there}
    new = {entry["path"]: entry for entry in wanted}
    added = [f"{p}: not there, {new[p]['bytes']:,} bytes now" for p in new if p not in old]
    gone = [f"{p}: {old[p]['bytes']:,} bytes there, missing now" for p in old if p not in new]
    both = [p for p in new if p in old and new[p] != old[p]]
    changed = [f"{p}: {_brief(old[p], new[p])} there, {_brief(new[p], old[p])} now" for p in both]
    for lines in (added, gone, changed):
        yield from lines[:_MOST_LINES]
        if len(lines) > _MOST_LINES:
            yield f"… and {counted(len(lines) - _MOST_LINES, 'file')} more"
    if old == new and list(old) != list(new):
        yield "the files stand in another order"


def _setting_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for table in sorted({*old, *new}):
        before, after = old.get(table, {}), new.get(table, {})
        for key in sorted({*before, *after}):
            if key in before and key in after and before[key] != after[key]:
                yield f"{table}.{key}: {json.dumps(before[key])} there, {json.dumps(after[key])} now"


def _brief(entry: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    is_moved = entry["source"] != other["source"]
    source = f", source {entry['source']}" if is_moved else ""
    return f"{entry['bytes']:,} bytes, sha256 {str(entry['sha256'])[:16]}…{source}"
