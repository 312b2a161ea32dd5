"""Starting from an export or a Hugging Face folder: what is copied, what is fresh, what is refused."""

import pytest
import torch
from toy_run import Notes, make_project, make_settings, make_shards, make_vocabulary

from electra_cli.distributed import Ranks
from electra_cli.errors import CorruptError, InputError
from electra_cli.models.folders import write_folder
from electra_cli.training.start import make_engine, make_job, make_run
from electra_cli.training.warm_start import source_sha256, start_from

EXPORTED = ("encoder", "discriminator", "generator")


def make_objective(folder, vocabulary, **changes):
    settings = make_settings(**changes)
    job = make_job(
        make_project(folder, settings), vocabulary, make_shards(folder, num_parts=5), Notes(), Ranks()
    )
    return make_run(job, make_engine(job)).plan.objective


@pytest.fixture
def export(tmp_path):
    """The three folders of a run with another seed, and their tokenizer."""
    vocabulary = make_vocabulary(tmp_path)
    objective = make_objective(tmp_path, vocabulary, project__seed=7)
    for name, content in objective.exports().items():
        folder = tmp_path / "export" / name
        folder.mkdir(parents=True)
        write_folder(folder, content)
        vocabulary.tokenizer.save(str(folder / "tokenizer.json"))
    return tmp_path / "export", objective, vocabulary


def test_an_export_gives_every_weight(tmp_path, export):
    folder, old, vocabulary = export
    new = make_objective(tmp_path, vocabulary)
    told = start_from(folder, new, vocabulary, 32)
    assert "discriminator with its head" in told and "generator with its head" in told
    assert "optimizer and schedule are fresh" in told
    expected = dict(old.named_parameters())
    for name, value in new.named_parameters():
        assert torch.equal(value, expected[name]), name


def test_a_discriminator_alone_leaves_the_generator_fresh(tmp_path, export):
    folder, old, vocabulary = export
    new = make_objective(tmp_path, vocabulary)
    fresh = {name: value.clone() for name, value in new.generator.head.named_parameters()}
    told = start_from(folder / "discriminator", new, vocabulary, 32)
    assert "generator newly initialised" in told
    assert torch.equal(
        new.discriminator.encoder.embeddings.word_VE, old.discriminator.encoder.embeddings.word_VE
    )
    assert all(torch.equal(value, fresh[name]) for name, value in new.generator.head.named_parameters())


def test_a_folder_without_any_network_of_the_objective_is_refused(tmp_path, export):
    """A masked language model has no place for a discriminator; nothing would be copied."""
    folder, _, vocabulary = export
    new = make_objective(tmp_path, vocabulary, objective__use="masked_lm")
    with pytest.raises(InputError, match="holds a discriminator, this objective trains: generator"):
        start_from(folder / "discriminator", new, vocabulary, 32)


def test_an_encoder_alone_is_continued_as_what_the_objective_trains(tmp_path, export):
    folder, old, vocabulary = export
    told = start_from(folder / "encoder", make_objective(tmp_path, vocabulary), vocabulary, 32)
    assert "discriminator from" in told and "its head newly initialised; generator newly" in told
    new = make_objective(tmp_path, vocabulary, objective__use="masked_lm")
    told = start_from(folder / "encoder", new, vocabulary, 32)
    assert "generator from" in told and "its head newly initialised" in told
    assert "discriminator newly" not in told and "masking" not in told
    assert torch.equal(
        new.generator.encoder.layers[1].qkv.weight, old.discriminator.encoder.layers[1].qkv.weight
    )


def test_bert_is_continued_with_its_own_head_or_becomes_a_discriminator(tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary = make_vocabulary(tmp_path)
    config = transformers.BertConfig(
        vocab_size=512, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(config)
    model.save_pretrained(tmp_path / "bert")
    vocabulary.tokenizer.save(str(tmp_path / "bert" / "tokenizer.json"))
    masked_lm = make_objective(tmp_path, vocabulary, objective__use="masked_lm")
    told = start_from(tmp_path / "bert", masked_lm, vocabulary, 32)
    assert "generator with its head from" in told
    dense = model.cls.predictions.transform.dense.weight
    assert torch.equal(masked_lm.generator.head.dense.weight, dense)
    electra = make_objective(tmp_path, vocabulary)
    told = start_from(tmp_path / "bert", electra, vocabulary, 32)
    assert "discriminator from" in told and "its head newly initialised; generator newly" in told
    words = model.bert.embeddings.word_embeddings.weight
    assert torch.equal(electra.discriminator.encoder.embeddings.word_VE, words)


def test_another_vocabulary_is_refused(tmp_path, export):
    folder, _, vocabulary = export
    new = make_objective(tmp_path, vocabulary)
    with pytest.raises(InputError, match="another vocabulary"):
        start_from(folder, new, make_vocabulary(tmp_path, salt="x"), 32)
    for name in EXPORTED:
        (folder / name / "tokenizer.json").write_text("{")
    with pytest.raises(CorruptError, match=r"tokenizer\.json is no tokenizer"):
        start_from(folder, new, vocabulary, 32)


def test_a_position_table_that_is_too_short_is_refused(tmp_path, export):
    folder, _, vocabulary = export
    new = make_objective(tmp_path, vocabulary, rows__sequence_length=640)
    with pytest.raises(InputError) as raised:
        start_from(folder, new, vocabulary, 640)
    assert "512" in raised.value.message and "640" in raised.value.message


def test_another_size_is_refused_with_both_values(tmp_path, export):
    folder, _, vocabulary = export
    new = make_objective(tmp_path, vocabulary, model__num_layers=3)
    with pytest.raises(InputError, match=r"num_layers = 2 there, 3 here"):
        start_from(folder, new, vocabulary, 32)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(InputError, match="no weights"):
        source_sha256(tmp_path)


def test_the_hash_of_a_source_follows_its_weights(tmp_path, export):
    folder, _, _ = export
    before = source_sha256(folder)
    assert before == source_sha256(folder)
    path = folder / "generator" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert source_sha256(folder) != before


def test_a_head_that_the_system_does_not_have_is_left_out_and_said_to_be_fresh(tmp_path, export):
    folder, _, vocabulary = export
    new = make_objective(tmp_path, vocabulary, objective__use="coco_lm")
    told = start_from(folder, new, vocabulary, 32)
    fresh = "copy_head and corrective_head and vector_head newly initialised"
    assert f"discriminator from {folder / 'discriminator'}, its {fresh}" in told
    assert f"generator with its head from {folder / 'generator'}" in told
