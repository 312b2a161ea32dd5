"""Two ways of doing the same work, measured in turn in processes of their own, and their ratio."""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """One line of benchmarks/results/*.json; `ours` and `peer` are medians in `unit`."""

    name: str
    ours: float
    peer: float
    ratio: float
    """How many times better ours is: above 1 is ahead."""
    unit: str
    repeats: int
    spread: float
    """(largest − smallest) / median of ours."""
    precision: str
    threads: int


def in_own_process(script: str, *arguments: str) -> dict[str, float]:
    """Run a benchmark script again in a fresh process; its last line of output is a JSON object."""
    done = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=False, env=os.environ
    )
    if done.returncode != 0:
        raise SystemExit(f"{script} {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def pair(
    name: str,
    ours: list[float],
    peer: list[float],
    *,
    unit: str,
    more_is_better: bool,
    precision: str,
    threads: int,
) -> Pairing:
    """The ratio is the median of the ratios of neighbours, so that a drift of the machine's speed cancels."""
    ratios = [
        mine / other if more_is_better else other / mine for mine, other in zip(ours, peer, strict=True)
    ]
    middle = statistics.median(ours)
    return Pairing(
        name=name,
        ours=middle,
        peer=statistics.median(peer),
        ratio=statistics.median(ratios),
        unit=unit,
        repeats=len(ours),
        spread=(max(ours) - min(ours)) / middle,
        precision=precision,
        threads=threads,
    )


def report(name: str, pairings: list[Pairing]) -> None:
    """Print the table and write benchmarks/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps([asdict(pairing) for pairing in pairings], indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(f"{'':<46}{'ours':>12}{'peer':>12}  {'unit':<10}{'ratio':>7}  {'spread':>6}")
    for p in pairings:
        title = f"{p.name} ({p.precision}, {p.threads} threads)"
        print(f"{title:<46}{p.ours:>12,.1f}{p.peer:>12,.1f}  {p.unit:<10}{p.ratio:>6.2f}×  {p.spread:>6.0%}")
