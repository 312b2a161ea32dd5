"""Every recipe in a toy size: a step of it, and as a long test all stages, with the commands."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli
from small_project import SETS, lines_of, write_corpus, write_tasks

from electra_cli.commands._boundary import run as boundary
from electra_cli.main import app

RECIPES = Path(__file__).resolve().parent.parent / "pipelines"
NAMES = sorted(path.stem for path in RECIPES.glob("*.toml"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus", num_documents=40)


@pytest.fixture(scope="module")
def frozen(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of bert-small with its export, whose generator a recipe with a frozen model reads."""
    folder = tmp_path_factory.mktemp("frozen")
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, corpus, patch)
        electra("pretrain", "-s", "project.recipe=bert-small", "-s", "pretrain.steps=2")
        electra("export", "--no-check", "--out", "auxiliary")
    return folder


def enter(folder: Path, corpus: Path, patch: pytest.MonkeyPatch, *more: str) -> None:
    """Work in a folder, on the small corpus, in toy size."""
    patch.chdir(folder)
    patch.setenv("HF_HUB_OFFLINE", "1")
    patch.setenv("ELECTRA_SET", " ".join((*SETS, f"'corpus.files=[\"{corpus}\"]'", *more)))


def electra(*words: str) -> None:
    assert boundary(app, words) == 0, words


@pytest.fixture
def needed(
    name: str,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Sequence[str]:
    """The recipe's project in a folder of its own. The settings without which it cannot run."""
    enter(tmp_path, corpus, monkeypatch)
    electra("init", "--recipe", name)
    settings = tomli.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
    if "auxiliary" not in settings.get("objective", {}):
        return ()
    folder: Path = request.getfixturevalue("frozen")
    monkeypatch.chdir(tmp_path)
    # A frozen model and the run that uses it have one vocabulary.
    (tmp_path / "vocab").symlink_to(folder / "vocab")
    return (f"objective.auxiliary={folder / 'auxiliary' / 'generator'}",)


def check(lines: list[dict[str, Any]], steps: list[int]) -> None:
    assert [line["step"] for line in lines] == steps
    for line in lines:
        assert line["losses"]
        assert all(math.isfinite(value) for value in line["losses"].values()), line
        assert all(0 < norm < math.inf for norm in line["grad_norm"].values()), line


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_takes_a_step(
    needed: Sequence[str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(tmp_path, corpus, monkeypatch, *needed, "pretrain.steps=1", "pretrain.log_every=1")
    electra("pretrain", "project.toml")
    check(lines_of(tmp_path / "runs" / "latest"), [1])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_leads_through_all_stages(
    needed: Sequence[str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(tmp_path, corpus, monkeypatch, *needed, "pretrain.steps=30", "pretrain.log_every=10")
    write_tasks(tmp_path / "data" / "glue")
    if not needed:
        electra("build-vocab", str(corpus))
    electra("shard-corpus", str(corpus))
    electra("pretrain", "project.toml")
    electra("export")
    electra("eval-glue", "--task", "sst2", "--offline")
    run = tmp_path / "runs" / "latest"
    check(lines_of(run), [10, 20, 30])
    assert (run / "export" / "encoder" / "model.safetensors").is_file()
    results = json.loads((run / "evaluate" / "glue" / "results.json").read_text())
    # Thirty steps of a toy may well answer everything alike, which the results then say.
    assert results["tasks"]["sst2"]["num_runs"] == 1
