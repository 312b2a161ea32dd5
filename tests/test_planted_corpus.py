"""A rule planted in a corpus is found again in the exported folders: no network is mistaken for the other."""

# N sentences, S places, V vocabulary

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from electra_cli.data.shards import build_shards, open_shards
from electra_cli.data.vocabulary import build_vocabulary
from electra_cli.pipeline_export import export_run
from electra_cli.progress import Silent
from electra_cli.project import load_project
from electra_cli.training.pretrain import pretrain

# "A always follows B": a document says one pair again and again. One text, and so one pair, is held out.
PAIRS = (("bo", "ne"), ("da", "ku"), ("fi", "ro"), ("ga", "mu"), ("le", "to"), ("pi", "sa"), ("ki", "lo"),
         ("me", "bu"))  # fmt: skip
REPEATS = 14
# One document is one row of [CLS] + 28 words + [SEP], and two places of padding.
SETS = (
    "corpus.document=line",
    "corpus.processes=1",
    "corpus.drop_duplicates=false",
    "vocab.size=200",
    "rows.sequence_length=32",
    "rows.segment_pairs=false",
    "model.size=toy",
    "model.dropout=0",
    "model.attention_dropout=0",
    "generator.width=32",
    "optimizer.learning_rate=3e-3",
    "schedule.warmup_steps=20",
    "pretrain.steps=900",
    "pretrain.batch_size=16",
    "pretrain.log_every=900",
    "pretrain.heldout_every=900",
    "pretrain.heldout_rows=8",
    "pretrain.save_every=900",
    "pretrain.precision=fp32",
    "pretrain.device=cpu",
)


@dataclass(frozen=True)
class Planted:
    """What was trained, and sentences to ask it about."""

    export: Path
    token_ids_NS: Tensor
    """A sentence a pair, [CLS] and [SEP] around it."""
    mask_id: int


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    root = tmp_path_factory.mktemp("planted")
    chance = random.Random(0)
    sentences = [" ".join(chance.choice(PAIRS) * REPEATS) for _ in range(600)]
    (root / "corpus").mkdir()
    (root / "corpus" / "pairs.txt").write_text("\n".join(sentences) + "\n")
    project = load_project(None, SETS, environ={}, cwd=root)
    vocabulary = build_vocabulary(project, Silent()).vocabulary
    build_shards(project, vocabulary, Silent())
    shards = open_shards(project.shards_dir, vocabulary_sha256=vocabulary.sha256)
    run = pretrain(project, vocabulary, shards, Silent()).folder
    export = export_run(project, run, None, Silent(), self_check=False).folder
    every = [vocabulary.tokenizer.encode(" ".join(pair * REPEATS)).ids for pair in PAIRS]
    unseen = {int(token_id) for shard in shards.heldout for token_id in shard.stream[1:3]}
    token_ids_NS = torch.tensor([ids for ids in every if not unseen & set(ids)])
    assert token_ids_NS.shape == (len(PAIRS) - 1, 2 * REPEATS + 2)
    return Planted(export, token_ids_NS, vocabulary.mask_id)


@pytest.mark.long
def test_case_F03_the_exported_generator_fills_in_the_planted_word(planted: Planted) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForMaskedLM.from_pretrained(planted.export / "generator").eval()
    places = range(1, 2 * REPEATS + 1)
    right = 0
    with torch.inference_mode():
        for place in places:
            masked_NS = planted.token_ids_NS.clone()
            masked_NS[:, place] = planted.mask_id
            logits_NSV = model(masked_NS, attention_mask=torch.ones_like(masked_NS)).logits
            right += int((logits_NSV[:, place].argmax(1) == planted.token_ids_NS[:, place]).sum())
    assert right / (len(places) * len(planted.token_ids_NS)) > 0.95


@pytest.mark.long
def test_case_F03_the_exported_discriminator_finds_the_word_that_breaks_the_rule(planted: Planted) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForPreTraining.from_pretrained(planted.export / "discriminator").eval()
    replaced, original = [], []
    with torch.inference_mode():
        for place in range(1, 2 * REPEATS + 1):
            corrupted_NS = planted.token_ids_NS.clone()
            # The word that another pair has there.
            corrupted_NS[:, place] = planted.token_ids_NS.roll(1, 0)[:, place]
            logits_NS = model(corrupted_NS, attention_mask=torch.ones_like(corrupted_NS)).logits
            is_replaced_NS = corrupted_NS != planted.token_ids_NS
            replaced.append(logits_NS[is_replaced_NS])
            original.append(logits_NS[~is_replaced_NS])
    above = torch.cat(replaced)[:, None] > torch.cat(original)[None, :]
    assert float(above.double().mean()) > 0.9
