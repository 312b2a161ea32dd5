"""Finished runs to results.json and results.md: which runs count, and what they come to."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from electra_cli.evaluation.published import Published, published
from electra_cli.evaluation.tables import BadRow
from electra_cli.evaluation.tasks import SCORED_IN_GLUE

Status = Literal["ok", "failed", "degenerate", "undefined"]


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """What one seed came to on one dev split."""

    seed: int
    value: float | None
    """Headline metric; a share or a correlation."""
    metrics: Mapping[str, float | None]
    status: Status
    reason: str
    """Why the run does not count; empty for "ok"."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """Where a result's examples came from, and which rows were left out."""

    source: str
    sha256: str
    num_train: int
    num_dev: int
    skipped: Mapping[str, int]
    bad_rows: Mapping[str, Sequence[BadRow]]
    """By file, where `--skip-bad` left rows out."""
    limit: int = 0
    """Examples read of each split by `--limit`; 0: all."""
    remarks: Sequence[str] = ()
    """What a reader of the score must know about the data."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """All runs of one dev split. Statistics are over the runs that are ok, and over nothing else."""

    name: str
    metric: str
    runs: tuple[RunScore, ...]
    data: DataFacts

    @property
    def ok_values(self) -> list[float]:
        """Values that count."""
        return [run.value for run in self.runs if run.status == "ok" and run.value is not None]

    @property
    def median(self) -> float | None:
        """The published statistic."""
        return statistics.median(self.ok_values) if self.ok_values else None

    def as_json(self) -> dict[str, object]:
        """The entry of results.json."""
        values = self.ok_values
        return {
            "metric": self.metric,
            "runs": [
                {
                    "seed": run.seed,
                    "value": run.value,
                    "metrics": dict(run.metrics),
                    "status": run.status,
                    "reason": run.reason,
                    "seconds": run.seconds,
                }
                for run in self.runs
            ],
            "num_ok": len(values),
            "num_runs": len(self.runs),
            "median": self.median,
            "mean": statistics.fmean(values) if values else None,
            "std": statistics.stdev(values) if len(values) > 1 else None,
            "min": min(values) if values else None,
            "max": max(values) if values else None,
            "published": [_published_json(one) for one in published(self.name)],
            "data": {
                "source": self.data.source,
                "sha256": self.data.sha256,
                "num_train": self.data.num_train,
                "num_dev": self.data.num_dev,
                "limit": self.data.limit,
                "skipped": dict(self.data.skipped),
                "remarks": list(self.data.remarks),
                "bad_rows": {
                    file: [{"line": row.line, "reason": row.reason} for row in rows]
                    for file, rows in self.data.bad_rows.items()
                },
            },
        }


def _published_json(one: Published) -> dict[str, object]:
    return {"system": one.system, "value": one.value, "statistic": one.statistic, "source": one.source}


@dataclass(frozen=True, kw_only=True)
class Results:
    """One model on some tasks."""

    model: str
    model_sha256: str
    checkpoint_step: int | None
    protocol: str
    settings: Mapping[str, object]
    """What identifies the runs beside model and data."""
    arithmetic: str
    tasks: tuple[TaskResult, ...] = field(default=())

    @property
    def is_limited(self) -> bool:
        """Whether any task was run on a part of its data."""
        return any(result.data.limit for result in self.tasks)

    @property
    def glue(self) -> float | None:
        """Mean of the medians of the eight tasks (MNLI matched), only when all eight have one."""
        medians = {result.name: result.median for result in self.tasks}
        values = [medians.get(name) for name in SCORED_IN_GLUE]
        present = [value for value in values if value is not None]
        return statistics.fmean(present) if len(present) == len(values) else None

    def as_json(self) -> dict[str, object]:
        """The content of results.json."""
        sources = sorted({result.data.source for result in self.tasks})
        hashes = sorted({result.data.sha256 for result in self.tasks})
        return {
            "format": 1,
            "model": self.model,
            "model_sha256": self.model_sha256,
            "checkpoint_step": self.checkpoint_step,
            "protocol": self.protocol,
            "settings": dict(self.settings),
            "arithmetic": self.arithmetic,
            "data": {"source": ", ".join(sources), "split": "dev", "sha256": "+".join(hashes)},
            "limited": self.is_limited,
            "tasks": {result.name: result.as_json() for result in self.tasks},
            "glue": self.glue,
        }

    def as_markdown(self) -> str:
        """The content of results.md."""
        step = "" if self.checkpoint_step is None else f", step {self.checkpoint_step:,}"
        lines = [f"# {self.model}{step}", ""]
        if self.is_limited:
            lines += ["**Limited**: tasks so marked were run on a part of their data.", ""]
        lines += [
            "| task | metric | median | mean | std | min | max | runs |",
            "|---|---|---|---|---|---|---|---|",
            *(_row(result) for result in self.tasks),
        ]
        if self.glue is not None:
            limited = " (limited)" if self.is_limited else ""
            lines += ["", f"GLUE, mean of eight medians: **{percent(self.glue)}**{limited}"]
        faults = [
            f"- {result.name}, seed {run.seed}: {run.status}, {run.reason}"
            for result in self.tasks
            for run in result.runs
            if run.status != "ok"
        ]
        if faults:
            lines += ["", "Runs that are not in these statistics:", "", *faults]
        remarks = dict.fromkeys(remark for result in self.tasks for remark in result.data.remarks)
        if remarks:
            lines += ["", "Of the data:", "", *(f"- {remark}" for remark in remarks)]
        lines += _published_lines(self.tasks)
        lines += ["", f"Protocol {self.protocol}; dev sets; {self.arithmetic}."]
        return "\n".join(lines) + "\n"


def percent(value: float | None) -> str:
    """A share × 100 with one decimal; a dash for none."""
    return "–" if value is None else f"{100 * value:.1f}"


def _row(result: TaskResult) -> str:
    entry = result.as_json()
    figures = [entry[name] for name in ("median", "mean", "std", "min", "max")]
    assert all(figure is None or isinstance(figure, float) for figure in figures)
    shown = [percent(figure) if isinstance(figure, float) else "–" for figure in figures]
    limited = f" (limited to {result.data.limit:,})" if result.data.limit else ""
    cells = [result.name, result.metric, shown[0] + limited, *shown[1:]]
    return "| " + " | ".join([*cells, f"{entry['num_ok']}/{entry['num_runs']}"]) + " |"


def _published_lines(results: Sequence[TaskResult]) -> list[str]:
    rows = [
        f"| {result.name} | {one.system} | {percent(one.value)} | {one.statistic} | {one.source} |"
        for result in results
        for one in published(result.name)
    ]
    if not rows:
        return []
    head = ["", "Published scores:", "", "| task | system | score | statistic | source |"]
    return [*head, "|---|---|---|---|---|", *rows]
