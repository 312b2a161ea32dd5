"""How often the good sentence of a pair scored higher: per set, phenomenon and overall, with intervals."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

INTERVAL = "Wilson score interval, 95 %, over pairs"
CHANCE = 0.5
_Z = 1.959964


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Pairs that were compared."""

    num_pairs: int
    num_right: int
    """The good sentence scored higher."""
    num_ties: int
    """Both scored the same, which counts ½."""

    @property
    def value(self) -> float:
        """Share of right pairs; guessing gives 0.5."""
        return (self.num_right + self.num_ties / 2) / self.num_pairs

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of Wilson 1927, for other pairs of the same kinds; says nothing of other seeds."""
        share, number, squared = self.value, self.num_pairs, _Z**2
        centre = share + squared / (2 * number)
        reach = _Z * math.sqrt(share * (1 - share) / number + squared / (4 * number**2))
        scale = 1 + squared / number
        return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)

    def as_json(self) -> dict[str, object]:
        """The entry of results.json."""
        low, high = self.interval
        return {
            "value": self.value,
            "low": low,
            "high": high,
            "num_pairs": self.num_pairs,
            "num_right": self.num_right,
            "num_ties": self.num_ties,
        }


def together(tallies: Iterable[Tally]) -> Tally:
    """All pairs of several sets as one; each pair counts the same."""
    some = list(tallies)
    return Tally(
        num_pairs=sum(one.num_pairs for one in some),
        num_right=sum(one.num_right for one in some),
        num_ties=sum(one.num_ties for one in some),
    )


@dataclass(frozen=True, kw_only=True)
class SetScore:
    """What one set came to."""

    name: str
    phenomenon: str
    tally: Tally


@dataclass(frozen=True, kw_only=True)
class ModelScores:
    """One model on all sets."""

    model: str
    model_sha256: str
    step: int | None
    """Pre-training step, where it is known."""
    method: str
    sets: tuple[SetScore, ...]

    @property
    def overall(self) -> Tally:
        """Over all pairs."""
        return together(one.tally for one in self.sets)

    @property
    def phenomena(self) -> dict[str, Tally]:
        """By phenomenon, in alphabetical order."""
        names = sorted({one.phenomenon for one in self.sets})
        return {name: together(one.tally for one in self.sets if one.phenomenon == name) for name in names}

    def as_json(self) -> dict[str, object]:
        """The scores as results.json holds them."""
        return {
            "model": self.model,
            "model_sha256": self.model_sha256,
            "checkpoint_step": self.step,
            "scoring": self.method,
            "overall": self.overall.as_json(),
            "phenomena": {name: tally.as_json() for name, tally in self.phenomena.items()},
            "sets": {one.name: {"phenomenon": one.phenomenon} | one.tally.as_json() for one in self.sets},
        }


@dataclass(frozen=True, kw_only=True)
class BlimpResults:
    """Everything that an evaluation says."""

    scores: ModelScores
    """Of the model; along a run, of its newest checkpoint."""
    checkpoints: tuple[ModelScores, ...] = field(default=())
    """By step; empty where only one model was asked for."""
    source: str
    data_sha256: str
    limit: int
    arithmetic: str

    def as_json(self) -> dict[str, object]:
        """The content of results.json."""
        return {
            "format": 1,
            **self.scores.as_json(),
            "chance": CHANCE,
            "interval": INTERVAL,
            "arithmetic": self.arithmetic,
            "data": {"source": self.source, "sha256": self.data_sha256, "limit": self.limit},
            "limited": self.limit > 0,
            "checkpoints": [one.as_json() for one in self.checkpoints],
        }

    def as_markdown(self) -> str:
        """The content of results.md."""
        scores = self.scores
        step = "" if scores.step is None else f", step {scores.step:,}"
        lines = [f"# Minimal pairs: {scores.model}{step}", ""]
        if self.limit:
            lines += [f"**Limited** to the first {self.limit:,} pairs of each set.", ""]
        sets = {one.name: one.tally for one in scores.sets}
        tables: Mapping[str, Mapping[str, Tally]] = {
            "phenomenon": scores.phenomena | {"**overall**": scores.overall},
            "set": sets,
        }
        for title, rows in tables.items():
            lines += [f"| {title} | right | 95 % | pairs | ties |", "|---|---|---|---|---|"]
            lines += [_row(name, tally) for name, tally in rows.items()]
            lines.append("")
        if self.checkpoints:
            lines += ["| step | right | 95 % | pairs | ties |", "|---|---|---|---|---|"]
            lines += [_row(f"{one.step:,}", one.overall) for one in self.checkpoints]
            lines.append("")
        lines.append(f"Score: {scores.method}; {self.arithmetic}. {INTERVAL}; guessing gives 50.0.")
        return "\n".join(lines) + "\n"


def shown(tally: Tally) -> tuple[str, str]:
    """Share and interval in percent: `61.3`, `60.9 … 61.7`."""
    low, high = tally.interval
    return f"{100 * tally.value:.1f}", f"{100 * low:.1f} … {100 * high:.1f}"


def _row(name: str, tally: Tally) -> str:
    return "| " + " | ".join([name, *shown(tally), f"{tally.num_pairs:,}", f"{tally.num_ties:,}"]) + " |"
