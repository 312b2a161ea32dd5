"""From text to an exported encoder through the pipeline's own functions, on a toy run."""

import json
import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from electra_cli.commands._boundary import run as boundary
from electra_cli.errors import InputError, StorageError
from electra_cli.main import app
from electra_cli.pipeline import ensure_shards, evaluation_model, export_run, load_trained
from electra_cli.pipeline_check import check_project
from electra_cli.pipeline_status import Condition, next_command, stage_states
from electra_cli.progress import Progress, Silent
from electra_cli.project import Project, load_project
from electra_cli.report.page import write_report

PROJECT = """
[project]
name = "toy"
language = ["en", "de"]
[vocab]
size = 200
[rows]
sequence_length = 32
[model]
size = "toy"
[pretrain]
steps = 3
batch_size = 4
log_every = 1
heldout_every = 3
heldout_rows = 4
save_every = 2
device = "cpu"
precision = "fp32"
[schedule]
warmup_steps = 1
"""


@pytest.fixture(autouse=True)
def short_rehearsals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra_cli.training.dry_run._ENOUGH_SECONDS", 0.1)


class Heard(Silent):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.codes: list[str] = []
        self.warnings: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def warning(self, text: str, *, code: str = "") -> None:
        self.codes.append(code)
        self.warnings.append(text)


def train(project: Project, progress: Progress) -> Path:
    from electra_cli.training.pretrain import pretrain

    vocabulary, shards = ensure_shards(project, progress)
    return pretrain(project, vocabulary, shards, progress).folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Path, Heard]:
    folder = tmp_path_factory.mktemp("toy")
    words = random.Random(0)
    syllables = ("ka", "lo", "mi", "ten", "ru", "sa")
    lines = (
        " ".join("".join(words.choices(syllables, k=words.randint(1, 3))) for _ in range(12)) + "."
        for _ in range(300)
    )
    (folder / "corpus").mkdir()
    (folder / "corpus" / "a.txt").write_text("\n\n".join(lines))
    (folder / "project.toml").write_text(PROJECT)
    project = load_project(None, ["corpus.processes=1"], environ={}, cwd=folder)
    heard = Heard()
    return project, train(project, heard), heard


def test_what_is_missing_is_announced_and_built(finished: tuple[Project, Path, Heard]) -> None:
    project, run, heard = finished
    told = "\n".join(heard.messages)
    assert told.index("vocab/ is missing") < told.index("shards/ is missing") < told.index("model  ")
    assert heard.codes.count("built-with-other-settings") == 0
    states = stage_states(project)
    assert [state.condition for state in states[:3]] == [Condition.CURRENT] * 3
    assert run.name in states[2].detail
    assert next_command(states) in ("electra export", "electra eval-glue")


def test_other_settings_are_told_and_the_files_used(finished: tuple[Project, Path, Heard]) -> None:
    project, _, _ = finished
    other = load_project(None, ["vocab.size=210"], environ={}, cwd=project.root)
    heard = Heard()
    vocabulary, _ = ensure_shards(other, heard)
    assert vocabulary.size == 200
    assert "built-with-other-settings" in heard.codes


def test_the_newest_finished_run_is_exported_on_the_fly(finished: tuple[Project, Path, Heard]) -> None:
    project, run, _ = finished
    heard = Heard()
    # The self-check of the export has tests of its own and takes long.
    report = export_run(project, None, None, heard, self_check=False)
    assert report.folder == run / "export"
    encoder = evaluation_model(project, None, heard)
    assert encoder == run / "export" / "encoder"
    assert heard.messages == []
    card = (encoder / "README.md").read_text()
    assert "pretrain.steps" in card
    assert '- "de"' in card
    assert read(run / "export" / "export.json")["step"] == 3


def test_a_checkpoint_is_exported_with_its_own_step(
    finished: tuple[Project, Path, Heard], tmp_path: Path
) -> None:
    project, run, _ = finished
    out = tmp_path / "out"
    export_run(project, run / "checkpoints" / "step-00000002", out, Silent(), self_check=False)
    assert read(out / "export.json")["step"] == 2


def test_a_damaged_newest_checkpoint_is_named_with_the_one_that_serves(
    finished: tuple[Project, Path, Heard], tmp_path: Path
) -> None:
    project, run, _ = finished
    copied = tmp_path / "damaged"
    shutil.copytree(run, copied)
    weights = copied / "checkpoints" / "step-00000003" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    heard = Heard()
    out = tmp_path / "out"
    export_run(project, copied, out, heard, self_check=False)
    assert read(out / "export.json")["step"] == 2
    (warning,) = heard.warnings
    assert "step-00000003" in warning and "going back to step-00000002" in warning
    assert "damaged-checkpoint" in heard.codes


def test_a_home_folder_of_nobody_is_a_folder_like_any_other(
    finished: tuple[Project, Path, Heard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, run, _ = finished
    monkeypatch.chdir(tmp_path)
    export_run(project, run, Path("~nobody-of-that-name/x"), Silent(), self_check=False)
    assert (tmp_path / "~nobody-of-that-name" / "x" / "encoder" / "config.json").is_file()


def test_trained_networks_come_back_as_they_were(finished: tuple[Project, Path, Heard]) -> None:
    project, run, _ = finished
    first, second = (load_trained(project, run) for _ in range(2))
    assert first.step == 3
    assert first.tokens > 0
    assert not first.objective.training
    for (name, left), right in zip(
        first.objective.state_dict().items(), second.objective.state_dict().values(), strict=True
    ):
        assert left.equal(right), name


def test_pitfall_K3_another_vocabulary_is_refused(
    finished: tuple[Project, Path, Heard], tmp_path: Path
) -> None:
    from electra_cli.pipeline import ensure_vocabulary

    project, run, _ = finished
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("quite other words stand here\n\n" * 50)
    other = load_project(None, ["vocab.size=100"], environ={}, cwd=tmp_path)
    ensure_vocabulary(other, Silent())
    with pytest.raises(InputError, match="was trained with the vocabulary"):
        export_run(other, run, tmp_path / "out", Silent(), self_check=False)
    assert not (tmp_path / "out").exists()
    assert project.vocab_dir != other.vocab_dir


def test_pitfall_K6_a_check_tells_tokens_and_epochs_without_training(
    finished: tuple[Project, Path, Heard],
) -> None:
    project, _, _ = finished
    # The memory of checked hashes may come with any command, once the files are two seconds old.
    before = sorted({path.name for path in project.root.rglob("*")} - {".verified.json"})
    longer = load_project(None, ["pretrain.steps=1000000"], environ={}, cwd=project.root)
    heard = Heard()
    report = check_project(longer, heard)
    assert report.error is None
    assert [finding.name for finding in report.findings] == [
        "project",
        "vocabulary",
        "data",
        "model",
        "objective",
        "memory",
        "time",
        "disk",
        "smoke",
    ]
    assert all(finding.is_good for finding in report.findings)
    assert re.search(r"[\d,]+ tokens, ≈[\d,.]+ epochs", report.findings[2].text)
    assert report.findings[-1].text.endswith("losses identical")
    assert "epochs" in heard.codes
    assert sorted({path.name for path in project.root.rglob("*")} - {".verified.json"}) == before


def test_a_check_without_room_for_checkpoints_fails(
    finished: tuple[Project, Path, Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, _, _ = finished
    monkeypatch.setattr("electra_cli.durable.free_bytes", lambda path: 1000)
    report = check_project(project, Silent())
    assert isinstance(report.error, StorageError)
    assert [finding.name for finding in report.findings if not finding.is_good] == ["disk"]


def test_a_check_of_an_empty_project_names_the_first_command(tmp_path: Path) -> None:
    report = check_project(load_project(None, environ={}, cwd=tmp_path), Silent())
    assert isinstance(report.error, InputError)
    assert [(finding.name, finding.is_good) for finding in report.findings] == [
        ("project", True),
        ("vocabulary", False),
    ]
    assert "electra build-vocab" in report.findings[1].text


def read(path: Path) -> Mapping[str, object]:
    content = json.loads(path.read_text())
    assert isinstance(content, dict)
    return content


def test_minimal_pairs_are_judged_along_the_checkpoints_of_a_run(
    finished: tuple[Project, Path, Heard], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, run, _ = finished
    monkeypatch.chdir(project.root)
    (project.root / "pairs").mkdir()
    (project.root / "pairs" / "order.tsv").write_text(
        "sentence_good\tsentence_bad\tlinguistics_term\n"
        "ka lo mi\tlo ka ka mi\torder\nten ru.\tru ten ten\torder\n"
    )
    assert boundary(app, ["eval-blimp", "--checkpoints", "--data", "pairs", "--format", "json"]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])["results"]
    assert [one["checkpoint_step"] for one in results["checkpoints"]] == [2, 3]
    assert results["overall"] == results["checkpoints"][-1]["overall"]
    assert json.loads((run / "evaluate/blimp/results.json").read_text()) == results
    # The newest checkpoint is what the export holds: nothing is scored twice.
    assert boundary(app, ["eval-blimp", "--data", "pairs", "--model", str(run), "--format", "json"]) == 0
    exported = json.loads(capsys.readouterr().out.splitlines()[-1])["results"]
    assert exported["model_sha256"] == results["model_sha256"] and exported["checkpoints"] == []
    page = write_report(run).read_text()
    assert "Minimal pairs" in page and "order" in page
