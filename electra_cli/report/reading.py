"""What a run directory tells: settings, metrics, state, scores; read as it stands, however far the run is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from electra_cli.errors import InputError

Record = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Everything a report shows of a run."""

    folder: Path
    settings: str
    """resolved.toml, as it stands."""
    status: Record
    manifest: Record
    train: Sequence[Record]
    heldout: Sequence[Record]
    warnings: Sequence[Record]
    results: Sequence[Record]
    """The results.json of each evaluation."""
    quickstart: Record


def read_run(folder: Path) -> RunRecord:
    """Raises InputError where `folder` is no run directory."""
    metrics = folder / "metrics.jsonl"
    if not metrics.is_file():
        raise InputError(
            f"{folder} holds no metrics.jsonl: it is no run directory",
            path=folder,
            hint="`electra runs list` shows the runs",
        )
    records = _lines(metrics)
    results = sorted((folder / "evaluate").glob("*/results.json"))
    return RunRecord(
        folder=folder,
        settings=_text(folder / "resolved.toml"),
        status=read_object(folder / "status.json"),
        manifest=read_object(folder / "manifest.json"),
        train=[record for record in records if record.get("kind") == "train"],
        heldout=[record for record in records if record.get("kind") == "heldout"],
        warnings=[record for record in records if record.get("kind") == "warning"],
        results=[read_object(path) for path in results],
        quickstart=read_object(folder / "quickstart.json"),
    )


def series(records: Sequence[Record], *path: str) -> list[tuple[float, float]]:
    """(step, value) of a figure, `series(train, "losses", "mlm")`; records without it are left out."""
    points = []
    for record in records:
        value: object = record
        for name in path:
            value = cast(Record, value).get(name) if isinstance(value, Mapping) else None
        step = record.get("step")
        if isinstance(value, int | float) and isinstance(step, int) and not isinstance(value, bool):
            points.append((float(step), float(value)))
    return points


def names_below(records: Sequence[Record], name: str) -> list[str]:
    """The keys that a table such as `losses` has in any record, in order of appearance."""
    found: dict[str, None] = {}
    for record in records:
        table = record.get(name)
        if isinstance(table, Mapping):
            found.update(dict.fromkeys(map(str, table)))
    return list(found)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def read_object(path: Path) -> Record:
    """A JSON object; empty where there is none that can be read."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(_text(path))
    except json.JSONDecodeError:
        # A report of a running or damaged run shows the rest.
        return {}
    return content if isinstance(content, dict) else {}


def _lines(path: Path) -> list[Record]:
    records: list[Record] = []
    for line in _text(path).splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            # The last line of a running run may be half written.
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
