"""Compare what two commits compute: `tools/loss_compare A B`, or `make loss-compare A=… B=…`.

A and B are git revisions, or `.` for the files as they lie here. Each trains every objective for a few steps
on the same text, in this one environment, on the CPU in float32; every loss of every step must be the same.
Exit code 0 only if all are. Revisions are unpacked into a temporary folder: the repository is only read.
"""

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = "."

COMMON = (
    "project.seed=1",
    "corpus.processes=1",
    "vocab.size=320",
    "rows.sequence_length=32",
    "model.size=toy",
    "generator.width=16",
    "optimizer.learning_rate=0.002",
    "schedule.warmup_steps=2",
    "pretrain.batch_size=8",
    "pretrain.micro_batch_size=4",
    "pretrain.log_every=1",
    "pretrain.device=cpu",
    "pretrain.precision=fp32",
    "pretrain.sampler=cpu",
)
_DEBERTA = ("model.backbone=deberta", "generator.width=0", "generator.sharing=gradient-disentangled")
SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "electra": ("objective.use=electra",),
    "electra on modern": ("objective.use=electra", "model.backbone=modern"),
    "masked_lm": ("objective.use=masked_lm",),
    "replace_mlm": ("objective.use=replace_mlm",),
    "all-tokens mlm": ("objective.use=replace_mlm", "objective.positions=all"),
    "fast_electra": ("objective.use=fast_electra", "objective.auxiliary=auxiliary/generator"),
    "deberta_v3": ("objective.use=deberta_v3", *_DEBERTA),
    "coco_lm": ("objective.use=coco_lm", "objective.contrast_min_tokens=8", "objective.vector_size=16"),
    "mcl": ("objective.use=mcl",),
}
"""What is trained, as overrides of the defaults."""

Losses = dict[int, dict[str, float | None]]
"""Step to the total loss and every term."""


@dataclass(frozen=True)
class Outcome:
    """What one revision made of one system."""

    losses: Losses
    error: str = ""
    """Why there are none."""


@dataclass(frozen=True)
class Comparison:
    """One system in both revisions."""

    name: str
    num_steps: int
    largest: float
    """Largest absolute difference of any loss; infinite where one has a number and the other none."""
    first_step: int | None
    """Where the two first differ; `None`: nowhere."""
    error: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether both ran and agree to the last bit."""
        return not self.error and self.first_step is None and self.num_steps > 0


def compare(name: str, first: Outcome, second: Outcome) -> Comparison:
    """The differences of two outcomes."""
    if first.error or second.error:
        told = [f"{side}: {one.error}" for side, one in (("A", first), ("B", second)) if one.error]
        return Comparison(name, 0, 0.0, None, "; ".join(told))
    largest, first_step = 0.0, None
    steps = sorted(first.losses.keys() | second.losses.keys())
    for step in steps:
        found = _difference(first.losses.get(step, {}), second.losses.get(step, {}))
        if found and first_step is None:
            first_step = step
        largest = max(largest, found)
    return Comparison(name, len(steps), largest, first_step)


def _difference(first: Mapping[str, float | None], second: Mapping[str, float | None]) -> float:
    if not first or not second:
        return float("inf")
    differences = [0.0]
    for term in first.keys() | second.keys():
        one, other = first.get(term), second.get(term)
        if one is None or other is None:
            differences.append(0.0 if term in first and term in second and one is other else float("inf"))
        else:
            differences.append(abs(one - other))
    return max(differences)


def table(comparisons: Sequence[Comparison]) -> str:
    """One line a system."""
    rows = [("objective", "steps", "largest difference", "first differing step", "result")]
    for one in comparisons:
        step = "-" if one.first_step is None else str(one.first_step)
        result = one.error or ("equal" if one.is_equal else "different")
        rows.append((one.name, str(one.num_steps), f"{one.largest:.3g}", step, result))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    )


def write_text(folder: Path) -> None:
    """Some 400 paragraphs of made-up sentences, always the same."""
    words = random.Random(0)
    syllables = ("ka", "lo", "mi", "ten", "ru", "sa", "vor", "ile")
    lexicon = ["".join(words.choices(syllables, k=words.randint(1, 3))) for _ in range(400)]
    paragraphs = [
        " ".join(words.choices(lexicon, weights=range(400, 0, -1), k=words.randint(10, 60))) + "."
        for _ in range(400)
    ]
    (folder / "corpus").mkdir(parents=True)
    (folder / "corpus" / "text.txt").write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    (folder / "project.toml").write_text('[corpus]\nfiles = ["corpus/"]\n', encoding="utf-8")


def unpack(revision: str, folder: Path) -> Path:
    """The tree of a revision below `folder`; the working tree itself for `.`."""
    if revision == HERE:
        return ROOT
    done = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", f"{revision}^{{tree}}"],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip()
        raise SystemExit(f"{revision} is no revision of {ROOT}: {told}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def electra(tree: Path, place: Path, *words: str) -> str:
    """Run the command of `tree` in `place`; returns what it says where it fails, else nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "electra_cli", *words],
        cwd=place,
        env={
            "OMP_NUM_THREADS": "1",
            **{name: value for name, value in os.environ.items() if not name.startswith("ELECTRA_")},
            "PYTHONPATH": str(tree),
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return f"exit {done.returncode}: {' '.join(said[-2:])}" if done.returncode else ""


def outcome(tree: Path, place: Path, name: str, num_steps: int) -> Outcome:
    """Train one system with the code of `tree`."""
    error = prepare(tree, place) if name == "fast_electra" else ""
    error = error or train(tree, place, SYSTEMS[name], num_steps)
    if error:
        return Outcome({}, error)
    lines = (place / "runs" / "latest" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return Outcome(
        {one["step"]: {"total": one["loss"], **one["losses"]} for one in records if one["kind"] == "train"}
    )


def train(tree: Path, place: Path, system: Sequence[str], num_steps: int) -> str:
    """One run; returns why it failed, or nothing."""
    every = (f"pretrain.{key}={num_steps}" for key in ("steps", "save_every", "heldout_every"))
    sets = [word for setting in (*COMMON, *system, *every) for word in ("-s", setting)]
    return electra(tree, place, "pretrain", "project.toml", *sets)


def prepare(tree: Path, place: Path) -> str:
    """A masked language model for Fast-ELECTRA to draw from; returns why there is none, or nothing."""
    return train(tree, place, SYSTEMS["masked_lm"], 2) or electra(
        tree, place, "export", "--no-check", "--out", "auxiliary"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="loss_compare", description=__doc__.splitlines()[0])
    parser.add_argument("first", metavar="A", help="a git revision, or . for the working tree")
    parser.add_argument("second", metavar="B", help="another one")
    parser.add_argument("--steps", type=int, default=100, help="steps of each run (default 100)")
    parser.add_argument("--only", action="append", choices=list(SYSTEMS), help="one objective; repeatable")
    given = parser.parse_args()
    if given.steps < 1:
        parser.error(f"--steps {given.steps}: at least 1")
    with tempfile.TemporaryDirectory(prefix="electra-loss-compare-") as scratch:
        sides = {"A": given.first, "B": given.second}
        trees = {side: unpack(revision, Path(scratch) / side) for side, revision in sides.items()}
        for side in sides:
            write_text(Path(scratch) / f"run-{side}")
        found = []
        for name in given.only or SYSTEMS:
            print(f"{name} …", file=sys.stderr, flush=True)
            first, second = (outcome(trees[s], Path(scratch) / f"run-{s}", name, given.steps) for s in sides)
            found.append(compare(name, first, second))
    print(f"A {given.first}   B {given.second}")
    print(table(found))
    return 0 if all(one.is_equal for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
