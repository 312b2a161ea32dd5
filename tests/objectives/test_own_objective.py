"""The example of docs/add-an-objective.md, as far as the page promises things of it."""

import json
from pathlib import Path

import pytest
import torch
from small_batches import losses_of, part_of, random_batch, small_settings, total_loss, vocabulary_facts

from electra_cli.data.shards import build_shards, open_shards
from electra_cli.data.vocabulary import build_vocabulary
from electra_cli.errors import ProjectError
from electra_cli.objectives import find
from electra_cli.objectives.base import Objective
from electra_cli.optimization.update import NetworkUpdate
from electra_cli.pipeline_export import load_trained
from electra_cli.progress import Silent
from electra_cli.project import load_project
from electra_cli.training.pretrain import pretrain

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
    page = (ROOT / "docs" / "add-an-objective.md").read_text()
    example = (ROOT / "docs" / "examples" / "masked_lm.py").read_text()
    quoted = [line.split(":")[1].rstrip('"') for line in page.splitlines() if line.startswith("--8<--")]
    assert quoted and all(f"[start:{name}]" in example and f"[end:{name}]" in example for name in quoted)


def test_a_project_trains_it_and_loads_it_again(tmp_path):
    words = [f"{a}{b}{c}" for a in "bdgk" for b in "aeiou" for c in "lmnrst"]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text(
        "\n\n".join(" ".join(words[(i * j) % 120] for j in range(1, 40)) + "." for i in range(1, 120))
    )
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "masked_lm.py").write_bytes((ROOT / "docs/examples/masked_lm.py").read_bytes())
    (tmp_path / "project.toml").write_text(
        '[vocab]\nsize = 200\n[rows]\nsequence_length = 32\n[model]\nsize = "toy"\n'
        '[objective]\nuse = "ideas/masked_lm.py:MaskedLM"\nrandom_fraction = 0.2\n'
        "[pretrain]\nsteps = 4\nbatch_size = 8\nlog_every = 2\nheldout_every = 4\nsave_every = 4\n"
    )
    project = load_project(tmp_path / "project.toml", environ={}, cwd=tmp_path)
    vocabulary = build_vocabulary(project, Silent()).vocabulary
    build_shards(project, vocabulary, Silent())
    shards = open_shards(project.shards_dir, vocabulary_sha256=vocabulary.sha256)
    run = pretrain(project, vocabulary, shards, Silent())
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [2, 4]
    assert all(set(line["losses"]) == {"mlm"} for line in lines if line["kind"] != "warning")
    assert set(load_trained(project, run.folder).objective.exports()) == {"encoder", "generator"}
