"""`electra export --soup` on two toy runs with different courses."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_project import write_corpus, write_tasks

from electra_cli.commands._boundary import run as boundary
from electra_cli.errors import InputError, UsageError
from electra_cli.evaluation.request import Request
from electra_cli.main import app
from electra_cli.pipeline import ensure_shards, export_run
from electra_cli.pipeline_soup import export_soup
from electra_cli.progress import Silent
from electra_cli.project import Project, load_project

PROJECT = """
[project]
name = "toy"
[corpus]
processes = 1
[vocab]
size = 320
[rows]
sequence_length = 32
[model]
size = "toy"
[objective]
use = "mcl"
[pretrain]
steps = 2
batch_size = 4
log_every = 1
heldout_every = 2
heldout_rows = 4
device = "cpu"
precision = "fp32"
[schedule]
warmup_steps = 1
[evaluate]
batch_size = 8
learning_rate = 0.005
layer_decay = 1.0
"""
COURSES = {
    "replaced": ("objective.std_weight=0.0", "objective.slm_weight=0.0", "objective.itd_weight=0.0"),
    "swapped": ("objective.rtd_weight=0.0", "objective.mlm_weight=0.0", "objective.itd_weight=0.0"),
    "stranger": ("project.seed=5",),
}


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by name, and the project's folder."""
    from electra_cli.training.pretrain import pretrain

    folder = tmp_path_factory.mktemp("kitchen")
    write_corpus(folder / "corpus", num_documents=40)
    write_tasks(folder / "data" / "glue")
    (folder / "project.toml").write_text(PROJECT)
    runs = {"folder": folder}
    for name, sets in COURSES.items():
        project = project_in(folder, *sets)
        runs[name] = pretrain(project, *ensure_shards(project, Silent()), Silent()).folder
    return runs


def project_in(folder: Path, *sets: str) -> Project:
    return load_project(folder / "project.toml", list(sets), environ={}, cwd=folder)


def encoder_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "encoder" / "model.safetensors")


def test_a_uniform_soup_is_the_mean_of_both_exports(kitchen: dict[str, Path], tmp_path: Path) -> None:
    project = project_in(kitchen["folder"])
    parts = []
    for name in ("replaced", "swapped"):
        export_run(project, kitchen[name], tmp_path / name, Silent(), self_check=False)
        parts.append(encoder_of(tmp_path / name))
    report = export_soup(
        project, [kitchen["replaced"], Path(kitchen["swapped"].name)], None, Silent(), self_check=False
    )
    assert report.export.folder == kitchen["folder"] / "soup"
    assert report.runs == (kitchen["replaced"].name, kitchen["swapped"].name)
    soup = encoder_of(report.export.folder)
    for name, value in soup.items():
        torch.testing.assert_close(value, (parts[0][name] + parts[1][name]) / 2, rtol=1e-6, atol=1e-8)
    assert any(not torch.equal(parts[0][name], parts[1][name]) for name in soup)
    card = (report.export.folder / "encoder" / "README.md").read_text()
    assert f"a soup of {report.runs[0]}, {report.runs[1]}" in card


def test_a_greedy_soup_scores_each_run_and_each_addition(kitchen: dict[str, Path], tmp_path: Path) -> None:
    report = export_soup(
        project_in(kitchen["folder"]),
        [kitchen["replaced"], kitchen["swapped"]],
        tmp_path / "out",
        Silent(),
        # A correlation has a value even for a network that learnt nothing.
        greedy=Request(tasks=("stsb",), seeds=(0,), limit=16),
        self_check=False,
    )
    assert report.choice is not None and report.choice.score is not None
    alone = [score for score in report.choice.alone if score is not None]
    assert len(report.choice.alone) == 2 and report.choice.score >= max(alone)
    assert report.runs[0] == [kitchen["replaced"], kitchen["swapped"]][report.choice.taken[0]].name


def test_a_soup_of_strangers_is_refused_with_both_seeds(kitchen: dict[str, Path], tmp_path: Path) -> None:
    runs = [kitchen["replaced"], kitchen["stranger"]]
    with pytest.raises(InputError) as caught:
        export_soup(project_in(kitchen["folder"]), runs, tmp_path / "out", Silent())
    assert "project.seed = 0 in" in caught.value.message and ", 5 in" in caught.value.message
    assert not (tmp_path / "out").exists()


def test_one_run_is_no_soup_and_one_task_judges(kitchen: dict[str, Path], tmp_path: Path) -> None:
    project, run = project_in(kitchen["folder"]), kitchen["replaced"]
    with pytest.raises(UsageError, match="a soup of 1 runs"):
        export_soup(project, [run], tmp_path / "out", Silent())
    with pytest.raises(UsageError, match="judged by one task"):
        export_soup(project, [run, kitchen["swapped"]], tmp_path / "out", Silent(), greedy=Request())


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["a", "b"], 2, "--soup averages"),
        (["--task", "sst2"], 2, "greedy soup"),
        (["--soup", "runs/nothing", "runs/none"], 4, "there is no run"),
    ],
)
def test_the_command_refuses_what_does_not_go_together(
    words: list[str],
    code: int,
    text: str,
    kitchen: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(kitchen["folder"])
    assert boundary(app, ["export", *words]) == code
    assert text in capsys.readouterr().err


def test_the_command_makes_a_soup(
    kitchen: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(kitchen["folder"])
    words = ["--soup", str(kitchen["replaced"]), str(kitchen["swapped"]), "--no-check", "--out", "broth"]
    assert boundary(app, ["export", *words, "--format", "json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["runs"] == [kitchen["replaced"].name, kitchen["swapped"].name]
    assert (kitchen["folder"] / "broth" / "encoder" / "config.json").is_file()
