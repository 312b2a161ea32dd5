"""What a command line asks of an evaluation beyond the project's settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from electra_cli.errors import BelowThresholdError, UsageError
from electra_cli.evaluation.results import Results, percent


@dataclass(frozen=True, kw_only=True)
class Request:
    """Flags of eval-glue."""

    tasks: tuple[str, ...] = ()
    """Empty: those of the project."""
    seeds: tuple[int, ...] = ()
    """Empty: as many as the project says, from 0."""
    limit: int = 0
    """Examples of each split that are used; 0: all."""
    data: Path | None = None
    out: Path | None = None
    init_from: str = ""
    save_models: bool = False
    submit: bool = False
    predict: Path | None = None
    skip_bad: bool = False
    is_offline: bool = False
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Lowest scores in percent, by name of the result or `glue`."""


def split_names(texts: Sequence[str]) -> tuple[str, ...]:
    """`mnli,rte` and repeated flags as one list of names."""
    return tuple(name for text in texts for name in (part.strip() for part in text.split(",")) if name)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`5`: seeds 0 to 4; `0,3,7` (also `3,`): these; nothing: none."""
    if not text:
        return ()
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise _wrong_seeds(text) from error
    if "," not in text:
        numbers = list(range(numbers[0])) if numbers else []
    if not numbers or min(numbers) < 0 or len(set(numbers)) != len(numbers):
        raise _wrong_seeds(text)
    return tuple(numbers)


def _wrong_seeds(text: str) -> UsageError:
    return UsageError(
        f"--seeds {text}: a number of seeds, or different seeds with commas",
        hint="--seeds 5 runs seeds 0 to 4; --seeds 0,7 runs these two",
    )


def parse_thresholds(texts: Sequence[str]) -> dict[str, float]:
    """`mnli-m=79`, `glue=79.5`: lowest scores in percent, by result."""
    thresholds: dict[str, float] = {}
    for text in split_names(texts):
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number):
            raise UsageError(f"--fail-under {text}: needs NAME=PERCENT", hint="--fail-under mnli-m=79")
        thresholds[name.strip()] = number
    return thresholds


def check_threshold_names(thresholds: Mapping[str, float], results: Sequence[str]) -> None:
    """Raise UsageError for a threshold of something that will not be scored."""
    known = (*results, "glue")
    for name in thresholds:
        if name not in known:
            raise UsageError(f"--fail-under {name}: not scored here", hint="there are: " + ", ".join(known))


def check_thresholds(thresholds: Mapping[str, float], results: Results) -> None:
    """Raise BelowThresholdError naming every score that is too low or missing."""
    scores: dict[str, float | None] = {result.name: result.median for result in results.tasks}
    scores["glue"] = results.glue
    below: list[str] = []
    for name, wanted in thresholds.items():
        value = scores.get(name)
        if value is None or 100 * value < wanted:
            below.append(f"{name} {percent(value)} < {wanted:g}")
    if below:
        limited = " (limited)" if results.is_limited else ""
        is_any_missing = any(scores.get(name) is None for name in thresholds)
        raise BelowThresholdError(
            f"below the threshold{limited}: {', '.join(below)}", hint=_NO_SCORE if is_any_missing else ""
        )


_NO_SCORE = "a dash is a score that no run gave; GLUE needs all eight tasks"
