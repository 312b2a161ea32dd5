"""The example of docs/write-an-objective.md, as far as the page promises things of it."""

import json
import re
from pathlib import Path

import pytest
import torch
from small_batches import losses_of, part_of, random_batch, small_settings, total_loss, vocabulary_facts

from electra_cli.commands._boundary import run as boundary
from electra_cli.errors import ProjectError
from electra_cli.main import app
from electra_cli.objectives import find
from electra_cli.objectives.base import Objective
from electra_cli.optimization.update import NetworkUpdate

ROOT = Path(__file__).parents[2]
USE = "docs/examples/masked_lm.py:MaskedLM"
VOCABULARY = 120


@pytest.fixture
def objective() -> Objective:
    settings = small_settings(objective={"use": USE, "random_fraction": 0.2})
    return find(USE, ROOT)(settings, vocabulary_facts(VOCABULARY))


def test_its_own_key_is_checked():
    settings = small_settings(objective={"use": USE, "random_share": 0.2})
    with pytest.raises(ProjectError, match=r"objective\.random_share"):
        find(USE, ROOT)(settings, vocabulary_facts(VOCABULARY))


def test_a_gradient_reaches_every_exported_tensor(objective):
    total_loss(objective, random_batch(6, 32, VOCABULARY)).backward()
    assert set(objective.exports()) == {"encoder", "generator"}
    for name, parameter in objective.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name


def test_special_tokens_and_padding_are_shown_as_they_are(objective):
    batch = random_batch(50, 32, VOCABULARY)
    shown_BS = objective._shown(batch, objective._choose(batch))
    is_special_BS = (batch.token_ids_BS < 5) | (batch.piece_BS == 0)
    assert torch.equal(shown_BS[is_special_BS], batch.token_ids_BS[is_special_BS])
    assert (shown_BS == 4).any()
    assert ((shown_BS != batch.token_ids_BS) & (shown_BS != 4)).any()


def test_micro_batches_are_the_batch_and_the_same_seed_the_same_loss(objective):
    batch = random_batch(6, 32, VOCABULARY)
    parts = [losses_of(objective, part_of(batch, rows)).sums["mlm"] for rows in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(sum(parts), losses_of(objective, batch).sums["mlm"], rtol=1e-6, atol=0)
    assert torch.equal(total_loss(objective, batch), total_loss(objective, batch))


def test_it_learns_one_batch_by_heart(objective):
    batch = random_batch(4, 32, VOCABULARY, full=True)
    update = NetworkUpdate(objective, objective.updates[0], objective.settings.optimizer)
    for step in range(150):
        update.clear_gradients()
        loss = total_loss(objective, batch)
        loss.backward()
        update.step(5e-3 * (1 - step / 150), loss.detach())
    assert total_loss(objective, batch).item() < 0.05


def test_every_quoted_part_of_the_example_exists():
    page = (ROOT / "docs" / "write-an-objective.md").read_text()
    example = (ROOT / "docs" / "examples" / "masked_lm.py").read_text()
    quoted = [line.split(":")[1].rstrip('"') for line in page.splitlines() if line.startswith("--8<--")]
    assert quoted and all(f"[start:{name}]" in example and f"[end:{name}]" in example for name in quoted)


def write_project(folder: Path) -> None:
    """What docs/write-an-objective.md begins with: text, the file, and the page's own project.toml."""
    words = [f"{a}{b}{c}" for a in "bdgk" for b in "aeiou" for c in "lmnrst"]
    (folder / "corpus").mkdir()
    (folder / "corpus" / "text.txt").write_text(
        "\n\n".join(" ".join(words[(i * j) % 120] for j in range(1, 40)) + "." for i in range(1, 120))
    )
    (folder / "ideas").mkdir()
    (folder / "ideas" / "masked_lm.py").write_bytes((ROOT / "docs/examples/masked_lm.py").read_bytes())
    page = (ROOT / "docs" / "write-an-objective.md").read_text(encoding="utf-8")
    (folder / "project.toml").write_text(re.findall(r"```toml\n(.*?)```", page, re.S)[-1], encoding="utf-8")


def test_the_page_runs_from_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("electra_cli.training.dry_run._ENOUGH_SECONDS", 0.1)
    # The page's sizes are those of a first real try.
    small = (
        "vocab.size=200 rows.sequence_length=32 model.size=toy pretrain.steps=4 pretrain.batch_size=8 "
        "pretrain.log_every=2 pretrain.heldout_every=4 pretrain.save_every=4 corpus.processes=1"
    )
    monkeypatch.setenv("ELECTRA_SET", small)
    for command in ("build-vocab", "shard-corpus", "check", "pretrain", "export --no-check"):
        assert boundary(app, command.split()) == 0, command
    shown = capsys.readouterr().out
    assert "objective" in shown and "keeps its contract on 4 rows" in shown
    run = tmp_path / "runs" / "latest"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [2, 4]
    assert all(set(line["losses"]) == {"mlm"} for line in lines if line["kind"] != "warning")
    for name in ("encoder", "generator"):
        assert (run / "export" / name / "config.json").is_file()


def test_a_check_refuses_an_objective_that_breaks_its_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(tmp_path)
    file = tmp_path / "ideas" / "masked_lm.py"
    broken = file.read_text().replace(
        '{"mlm": sample.loss_sum}', '{"mlm": sample.loss_sum / len(batch.sample_B)}'
    )
    file.write_text(broken)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("electra_cli.training.dry_run._ENOUGH_SECONDS", 0.1)
    monkeypatch.setenv(
        "ELECTRA_SET",
        "vocab.size=200 rows.sequence_length=32 model.size=toy pretrain.batch_size=8 corpus.processes=1",
    )
    assert boundary(app, ["build-vocab"]) == boundary(app, ["shard-corpus"]) == 0
    assert boundary(app, ["check"]) == 3
    error = capsys.readouterr().err
    assert "micro-batches add up" in error and "sum over rows" in error
