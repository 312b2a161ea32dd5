"""The command as a person types it: exit codes, screen, JSON."""

import json
from pathlib import Path

import pytest
from evaluation_cases import read_results, write, write_glue, write_model

from electra_cli.commands._boundary import run as run_boundary
from electra_cli.main import app
from electra_cli.settings import BackboneName

FAST = ["-s", "evaluate.learning_rate=0.005", "-s", "evaluate.seeds=1", "-s", "evaluate.batch_size=16"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_glue(tmp_path / "data/glue", 32, 16)
    write_model(tmp_path / "model", num_layers=3)
    monkeypatch.chdir(tmp_path)
    for name in ("ELECTRA_SET", "ELECTRA_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def electra(*arguments: str) -> int:
    return run_boundary(app, ["eval-glue", *arguments])


def test_a_task_is_scored_beside_published_numbers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert electra("--task", "mnli,cola", "--model", "model", *FAST) == 0
    shown = capsys.readouterr().out
    for expected in ("mnli-m", "mnli-mm", "cola", "81.3", "57", "ELECTRA-Small++", "results.json"):
        assert expected in shown
    assert (place / "evaluate/glue/model/results.json").is_file()
    assert (place / "evaluate/glue/model/results.md").is_file()


@pytest.mark.parametrize("backbone", ["deberta", "modern"])
def test_every_backbone_is_fine_tuned(
    place: Path, capsys: pytest.CaptureFixture[str], backbone: BackboneName
) -> None:
    write_model(place / backbone, num_layers=2, backbone=backbone)
    assert electra("--task", "sst2", "--model", backbone, *FAST) == 0
    (run,) = read_results(place / "evaluate/glue" / backbone)["tasks"]["sst2"]["runs"]
    # Eight steps on 32 sentences whose label is one word; a constant answer has half of them right.
    assert run["status"] == "ok" and run["value"] > 0.5, capsys.readouterr().out


def test_json_ends_with_the_results(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert electra("--task", "cola", "--model", "model", "--limit", "8", "--format", "json", *FAST) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["event"] == "result"
    assert last["results"]["limited"] is True
    assert "cola" in last["results"]["tasks"]


def test_case_C14_print_lrs_lists_the_published_table(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert electra("--print-lrs", "--model", "model") == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    factors = {" ".join(row[:-2]): row[-2] for row in shown if len(row) > 2}
    expected = {
        "head": "1.0000",
        "layer 3": "0.8000",
        "layer 2": "0.6400",
        "layer 1": "0.5120",
        "embeddings": "0.4096",
    }
    assert expected.items() <= factors.items()
    assert not (place / "evaluate").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--task", "mnly"], 2, "did you mean mnli"),
        (["--task", "cola", "--seeds", "x"], 2, "a number of seeds"),
        (["--task", "cola", "--fail-under", "sst2=3"], 2, "not scored here"),
        (["--task", "qnli", "--data", "elsewhere"], 4, "QNLI is not on this machine, and the network is off"),
        (["--task", "rte", "--data", "bad"], 4, "2 unusable rows"),
        (["--task", "cola", "--model", "nowhere"], 4, "is not there"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_exit_code(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    text: str,
) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for split in ("train", "dev"):
        write(place / f"bad/RTE/{split}.tsv", "sentence1\tsentence2\tlabel\na\tb\tno\nc\n")
    model = [] if "--model" in arguments else ["--model", "model"]
    assert electra(*arguments, *model, *FAST) == code
    assert text in capsys.readouterr().err


def test_a_wrong_task_is_refused_before_a_model_is_exported(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(*arguments: object) -> None:
        pytest.fail("asked for the model first")

    monkeypatch.setattr("electra_cli.pipeline.evaluation_model", export)
    assert electra("--task", "mnly") == 2
    assert "did you mean mnli" in capsys.readouterr().err


def test_a_score_below_fail_under_exits_9(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert electra("--task", "cola", "--model", "model", "--fail-under", "cola=100.5", *FAST) == 9
    assert "below the threshold" in capsys.readouterr().err


def test_an_own_task_of_the_project_file_is_scored(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{'good' if n % 2 else 'bad'} film,{'up' if n % 2 else 'down'}\n" for n in range(24))
    write(place / "own.csv", "words,verdict\n" + rows)
    write(
        place / "project.toml",
        '[[evaluate.task]]\nname = "mood"\ntrain = "own.csv"\ndev = "own.csv"\ntext = "words"\n'
        'label = "verdict"\nmetric = "macro_f1"\nepochs = 2\n',
    )
    assert electra("--task", "mood", "--model", "model", *FAST) == 0
    assert "macro_f1" in capsys.readouterr().out
    content = json.loads((place / "evaluate/glue/model/results.json").read_text("utf-8"))
    assert content["tasks"]["mood"]["num_runs"] == 1
