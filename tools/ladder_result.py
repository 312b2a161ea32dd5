"""What a cell of the ladder came to: the JSON that is kept in the repository, one file a cell and budget."""

import json
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ladder_plan import Plan

from electra_cli.pipeline_runs import last_record

ROOT = Path(__file__).resolve().parent.parent
Content = Mapping[str, Any]


def budget_in_words(budget: float) -> str:
    """`7e13`, `1.4e13`."""
    return f"{budget:.3g}".replace("e+", "e")


def result_path(folder: Path, name: str, budget: float, full_budget: float) -> Path:
    """Of a cell; a budget that is not the ladder's own is part of the name."""
    suffix = "" if budget == full_budget else f"-{budget_in_words(budget)}"
    return folder / f"{name}{suffix}.json"


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def facts_of(plan: Plan, run: Path, *, budget: float, full_budget: float, sha256: str) -> dict[str, Any]:
    """Everything about a cell that is known once its run has ended, well or not."""
    manifest, cell = read_object(run / "manifest.json"), plan.cell
    record = last_record(run, "heldout")
    figures = {
        key: value for key, value in record.items() if key not in ("kind", "clock", "epoch", "samples")
    }
    return {
        "format": 1,
        "cell": cell.name,
        "system": cell.system,
        "seed": cell.seed,
        "state": "finished",
        "budget": budget,
        "full_budget": full_budget,
        "flops": plan.flops,
        "flops_per_token": plan.flops_per_token,
        "tokens_per_step": plan.tokens_per_step,
        "steps": plan.steps,
        "tokens": last_record(run, "train").get("tokens"),
        "settings": list(cell.set),
        "settings_sha256": sha256,
        "vocabulary_sha256": manifest["vocabulary_sha256"],
        "shards_sha256": manifest["shards_sha256"],
        "commit": _commit(),
        "versions": manifest["versions"],
        "threads": manifest["threads"],
        "precision": manifest["precision"],
        "seconds": {"pretrain": round(sum(_seconds_of_processes(run)), 1)},
        "heldout": figures,
        "auxiliary": None,
    }


def _commit() -> str:
    """Of this repository; empty where it is none."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def _seconds_of_processes(run: Path) -> Iterator[float]:
    """The time of each process that worked on a run, to its last line that was kept."""
    last = 0.0
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["kind"] != "train":
            continue
        if record["clock"]["seconds"] < last:
            yield last
        last = record["clock"]["seconds"]
    yield last


def blimp_of(results: Content) -> dict[str, Any]:
    """The overall figures of a results.json of eval-blimp."""
    return {
        **results["overall"],
        "scoring": results["scoring"],
        "limit": results["data"]["limit"],
        "data_sha256": results["data"]["sha256"],
        "phenomena": {name: one["value"] for name, one in results["phenomena"].items()},
    }


def glue_of(results: Content, tasks: Sequence[str], settings: Sequence[str]) -> dict[str, Any]:
    """The runs of a results.json of eval-glue and what they come to; runs that do not count say why."""
    return {name: {"settings": list(settings)} | _task_of(results["tasks"][name]) for name in tasks}


def _task_of(task: Content) -> dict[str, Any]:
    values = [run["value"] for run in task["runs"] if run["status"] == "ok"]
    return {
        "metric": task["metric"],
        "runs": [{key: run[key] for key in ("seed", "value", "status", "reason")} for run in task["runs"]],
        "mean": statistics.fmean(values) if values else None,
        "median": task["median"],
        "min": task["min"],
        "max": task["max"],
        "num_train": task["data"]["num_train"],
        "num_dev": task["data"]["num_dev"],
        "data_sha256": task["data"]["sha256"],
    }
