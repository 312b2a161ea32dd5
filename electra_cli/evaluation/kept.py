"""Finished (task, seed) pairs on disk, so that a rerun is free and a killed one goes on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from electra_cli import durable
from electra_cli.evaluation.results import RunScore, Status

FORMAT = 1
_STATUSES: tuple[Status, ...] = ("ok", "failed", "degenerate", "undefined")


def fingerprint(facts: Mapping[str, object]) -> str:
    """Hash of everything that a run's outcome follows from."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class KeptRuns:
    """The folder of finished runs; one small file a run, named after task, seed and fingerprint."""

    folder: Path

    def _path(self, task: str, seed: int, key: str) -> Path:
        return self.folder / f"{task}-{seed}-{key[:16]}.json"

    def save(self, task: str, seed: int, key: str, scores: Mapping[str, RunScore]) -> None:
        """Keep a run's scores by dev split."""
        content = {
            "format": FORMAT,
            "key": key,
            "scores": {
                name: asdict(score) | {"metrics": dict(score.metrics)} for name, score in scores.items()
            },
        }
        durable.write_json(self._path(task, seed, key), content)

    def load(self, task: str, seed: int, key: str) -> dict[str, RunScore] | None:
        """The scores of a run, or `None`: never run, or its file is not what we wrote."""
        path = self._path(task, seed, key)
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT or content["key"] != key:
                return None
            return {name: run_score(entry) for name, entry in content["scores"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def run_score(entry: Mapping[str, object]) -> RunScore:
    """A run as JSON holds it; raises ValueError, KeyError or TypeError for anything else."""
    seed, value, status = entry["seed"], entry["value"], entry["status"]
    seconds, metrics = entry["seconds"], entry["metrics"]
    if not (isinstance(seed, int) and (value is None or isinstance(value, float))):
        raise ValueError("not a score")
    if not (isinstance(seconds, float) and isinstance(metrics, dict)):
        raise ValueError("not a score")
    return RunScore(
        seed=seed,
        value=value,
        metrics={str(name): number for name, number in metrics.items()},
        status=_STATUSES[_STATUSES.index(status)],
        reason=str(entry["reason"]),
        seconds=seconds,
    )
