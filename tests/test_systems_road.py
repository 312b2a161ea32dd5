"""Other systems than ELECTRA from a recipe to a score: 30 steps of a toy size, with the commands."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_project import TOY_ENVIRONMENT, lines_of, write_corpus, write_pairs, write_tasks

from electra_cli.commands._boundary import run as boundary
from electra_cli.main import app


@dataclass(frozen=True)
class Road:
    """What a recipe trains, and what comes out."""

    terms: frozenset[str]
    files: tuple[str, ...]
    """Of the export."""
    is_checked: bool = True
    """Whether the export's self-check runs, in a process of its own."""
    backbone: str = ""
    """In place of the recipe's."""
    left_out: frozenset[str] = frozenset()
    """Networks that no folder can hold."""


ELECTRAS = tuple(f"{name}/model.safetensors" for name in ("encoder", "discriminator", "generator"))
COCO_LM_TERMS = frozenset({"mlm", "copy", "clm", "scl"})
MCL_TERMS = ("mlm", "rtd", "slm", "std", "itd", "re_mlm", "re_rtd", "re_slm", "re_std")
ROADS = {
    "coco-lm-small": Road(COCO_LM_TERMS, ELECTRAS),
    "coco-lm-small on modern": Road(
        COCO_LM_TERMS,
        ("encoder/model.safetensors", "encoder/rtd_head.safetensors", "generator/model.safetensors"),
        backbone="modern",
    ),
    # What it exports is ELECTRA's, which other tests check.
    "mcl-small": Road(frozenset(MCL_TERMS), ELECTRAS, is_checked=False),
    "deberta-v3-xsmall": Road(
        frozenset({"mlm", "rtd"}),
        ("encoder/model.safetensors", "encoder/rtd_head.safetensors"),
        left_out=frozenset({"generator"}),
    ),
}


@pytest.mark.parametrize("name", ROADS)
def test_a_recipe_leads_from_text_to_a_score(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    road, recipe = ROADS[name], name.partition(" ")[0]
    write_corpus(tmp_path / "corpus", num_documents=40)
    write_tasks(tmp_path / "data" / "glue")
    write_pairs(tmp_path / "data" / "blimp")
    for variable, value in TOY_ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    steps = "pretrain.steps=30 pretrain.log_every=10 pretrain.heldout_every=30 pretrain.save_every=30"
    backbone = f"model.backbone={road.backbone}" if road.backbone else ""
    monkeypatch.setenv("ELECTRA_SET", f"{TOY_ENVIRONMENT['ELECTRA_SET']} {steps} {backbone}")
    monkeypatch.chdir(tmp_path)
    for words in (
        ["init", "--recipe", recipe],
        ["pretrain", "project.toml"],
        ["export"] if road.is_checked else ["export", "--no-check"],
        ["eval-glue", "--task", "sst2", "--limit", "16", "--offline"],
        ["eval-blimp"],
    ):
        code = boundary(app, words)
        assert code == 0, capsys.readouterr().err
    run = tmp_path / "runs" / "latest"
    trained = lines_of(run)
    assert [record["step"] for record in trained] == [10, 20, 30]
    for record in trained:
        assert set(record["losses"]) == road.terms
        assert all(math.isfinite(value) for value in record["losses"].values()), record
        assert all(norm > 0 for norm in record["grad_norm"].values())
    # Later a discriminator that calls everything original catches nothing for MCL's generator to restore.
    assert all(value > 0 for value in trained[0]["losses"].values()), trained[0]
    assert all((run / "export" / file).is_file() for file in road.files)
    assert set(json.loads((run / "export" / "export.json").read_text())["left_out"]) == road.left_out
    results = json.loads((run / "evaluate" / "glue" / "results.json").read_text())
    assert len(results["tasks"]["sst2"]["runs"]) == 1
    assert (run / "evaluate" / "blimp" / "results.json").is_file()
