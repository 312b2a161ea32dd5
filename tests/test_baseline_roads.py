"""A BERT and a Fast-ELECTRA of it, from text to a score, each stage as the command line runs it."""

import json
from pathlib import Path

import pytest
from small_project import SETS, lines_of, write_corpus, write_tasks

from electra_cli.commands import _boundary
from electra_cli.main import app

MORE = ("pretrain.steps=30", "pretrain.log_every=10", "pretrain.save_every=30", "pretrain.heldout_every=30")


def test_from_text_to_a_score_with_a_frozen_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "corpus")
    write_tasks(tmp_path / "data" / "glue")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELECTRA_SET", " ".join((*SETS, *MORE)))

    def electra(*arguments: str) -> int:
        return _boundary.run(app, arguments)

    bert = ("-s", "project.recipe=bert-small", "-s", "project.name=auxiliary")
    fast = ("-s", "project.recipe=fast-electra-small", "-s", "objective.auxiliary=auxiliary/generator")
    latest = tmp_path / "runs" / "latest"

    assert electra("pretrain", *bert) == 0
    assert [set(line["losses"]) for line in lines_of(latest)] == [{"mlm"}] * 3
    assert electra("export", "--out", "auxiliary") == 0
    assert electra("eval-glue", "--task", "sst2", *bert) == 0

    # Nothing is trained while the auxiliary model is missing, or is not one.
    assert electra("pretrain", "-s", "project.recipe=fast-electra-small") == 3
    assert electra("pretrain", *fast[:2], "-s", "objective.auxiliary=auxiliary/nothing") == 4
    assert electra("cache-samples", *bert) == 3

    assert electra("cache-samples", *fast) == 0
    assert electra("pretrain", *fast, "-s", "objective.samples=samples", "-s", "pretrain.steps=31") == 4
    assert electra("pretrain", *fast, "-s", "objective.samples=samples") == 0
    lines = lines_of(latest)
    assert [set(line["losses"]) for line in lines] == [{"rtd"}] * 3
    assert all(0 < line["grad_norm"]["discriminator"] < float("inf") for line in lines)
    assert electra("export", "--no-check") == 0
    assert sorted(path.name for path in (latest / "export").iterdir() if path.is_dir()) == [
        "discriminator",
        "encoder",
    ]
    assert electra("eval-glue", "--task", "sst2", *fast) == 0
    results = json.loads((latest / "evaluate" / "glue" / "results.json").read_text())
    # Thirty steps of a toy may well answer everything alike, which the results then say.
    assert results["tasks"]["sst2"]["num_runs"] == 1
