"""Run folders as the pipeline and the status board see them: plain JSON, read without torch."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from electra_cli.errors import InputError
from electra_cli.project import Project
from electra_cli.project_layers import leaves, read_file

_CHECKPOINT = re.compile(r"step-(\d{1,18})")


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run folder says of itself."""

    path: Path
    state: str
    """running, finished, interrupted, preempted, stopped, diverged, failed, or unknown."""
    step: int
    steps: int
    checkpoint_step: int | None
    """Step of the newest checkpoint by name; `None` where there is none."""
    export_step: int | None
    """Step of the exported weights; `None` where there is no export."""
    vocabulary_sha256: str = ""
    shards_sha256: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        """Whether it reached its last step."""
        return self.state == "finished" and self.checkpoint_step is not None

    @property
    def has_export(self) -> bool:
        """Whether an encoder was exported."""
        return self.export_step is not None


def read_json(path: Path) -> dict[str, object]:
    """A JSON object; empty where there is none that can be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def find_runs(runs: Path) -> tuple[RunFacts, ...]:
    """Every run below `runs`, the newest first: their names begin with the time."""
    if not runs.is_dir():
        return ()
    folders = [
        entry
        for entry in runs.iterdir()
        if not entry.is_symlink() and not entry.name.startswith(".") and (entry / "manifest.json").is_file()
    ]
    return tuple(run_facts(folder) for folder in sorted(folders, key=lambda f: f.name, reverse=True))


def run_facts(path: Path) -> RunFacts:
    """Facts of a run, given its folder or one of its checkpoints. InputError where it is neither."""
    folder = path.resolve()
    if _CHECKPOINT.fullmatch(folder.name) and folder.parent.name == "checkpoints":
        folder = folder.parent.parent
    if not (folder / "manifest.json").is_file():
        what = "is no run: it has no manifest.json" if folder.is_dir() else "does not exist"
        raise InputError(f"{path} {what}", path=path, hint="electra runs list shows the runs")
    status, manifest = read_json(folder / "status.json"), read_json(folder / "manifest.json")
    versions = manifest.get("versions")
    has_export = (folder / "export" / "encoder" / "config.json").is_file()
    return RunFacts(
        path=folder,
        state=str(status.get("state", "unknown")),
        step=_whole(status.get("step")),
        steps=_whole(status.get("steps")),
        checkpoint_step=_newest_checkpoint(folder / "checkpoints"),
        export_step=_whole(read_json(folder / "export" / "export.json").get("step")) if has_export else None,
        vocabulary_sha256=str(manifest.get("vocabulary_sha256", "")),
        shards_sha256=str(manifest.get("shards_sha256", "")),
        versions={str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {},
    )


def newest_run(project: Project) -> Path:
    """Folder of the newest run that has a checkpoint."""
    for run in find_runs(project.runs_dir):
        if run.checkpoint_step is not None:
            return run.path
    raise InputError(
        f"there is no trained model in {project.runs_dir}",
        path=project.runs_dir,
        hint="run electra pretrain first",
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _newest_checkpoint(checkpoints: Path) -> int | None:
    if not checkpoints.is_dir():
        return None
    matches = [_CHECKPOINT.fullmatch(entry.name) for entry in checkpoints.iterdir() if entry.is_dir()]
    return max((int(match[1]) for match in matches if match), default=None)


def last_record(run: Path, kind: str) -> dict[str, object]:
    """The last record of one kind in a run's metrics.jsonl; empty where there is none."""
    last: dict[str, object] = {}
    path = run / "metrics.jsonl"
    if not path.is_file():
        return last
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("kind") == kind:
                last = record
    return last


def flat_figures(record: Mapping[str, object]) -> dict[str, object]:
    """The figures of a metrics record by one name each, losses by their term; without kind and clock."""
    figures: dict[str, object] = {}
    for name, value in record.items():
        if name == "losses" and isinstance(value, dict):
            figures |= value
        elif name not in ("kind", "clock") and not isinstance(value, dict):
            figures[name] = value
    return figures


def named_run(runs: Path, name: Path) -> Path:
    """The run that a person names: a folder, or its name below `runs`."""
    for folder in (name, runs / name):
        if (folder / "manifest.json").is_file():
            return folder.resolve()
    raise InputError(f"there is no run {name}", path=name, hint="electra runs list shows the runs")


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side: what differs in the settings, and the last figures of both."""

    settings: Mapping[str, tuple[object, object]]
    figures: Mapping[str, tuple[object, object]]


def compare_runs(first: Path, second: Path) -> Comparison:
    """Settings as each run resolved them; figures of the last measurement on held-out rows."""
    left, right = (_resolved(run) for run in (first, second))
    settings = {
        key: (left.get(key), right.get(key))
        for key in dict.fromkeys([*left, *right])
        if left.get(key) != right.get(key)
    }
    one, other = (flat_figures(last_record(run, "heldout")) for run in (first, second))
    return Comparison(
        settings, {key: (one.get(key), other.get(key)) for key in dict.fromkeys([*one, *other])}
    )


def _resolved(run: Path) -> dict[str, object]:
    layer = read_file(run / "resolved.toml", str(run / "resolved.toml"))
    return {".".join(path): value for path, value in leaves(layer.values)}
