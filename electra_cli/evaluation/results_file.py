"""results.json read back, so that tasks run one after another stand in one file."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from electra_cli import durable
from electra_cli.evaluation.kept import run_score
from electra_cli.evaluation.results import DataFacts, Results, TaskResult
from electra_cli.evaluation.tables import BadRow

JSON_NAME, MARKDOWN_NAME = "results.json", "results.md"


def write_results(folder: Path, results: Results) -> Results:
    """Write results.json and results.md; returns what stands in them.

    Tasks of an earlier results.json stay where model, settings and arithmetic are the same.
    """
    earlier = _earlier_tasks(folder / JSON_NAME, results)
    fresh = {result.name for result in results.tasks}
    results = replace(
        results, tasks=(*(result for result in earlier if result.name not in fresh), *results.tasks)
    )
    durable.write_json(folder / JSON_NAME, results.as_json())
    durable.write_text(folder / MARKDOWN_NAME, results.as_markdown())
    return results


def _earlier_tasks(path: Path, results: Results) -> tuple[TaskResult, ...]:
    try:
        content = json.loads(path.read_bytes())
        wanted = results.as_json()
        same = ("format", "model_sha256", "protocol", "settings", "arithmetic")
        if any(content[name] != wanted[name] for name in same):
            return ()
        return tuple(_task_result(name, entry) for name, entry in content["tasks"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def _task_result(name: str, entry: Mapping[str, object]) -> TaskResult:
    runs, data = entry["runs"], entry["data"]
    if not isinstance(runs, list) or not isinstance(data, dict):
        raise TypeError("not a result")
    return TaskResult(
        name=name,
        metric=str(entry["metric"]),
        runs=tuple(run_score(run) for run in runs),
        data=DataFacts(
            source=data["source"],
            sha256=data["sha256"],
            num_train=data["num_train"],
            num_dev=data["num_dev"],
            limit=data["limit"],
            skipped=data["skipped"],
            remarks=tuple(data["remarks"]),
            bad_rows={
                file: [BadRow(row["line"], row["reason"]) for row in rows]
                for file, rows in data["bad_rows"].items()
            },
        ),
    )
