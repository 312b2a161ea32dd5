"""`make ladder`: equal counted operations, a cell through all its processes, tables that equal the JSONs."""

import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from small_project import write_corpus, write_pairs, write_tasks

from electra_cli.data.vocabulary import Vocabulary, load_vocabulary
from electra_cli.project import load_project

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks" / "ladder"
STOPPED = 130

PROJECT = """
[vocab]
size = 320
[corpus]
processes = 1
[rows]
sequence_length = 32
segment_pairs = false
[model]
backbone = "modern"
size = "toy"
layer_norm_eps = 1e-5
[optimizer]
learning_rate = 3e-3
[pretrain]
batch_size = 8
heldout_rows = 8
precision = "fp32"
compile = "off"
[evaluate]
batch_size = 8
learning_rate = 5e-3
"""
CELLS = """
budget = 1e10
warmup_fraction = 0.1
tasks = ["sst2"]
seeds = 2
fine_tuning = ["evaluate.protocol=electra-mean"]
limit = 24
pairs = 4
[[cell]]
name = "electra-0"
system = "ELECTRA"
[[cell]]
name = "fast-0"
system = "Fast-ELECTRA"
auxiliary = "electra-0"
set = ["objective.use=fast_electra"]
"""


@pytest.fixture(scope="module")
def tools() -> Iterator[None]:
    """The folder of the tools importable, as it is for a tool that runs."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def plan(tools: None) -> ModuleType:
    return importlib.import_module("ladder_plan")


@pytest.fixture(scope="module")
def ladder(tools: None) -> ModuleType:
    return importlib.import_module("ladder")


@pytest.fixture(scope="module")
def table(tools: None) -> ModuleType:
    return importlib.import_module("ladder_table")


class Bench:
    """A small ladder of its own with text that we wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder / "bench", folder / "data"
        self.folder.mkdir()
        (self.folder / "project.toml").write_text(PROJECT)
        (self.folder / "cells.toml").write_text(CELLS)
        write_corpus(self.data / "corpus-bench", num_documents=40)
        write_tasks(self.data / "glue", num_train=24)
        write_pairs(self.data / "blimp", num_pairs=6)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        given = {name: value for name, value in os.environ.items() if not name.startswith("ELECTRA_")}
        return subprocess.Popen(
            [sys.executable, "tools/ladder.py", "--folder", self.folder, "--work", self.work, *words],
            cwd=ROOT,
            env=given | {"ELECTRA_TEST_DATA": str(self.data)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def work(self) -> Path:
        return self.folder.parent / "work"

    def run(self, *words: str, check: int = 0, **environment: str) -> str:
        process = self.start(*words, **environment)
        try:
            out, err = process.communicate(timeout=900)
        finally:
            # Where the time ran out it ends, and its commands with it.
            process.terminate()
        assert process.returncode == check, out + err
        return out + err


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("ladder"))


def wait_for_checkpoint(process: subprocess.Popen[str], work: Path) -> None:
    while not list(work.glob("runs/*/checkpoints/step-*/MANIFEST.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def runs_of(bench: Bench) -> list[Path]:
    return sorted(path for path in (bench.work / "runs").iterdir() if not path.is_symlink())


@pytest.mark.long
def test_a_cell_is_stopped_and_goes_on_through_all_its_stages(bench: Bench) -> None:
    process = bench.start("--cell", "electra-0")
    wait_for_checkpoint(process, bench.work)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=600)
    assert process.returncode == STOPPED, out + err
    assert "the same command goes on" in err
    assert not list(bench.folder.glob("results/*.json"))
    (run,) = runs_of(bench)
    assert json.loads((run / "status.json").read_text())["state"] == "preempted"

    bench.run("--cell", "electra-0")
    assert runs_of(bench) == [run]
    cell = json.loads((bench.folder / "results" / "electra-0.json").read_text())
    per_step = cell["flops_per_token"] * cell["tokens_per_step"]
    assert cell["tokens_per_step"] == 8 * 32
    assert cell["flops"] == per_step * cell["steps"]
    assert abs(cell["flops"] - cell["budget"]) <= per_step / 2
    assert cell["heldout"]["step"] == cell["steps"] and cell["heldout"]["losses"]["rtd"] > 0
    assert json.loads((run / "status.json").read_text())["step"] == cell["steps"]
    assert cell["blimp"]["num_pairs"] == 8 and 0 <= cell["blimp"]["low"] <= cell["blimp"]["value"]
    assert [one["seed"] for one in cell["glue"]["sst2"]["runs"]] == [0, 1]
    assert cell["glue"]["sst2"]["settings"] == ["evaluate.protocol=electra-mean"]
    assert cell["threads"] == 1 and cell["seconds"]["pretrain"] > 0 and cell["auxiliary"] is None
    # Nothing of where the text lies is in what is committed.
    assert str(bench.data) not in json.dumps(cell)

    assert "0 of 1 cells" in bench.run("--cell", "electra-0")


@pytest.mark.long
def test_a_cell_with_a_frozen_model_takes_the_other_cells_generator(bench: Bench) -> None:
    bench.run("--cell", "fast-0")
    teacher, _ = runs_of(bench)
    cell = json.loads((bench.folder / "results" / "fast-0.json").read_text())
    weights = teacher / "export" / "generator" / "model.safetensors"
    assert cell["auxiliary"]["cell"] == "electra-0"
    assert cell["auxiliary"]["sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    # At the same budget, and not part of this cell's own count.
    for flops in (cell["flops"], cell["auxiliary"]["flops"]):
        assert abs(flops / cell["budget"] - 1) < 0.02


def test_a_result_of_other_settings_is_refused(bench: Bench) -> None:
    path = bench.folder / "results" / "fast-0.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"settings_sha256": "another", "state": "finished", "glue": {}}))
    said = bench.run("--cell", "fast-0", check=1)
    path.unlink()
    assert "remove it to run the cell again" in said


def test_what_is_missing_is_named(
    ladder: ModuleType, plan: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELECTRA_TEST_DATA", raising=False)
    with pytest.raises(SystemExit, match="ELECTRA_TEST_DATA is not set"):
        ladder.data_folder()
    monkeypatch.setenv("ELECTRA_TEST_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=f"names {tmp_path}, which has no folder corpus-bench/"):
        ladder.data_folder()
    with pytest.raises(SystemExit, match="there is no cell electra-9; there are electra-0, mlm-0"):
        plan.read_ladder(FOLDER / "cells.toml").named("electra-9")
    (tmp_path / "project.toml").write_text("[project]")
    with pytest.raises(SystemExit, match="differs from"):
        ladder.own_project_file(FOLDER / "project.toml", tmp_path)


def test_steps_cost_the_budget_within_half_a_step(plan: ModuleType) -> None:
    assert plan.steps_for(7e13, 6_900_000.0, 8192) == round(7e13 / (6.9e6 * 8192)) == 1238
    assert plan.steps_for(1.0, 6_900_000.0, 8192) == 1


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory, electra) -> Vocabulary:
    folder = tmp_path_factory.mktemp("vocabulary")
    write_corpus(folder / "corpus")
    electra("build-vocab", "-s", "vocab.size=320", cwd=folder)
    return load_vocabulary(folder / "vocab")


def test_every_cell_of_the_repository_can_be_planned_at_one_cost(
    plan: ModuleType, vocabulary: Vocabulary
) -> None:
    """But for those with a frozen model, whose sizes its export tells."""
    ladder = plan.read_ladder(FOLDER / "cells.toml")
    assert len({cell.system for cell in ladder.cell}) == 16
    for cell in ladder.cell:
        if cell.auxiliary:
            load_project(FOLDER / "project.toml", [*cell.set, "objective.auxiliary=there"], environ={})
            continue
        planned = plan.plan_cell(
            ladder,
            cell,
            ladder.budget,
            project_file=FOLDER / "project.toml",
            corpus=Path("corpus"),
            vocabulary=vocabulary,
            auxiliary=None,
        )
        assert abs(planned.flops / ladder.budget - 1) < 0.005, cell.name
        settings = load_project(FOLDER / "project.toml", planned.sets, environ={}).settings
        assert settings.pretrain.steps == planned.steps and settings.project.seed == cell.seed
        assert 0 < settings.schedule.warmup_steps < planned.steps / 5


def result(system: str, seed: int, value: float, **changes: object) -> dict[str, object]:
    """A JSON of a cell, written by hand."""
    runs = [{"seed": n, "value": value + n / 100, "status": "ok", "reason": ""} for n in (0, 1)]
    fine_tuned = {"settings": [], "runs": runs}
    fine_tuned |= {"mean": value + 0.005, "min": value, "max": value + 0.01}
    return {
        "cell": f"{system}-{seed}",
        "system": system,
        "seed": seed,
        "state": "finished",
        "budget": 7e13,
        "full_budget": 7e13,
        "steps": 1238,
        "tokens": 10_000_000,
        "vocabulary_sha256": "v",
        "shards_sha256": "s",
        "heldout": {"losses": {"mlm": 4.25, "rtd": 0.4}, "disc_auc": 0.7416},
        "blimp": {"value": value, "low": value - 0.01, "high": value + 0.01, "limit": 0},
        "glue": {"sst2": fine_tuned},
    } | changes


def test_the_table_tells_means_and_spreads(plan: ModuleType, table: ModuleType) -> None:
    ladder = plan.read_ladder(FOLDER / "cells.toml")
    lost = {
        "sst2": {"mean": 0.5, "min": 0.5, "max": 0.5, "runs": [{"status": "ok"}, {"status": "degenerate"}]}
    }
    text = table.tables(
        ladder,
        [
            result("MLM (BERT)", 0, 0.62, budget=7e12, glue=lost),
            result("ELECTRA", 1, 0.70),
            result("ELECTRA", 0, 0.60),
            {**result("MCL", 0, 0.5), "state": "diverged"},
        ],
    )
    lines = text.splitlines()
    assert lines[0] == "**7e13 counted FLOPs of pre-training a cell**"
    assert lines[2] == (
        "| system | seeds | steps | M tokens | mlm | AUC | BLiMP | sst2 | cola | stsb | mrpc |"
    )
    assert lines[4] == (
        "| ELECTRA | 0, 1 | 1,238 | 10.00 | 4.25 | 0.742 | 65.0 (60.0 … 70.0) | 65.5 (60.5 … 70.5) "
        "| – | – | – |"
    )
    assert lines[5].startswith("| MCL (seed 0 diverged) | 0 | – |")
    assert "**7e12 counted FLOPs of pre-training a cell: a reduced budget, 10% of the ladder's own**" in lines
    assert any("| 62.0 (61.0 … 63.0) | 50.0 (50.0 … 50.0), 1 of 2 runs | – |" in line for line in lines)
    assert text.endswith(table.NOTE)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("shards_sha256", {"shards_sha256": "x"}),
        ("fine-tuning", {"glue": {"cola": {"settings": ["evaluate.protocol=other"]}}}),
    ],
)
def test_cells_that_cannot_be_compared_are_not_put_in_one_table(
    table: ModuleType, tmp_path: Path, name: str, change: dict[str, object]
) -> None:
    changes: list[dict[str, object]] = [{}, change, {**change, "budget": 1e12}]
    for number, one in enumerate(changes):
        (tmp_path / f"{number}.json").write_text(json.dumps(result(f"cell{number}", 0, 0.6, **one)))
    with pytest.raises(SystemExit, match=rf"cell1-0 and cell0-0 cannot be compared: {name} is"):
        table.read_results(tmp_path)
    (tmp_path / "1.json").unlink()
    # Another budget is another table.
    assert len(table.read_results(tmp_path)) == 2


def test_the_pages_hold_the_tables_of_the_committed_results(plan: ModuleType, table: ModuleType) -> None:
    text = table.tables(plan.read_ladder(FOLDER / "cells.toml"), table.read_results(FOLDER / "results"))
    for page in table.PAGES:
        content = page.read_text(encoding="utf-8")
        assert content == table.with_tables(content, text), f"python tools/ladder_table.py writes {page} anew"


def test_every_committed_result_is_of_the_present_cells(plan: ModuleType) -> None:
    ladder = plan.read_ladder(FOLDER / "cells.toml")
    for path in (FOLDER / "results").glob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        cell = ladder.named(content["cell"])
        assert (content["system"], content["seed"]) == (cell.system, cell.seed)
        expected = plan.settings_sha256(ladder, cell, FOLDER / "project.toml", content["budget"])
        assert content["settings_sha256"] == expected, path.name
