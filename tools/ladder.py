"""Every system at the same counted computation, run in pieces: `make ladder`, or a cell at a time.

Cells and settings are in benchmarks/ladder/, docs/ladder.md describes them. A cell is pre-trained, exported
and judged with the commands that a user types, in the folder ladder/; it leaves one JSON in
benchmarks/ladder/results/, and a cell that has one is done. An interrupted cell goes on where it stopped.
"""

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ladder_plan import Cell, Ladder, Plan, plan_cell, read_ladder, settings_sha256
from ladder_result import ROOT, blimp_of, budget_in_words, facts_of, glue_of, read_object, result_path
from ladder_stages import Commands, Event, StageError, StoppedError

from electra_cli import durable
from electra_cli.data.vocabulary import Vocabulary, load_vocabulary
from electra_cli.errors import ElectraError, ExitCode

DATA = "ELECTRA_TEST_DATA"
FOLDER = ROOT / "benchmarks" / "ladder"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where the cells are run and judged."""

    ladder: Ladder
    project_file: Path
    """Of the folder in which the cells are run."""
    data: Path
    results: Path
    budget: float
    tasks: tuple[str, ...]
    pairs: int
    commands: Commands
    training: dict[str, threading.Lock] = field(default_factory=dict)
    """A cell that others wait for is trained once."""
    runs: dict[str, tuple[Plan, Path]] = field(default_factory=dict)
    """What is trained already."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Of all cells."""
        return load_vocabulary(self.project_file.parent / "vocab")

    def result(self, cell: Cell) -> Path:
        """The JSON of a cell."""
        return result_path(self.results, cell.name, self.budget, self.ladder.budget)

    def sha256(self, cell: Cell) -> str:
        """Of a cell's settings."""
        return settings_sha256(self.ladder, cell, self.project_file, self.budget)

    def is_done(self, cell: Cell) -> bool:
        """Whether the cell's JSON holds all that is asked for. SystemExit where it is of other settings."""
        path = self.result(cell)
        if not path.is_file():
            return False
        content = read_object(path)
        if content["settings_sha256"] != self.sha256(cell):
            raise SystemExit(f"{path} is of other settings of {cell.name}: remove it to run the cell again")
        tasks = (content.get("glue", {}).get(task, {}) for task in self.tasks)
        is_judged = all(task.get("settings") == self.ladder.fine_tuning for task in tasks)
        return content["state"] != "finished" or is_judged

    def prepare(self) -> None:
        """Vocabulary and shards, which all cells share."""
        for command in ("build-vocab", "shard-corpus"):
            self.commands.electra(command, self.data / "corpus-bench", "--project", self.project_file)

    def trained(self, cell: Cell) -> tuple[Plan, Path]:
        """The plan of a cell and its run, which has an export; interrupted runs go on."""
        auxiliary = None
        if cell.auxiliary:
            auxiliary = self.trained(self.ladder.named(cell.auxiliary))[1] / "export" / "generator"
        with self.training.setdefault(cell.name, threading.Lock()):
            if cell.name in self.runs:
                return self.runs[cell.name]
            plan = plan_cell(
                self.ladder,
                cell,
                self.budget,
                project_file=self.project_file,
                corpus=self.data / "corpus-bench",
                vocabulary=self.vocabulary,
                auxiliary=auxiliary,
            )
            say(cell, f"{plan.steps:,} steps of {plan.tokens_per_step:,} tokens, {plan.flops:.3g} FLOPs")
            done = self.commands.electra(
                "pretrain", self.project_file, *plan.flags, hear=lambda event: tell(cell, event)
            )
            run = Path(str(done["run"]))
            if not (run / "export" / "encoder").is_dir():
                self.commands.electra("export", run, "--no-check", "--project", self.project_file)
            self.runs[cell.name] = plan, run
        return plan, run

    def run(self, cell: Cell) -> None:
        """All of a cell, and its JSON; a run that diverges is a finding, too."""
        begin = time.monotonic()
        try:
            plan, run = self.trained(cell)
        except StageError as error:
            if error.exit_code != ExitCode.DIVERGED:
                raise
            durable.write_json(self.result(cell), self._diverged(cell, str(error)))
            say(cell, str(error))
            return
        content = self._facts(plan, run)
        judged = ("--project", self.project_file, "--model", run)
        self.commands.electra(
            "eval-blimp", *judged, "--data", self.data / "blimp", "--limit", str(self.pairs)
        )
        content["blimp"] = blimp_of(read_object(run / "evaluate" / "blimp" / "results.json"))
        content["glue"] = self._fine_tuned(run, judged) if self.tasks else {}
        durable.write_json(self.result(cell), content)
        say(cell, f"BLiMP {100 * content['blimp']['value']:.1f}, {time.monotonic() - begin:,.0f} s")

    def _fine_tuned(self, run: Path, judged: Sequence[str | Path]) -> dict[str, Any]:
        ladder = self.ladder
        names = ("--task", ",".join(self.tasks), "--seeds", str(ladder.seeds), "--limit", str(ladder.limit))
        sets = [word for one in ladder.fine_tuning for word in ("--set", one)]
        self.commands.electra("eval-glue", *judged, "--data", self.data / "glue", *names, *sets, "--offline")
        results = read_object(run / "evaluate" / "glue" / "results.json")
        return glue_of(results, self.tasks, ladder.fine_tuning)

    def _facts(self, plan: Plan, run: Path) -> dict[str, Any]:
        ladder, cell = self.ladder, plan.cell
        content = facts_of(plan, run, budget=self.budget, full_budget=ladder.budget, sha256=self.sha256(cell))
        if cell.auxiliary:
            teacher, teacher_run = self.trained(ladder.named(cell.auxiliary))
            weights = teacher_run / "export" / "generator" / "model.safetensors"
            content["auxiliary"] = {
                "cell": cell.auxiliary,
                "sha256": durable.sha256_file(weights),
                # Not part of this cell's own count.
                "flops": teacher.flops,
            }
        return content

    def _diverged(self, cell: Cell, message: str) -> dict[str, Any]:
        return {
            "format": 1,
            "cell": cell.name,
            "system": cell.system,
            "seed": cell.seed,
            "state": "diverged",
            "message": message,
            "budget": self.budget,
            "full_budget": self.ladder.budget,
            "settings": list(cell.set),
            "settings_sha256": self.sha256(cell),
        }


def say(cell: Cell, text: str) -> None:
    print(f"{cell.name:<28} {text}", flush=True)


def tell(cell: Cell, event: Event) -> None:
    """A line for each measurement on held-out rows."""
    if event.get("kind") == "heldout":
        losses = "  ".join(f"{name} {value:.3f}" for name, value in event["losses"].items())
        auc = event.get("disc_auc")
        say(cell, f"step {event['step']:,}  {losses}" + ("" if auc is None else f"  AUC {auc:.3f}"))


def data_folder() -> Path:
    """The folder of real text and tasks. SystemExit where there is none."""
    named = os.environ.get(DATA, "")
    if not named:
        raise SystemExit(f"{DATA} is not set: it names the folder with corpus-bench/, blimp/ and glue/")
    for name in ("corpus-bench", "blimp", "glue"):
        if not (Path(named) / name).is_dir():
            raise SystemExit(f"{DATA} names {named}, which has no folder {name}/")
    return Path(named).resolve()


def own_project_file(source: Path, work: Path) -> Path:
    """The project file of the work folder. SystemExit where that folder was begun with another one."""
    path = work / "project.toml"
    if path.is_file() and path.read_bytes() != source.read_bytes():
        raise SystemExit(f"{path} differs from {source}: remove {work}/, or name another folder with --work")
    work.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, path)
    return path.resolve()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", default="", help="this cell alone; default: all that have no JSON")
    parser.add_argument("--budget", type=float, default=0.0, help="FLOPs of a cell, in place of the file's")
    parser.add_argument("--tasks", default=None, help="tasks, in place of the file's; empty: none")
    parser.add_argument("--pairs", type=int, default=None, help="minimal pairs a set, in place of the file's")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time, a thread each")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="with project.toml and the file of cells")
    parser.add_argument("--cells", default="cells.toml", help="the file of cells, default: %(default)s")
    parser.add_argument("--work", type=Path, default=ROOT / "ladder", help="where the cells are run")
    return parser.parse_args()


def main() -> int:
    """Run what is missing. 130 where it was stopped: the same command goes on."""
    given = options()
    ladder = read_ladder(given.folder / given.cells)
    tasks = ladder.tasks if given.tasks is None else [one for one in given.tasks.split(",") if one]
    commands = Commands(given.work.resolve())
    bench = Bench(
        ladder=ladder,
        project_file=own_project_file(given.folder / "project.toml", given.work),
        data=data_folder(),
        results=given.folder / ladder.results,
        budget=given.budget or ladder.budget,
        tasks=tuple(tasks),
        pairs=ladder.pairs if given.pairs is None else given.pairs,
        commands=commands,
    )
    wanted = [ladder.named(given.cell)] if given.cell else ladder.cell
    missing = [cell for cell in wanted if not bench.is_done(cell)]
    print(f"{len(missing)} of {len(wanted)} cells at {budget_in_words(bench.budget)} FLOPs each", flush=True)
    if not missing:
        return 0
    commands.handle_signals()
    try:
        bench.prepare()
        with ThreadPoolExecutor(max(1, given.jobs)) as pool:
            list(pool.map(bench.run, missing))
    except StoppedError:
        print("stopped; the same command goes on", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except (StageError, ElectraError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
