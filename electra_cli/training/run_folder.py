"""The folder of a run: what lies in it, who may write, and which run a command continues.

A run folder appears whole (manifest, settings, empty log) or not at all; its name begins with the time, so
the newest is the last by name. `runs/latest` is a link to it.
"""

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from electra_cli import durable
from electra_cli.errors import CorruptError, InputError
from electra_cli.project import Project, dump_toml
from electra_cli.training.checkpoint import Record, read_record
from electra_cli.training.fingerprint import Identity

RunState = Literal["running", "finished", "interrupted", "preempted", "stopped", "diverged", "failed"]


class Manifest(Record):
    """manifest.json: where a run comes from, fixed when it begins."""

    format: int = 1
    name: str
    created: str
    fingerprint: str
    vocabulary_sha256: str
    shards_sha256: str
    values: dict[str, Any]
    """Every setting by dotted name, and the content hashes."""
    device: str
    precision: Literal["fp32", "bf16", "fp16"]
    threads: int
    cpu_capability: str
    micro_batch_size: int
    parameters: dict[str, int]
    versions: dict[str, str]
    git: str
    """Commit of the project's own repository, `abc1234 (clean)`; empty without one."""

    @property
    def identity(self) -> Identity:
        """What this run is compared by."""
        return Identity(self.values)


class Status(Record):
    """status.json: what a run is doing, or how it ended."""

    state: RunState
    step: int
    steps: int
    pid: int = Field(default_factory=os.getpid)
    host: str = Field(default_factory=socket.gethostname)
    exit_code: int | None = None


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """One folder a checkpoint."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """metrics.jsonl."""
        return self.path / "metrics.jsonl"

    @property
    def log(self) -> Path:
        """log.txt: what the person was told, with the time."""
        return self.path / "log.txt"

    @property
    def save_request(self) -> Path:
        """A person touches this file to get a checkpoint now."""
        return self.path / "SAVE"

    @property
    def stop_request(self) -> Path:
        """A person touches this file to get a checkpoint and an end."""
        return self.path / "STOP"

    @property
    def crash(self) -> Path:
        """What is known of steps that ended a run."""
        return self.path / "crash"

    def manifest(self) -> Manifest:
        """Raises CorruptError where it cannot be read."""
        manifest: Manifest = read_record(self.path / "manifest.json", Manifest)
        return manifest

    def status(self) -> Status | None:
        """`None` where there is no readable status: the checkpoints decide."""
        try:
            status: Status = read_record(self.path / "status.json", Status)
        except CorruptError:
            return None
        return status

    def write_status(self, status: Status) -> None:
        """Replace status.json."""
        durable.write_json(self.path / "status.json", status.model_dump(mode="json"))

    def write_crash(self, step: int, content: Mapping[str, object]) -> Path:
        """crash/step-N.json."""
        path = self.crash / f"step-{step}.json"
        durable.write_json(path, dict(content))
        return path


def all_runs(runs: Path) -> list[RunFolder]:
    """Every run folder below `runs`, newest first by name."""
    if not runs.is_dir():
        return []
    folders = [
        entry
        for entry in runs.iterdir()
        if entry.is_dir() and not entry.is_symlink() and (entry / "manifest.json").is_file()
    ]
    return [RunFolder(entry) for entry in sorted(folders, key=lambda entry: entry.name, reverse=True)]


def create_run(project: Project, manifest: Manifest, runs: Path) -> RunFolder:
    """A new run folder, whole under its name at once, and `runs/latest` pointing at it."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{manifest.name}"
    taken = {entry.name for entry in runs.iterdir()} if runs.is_dir() else set()
    name = next(n for n in _numbered_names(stem) if n not in taken)
    with durable.writing_folder(runs / name) as inside:
        text = dump_toml(project.settings)
        if project.path is not None and project.path.is_file():
            durable.write_bytes(inside / "project.toml", project.path.read_bytes())
        else:
            durable.write_text(inside / "project.toml", text)
        durable.write_text(inside / "resolved.toml", text)
        durable.write_json(inside / "manifest.json", manifest.model_dump(mode="json"))
        (inside / "checkpoints").mkdir()
    durable.link_latest(runs / "latest", name)
    return RunFolder(runs / name)


def _numbered_names(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}-{number}"
        number += 1


def open_run(path: Path) -> RunFolder:
    """The run that `--resume PATH` means: a run folder, or one of its checkpoints."""
    for folder in (path, path.parent.parent):
        if (folder / "manifest.json").is_file() and (folder / "resolved.toml").is_file():
            return RunFolder(folder.resolve())
    raise InputError(
        f"{path} is no run: it has no manifest.json and resolved.toml",
        path=path,
        hint="give a folder below runs/, such as runs/latest",
    )
