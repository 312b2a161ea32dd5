"""Checkpoints: folders of safetensors and JSON with a manifest of hashes. Nothing is ever unpickled.

A checkpoint appears under its name only when it is whole; readers trust its manifest and nothing else.
LATEST.json is a hint for people. A damaged checkpoint is passed over with a warning, never half read.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from electra_cli import durable
from electra_cli.errors import CorruptError, InputError, StorageError
from electra_cli.progress import Progress, Silent
from electra_cli.settings import ProjectSettings

FORMAT = 1
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
MANIFEST = "MANIFEST.json"
_FILES = (MODEL, OPTIMIZER, STATE)
_NAME = re.compile(r"step-(\d{1,18})")


class Record(BaseModel):
    """A JSON document of ours, checked on reading."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class SkippedRecord(Record):
    """Steps that were skipped because something was not finite."""

    total: int = 0
    in_a_row: int = 0
    recent: list[int] = Field(default_factory=list)


class HealthRecord(Record):
    """What the health warnings remember between two lines of the metrics."""

    blind_since: int | None = None
    warned: list[str] = Field(default_factory=list)


class State(Record):
    """state.json: all that survives a restart and is no tensor."""

    format: int = FORMAT
    fingerprint: str
    step: int
    samples: int
    tokens: int
    metrics_bytes: int
    """Length of metrics.jsonl when this was saved; a resume cuts the file to it."""
    is_heldout_due: bool
    """The held-out measurement of this step was broken off; it comes first when the run continues."""
    interval_steps: int
    skipped: SkippedRecord
    health: HealthRecord
    vocabulary_sha256: str
    settings: dict[str, Any]


class FileRecord(Record):
    """One file of a checkpoint."""

    sha256: str
    bytes: int


class ManifestRecord(Record):
    """MANIFEST.json."""

    format: int
    step: int
    files: dict[str, FileRecord]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose hashes were checked."""

    folder: Path
    state: State
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]


class Weights(NamedTuple):
    """What an export, or a run that starts from another, needs of a checkpoint."""

    settings: ProjectSettings
    tensors: dict[str, Tensor]
    step: int


def folder_name(step: int) -> str:
    """`step-00048000`."""
    return f"step-{step:08d}"


def numbered(checkpoints: Path) -> list[tuple[int, Path]]:
    """The checkpoint folders by number, newest first; anything else that lies there is left alone."""
    if not checkpoints.is_dir():
        return []
    found = []
    for entry in checkpoints.iterdir():
        match = _NAME.fullmatch(entry.name)
        if match and entry.is_dir() and not entry.is_symlink():
            found.append((int(match[1]), entry))
    return sorted(found, reverse=True)


def save(
    checkpoints: Path,
    state: State,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    *,
    keep: int,
) -> Path:
    """Write a checkpoint, read it back, point LATEST.json at it, and remove the oldest beyond `keep`.

    Raises StorageError when the disk is full or refuses; what was there before is then untouched.
    """
    folder = checkpoints / folder_name(state.step)
    write(folder, state, model, optimizer)
    verify(folder)
    durable.write_json(checkpoints / "LATEST.json", {"step": state.step, "folder": folder.name})
    prune(checkpoints, keep=keep)
    return folder


def write(folder: Path, state: State, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
    """Write one checkpoint folder, whole under its name or not at all; raises StorageError."""
    with durable.writing_folder(folder, replace=True) as inside:
        _write_tensors(inside / MODEL, model)
        _write_tensors(inside / OPTIMIZER, optimizer)
        durable.write_json(inside / STATE, state.model_dump(mode="json"))
        files = {
            name: FileRecord(sha256=durable.sha256_file(inside / name), bytes=(inside / name).stat().st_size)
            for name in _FILES
        }
        manifest = ManifestRecord(format=FORMAT, step=state.step, files=files)
        durable.write_json(inside / MANIFEST, manifest.model_dump(mode="json"))


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(contiguous, path, metadata={"format": "pt"})
    except SafetensorError as error:
        needed = sum(tensor.nbytes for tensor in contiguous.values())
        raise StorageError(
            f"cannot write {path.parent.name}/{path.name}: {error}",
            path=path,
            hint=f"it needs {needed:,} bytes, {durable.free_bytes(path):,} are free there; "
            "make room, then run the same command",
        ) from error


def prune(checkpoints: Path, *, keep: int) -> None:
    """Remove the oldest checkpoints beyond `keep` whole ones; what is damaged counts for nothing.

    Goes by number, never by time. A damaged folder is removed only when it is older than all that is kept.
    """
    whole = 0
    for _, folder in numbered(checkpoints):
        if whole >= keep:
            with durable.storage_errors(folder):
                shutil.rmtree(folder)
        elif _is_complete(folder):
            whole += 1


def _is_complete(folder: Path) -> bool:
    """Whether the files have the recorded sizes: cheap, while `verify` reads every byte."""
    try:
        manifest = _read_manifest(folder)
    except CorruptError:
        return False
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == one.bytes
        for name, one in manifest.files.items()
    )


def read_record(path: Path, kind: type[Record]) -> Any:
    """A JSON record of ours; CorruptError names the file and what is wrong with it."""
    try:
        return kind.model_validate(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        reason = "it is missing" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        raise CorruptError(f"{path} cannot be read: {reason}", path=path) from error


def _read_manifest(folder: Path) -> ManifestRecord:
    manifest: ManifestRecord = read_record(folder / MANIFEST, ManifestRecord)
    if set(manifest.files) != set(_FILES) or manifest.format != FORMAT:
        raise CorruptError(
            f"{folder / MANIFEST} names format {manifest.format} and {sorted(manifest.files)}, "
            f"expected format {FORMAT} and {sorted(_FILES)}",
            path=folder / MANIFEST,
        )
    return manifest


def verify(folder: Path) -> None:
    """Read every byte; raises CorruptError that names the file, what was expected and what was found."""
    for name, record in _read_manifest(folder).files.items():
        path = folder / name
        if not path.is_file():
            raise CorruptError(f"{path} is missing", path=path)
        size = path.stat().st_size
        if size != record.bytes:
            raise CorruptError(f"{path} has {size:,} bytes, its manifest says {record.bytes:,}", path=path)
        found = durable.sha256_file(path)
        if found != record.sha256:
            raise CorruptError(
                f"{path} is damaged: sha256 {found}, its manifest says {record.sha256}", path=path
            )


def read_state(folder: Path) -> State:
    """state.json of a checkpoint."""
    state: State = read_record(folder / STATE, State)
    return state


def load(folder: Path, *, device: torch.device | str = "cpu") -> Checkpoint:
    """Read a checkpoint that `verify` or `newest_valid` has checked; raises CorruptError."""
    try:
        model = load_file(folder / MODEL, device=str(device))
        optimizer = load_file(folder / OPTIMIZER, device=str(device))
    except SafetensorError as error:
        raise CorruptError(f"{folder} cannot be read: {error}", path=folder) from error
    return Checkpoint(folder, read_state(folder), model, optimizer)


@dataclass(frozen=True)
class Found:
    """The newest valid checkpoint, if any, and what had to be passed over on the way to it."""

    folder: Path | None
    damaged: tuple[CorruptError, ...] = ()


def newest_valid(checkpoints: Path, *, fingerprint: str | None = None) -> Found:
    """The newest checkpoint whose hashes are right and, where it is given, whose fingerprint is this one."""
    damaged = []
    for step, folder in numbered(checkpoints):
        try:
            verify(folder)
            state = read_state(folder)
            if state.step != step or fingerprint not in (None, state.fingerprint):
                raise CorruptError(f"{folder} belongs to another run, or to step {state.step:,}", path=folder)
        except CorruptError as error:
            damaged.append(error)
            continue
        return Found(folder, tuple(damaged))
    return Found(None, tuple(damaged))


def say_damaged(found: Found, progress: Progress) -> None:
    """Name each damaged checkpoint that was passed over, and the one that serves in its place."""
    instead = found.folder.name if found.folder is not None else "nothing: there is no older one"
    for error in found.damaged:
        progress.warning(f"{error.message}; going back to {instead}", code="damaged-checkpoint")


def chosen_checkpoint(path: Path, progress: Progress) -> Path:
    """The checkpoint that `path`, a run or a checkpoint, stands for: the newest valid one of a run.

    Warns of damaged ones that are newer.
    """
    if (path / MANIFEST).is_file():
        verify(path)
        return path
    if not (path / "checkpoints").is_dir():
        raise InputError(f"{path} is no run: it has no checkpoints/", path=path)
    found = newest_valid(path / "checkpoints")
    if found.folder is not None:
        say_damaged(found, progress)
        return found.folder
    if found.damaged:
        raise CorruptError(
            f"{path} has no valid checkpoint: {found.damaged[0].message}",
            path=path,
            hint="the run cannot be read; start it again with --force",
        )
    raise InputError(f"{path} has no checkpoint yet", path=path, hint="continue the run: electra pretrain")


def load_weights(run_or_checkpoint: Path) -> Weights:
    """Settings, weights and step of a checkpoint, or of a run's newest valid one."""
    folder = chosen_checkpoint(run_or_checkpoint, Silent())
    state = read_state(folder)
    try:
        tensors = load_file(folder / MODEL)
        settings = ProjectSettings.model_validate(state.settings)
    except (SafetensorError, ValidationError) as error:
        raise CorruptError(f"{folder} cannot be read: {error}", path=folder) from error
    return Weights(settings, tensors, state.step)
