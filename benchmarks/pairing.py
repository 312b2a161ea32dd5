"""Two ways of doing the same work, measured in turn in processes of their own, and their ratio."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

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


def precisions() -> list[str]:
    """What is worth measuring here: emulated bfloat16 says nothing about a processor that has it."""
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return ["fp32", "bf16"]
    say("bf16 left out: this processor has no bf16 instructions")
    return ["fp32"]


def say(text: str) -> None:
    """Progress, beside the results."""
    print(text, file=sys.stderr, flush=True)


def add_restart(parser: argparse.ArgumentParser) -> None:
    """The option of every benchmark that takes minutes."""
    parser.add_argument(
        "--continue",
        dest="continues",
        action="store_true",
        help="keep what the results file already holds, and measure only the rest",
    )


class Results:
    """benchmarks/results/NAME.json and .md, complete after each pairing, so that a break loses one."""

    def __init__(self, name: str, *, continues: bool = False) -> None:
        self._path = RESULTS / f"{name}.json"
        self._pairings: list[Pairing] = []
        if continues and self._path.is_file():
            held = json.loads(self._path.read_text(encoding="utf-8"))
            self._pairings = [Pairing(**one) for one in held]
            say(f"{len(held)} lines are in {self._path} already")

    def has(self, name: str, precision: str, threads: int) -> bool:
        """Whether that was measured before the break."""
        return any((p.name, p.precision, p.threads) == (name, precision, threads) for p in self._pairings)

    def add(self, *pairings: Pairing) -> None:
        """Print each and write all."""
        for p in pairings:
            title = f"{p.name} ({p.precision}, {p.threads} threads)"
            figures = f"{p.ours:>12,.1f}{p.peer:>12,.1f}  {p.unit:<10}{p.ratio:>6.2f}×  {p.spread:>5.0%}"
            print(f"{title:<56}{figures}", flush=True)
        self._pairings += pairings
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps([asdict(pairing) for pairing in self._pairings], indent=2)
        self._path.write_text(text + "\n", encoding="utf-8")
        self._path.with_suffix(".md").write_text(markdown(self._pairings), encoding="utf-8")


def markdown(pairings: list[Pairing]) -> str:
    """The table as docs/performance.md shows it."""
    lines = [
        "| | precision, threads | ours | peer | unit | ratio | spread, repeats |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {p.name} | {p.precision}, {p.threads} | {p.ours:,.1f} | {p.peer:,.1f} | {p.unit} | "
        f"{p.ratio:.2f} × | {p.spread:.0%}, {p.repeats} |"
        for p in pairings
    ]
    return "\n".join(lines) + "\n"
