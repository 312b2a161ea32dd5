"""Folders: what we write loads in silence, what we read is complete or refused."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from small_networks import BASE, CONFIGS, Networks, make_networks, one_piece_rows
from torch import Tensor

from electra_cli.errors import CorruptError, InputError
from electra_cli.models.encoder import Encoder
from electra_cli.models.folders import (
    copy_body,
    copy_into,
    discriminator_folders,
    generator_folders,
    load_encoder,
    load_pretrained,
    write_folder,
)


def write_export(folder: Path, networks: Networks) -> None:
    folders = discriminator_folders(networks.encoder, networks.discriminator_head)
    folders |= generator_folders(networks.encoder, networks.masked_lm_head)
    for name, content in folders.items():
        write_folder(folder / name, content)


def read_weights(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def export(tmp_path: Path) -> Path:
    write_export(tmp_path / "export", make_networks(CONFIGS["embedding 8 < hidden 32"]))
    return tmp_path / "export"


LOAD_IN_SILENCE = """
import json, sys
from pathlib import Path
import torch, transformers
from test_folders import CONFIGS, make_networks, one_piece_rows, their_logits

CLASSES = {
    "encoder": "AutoModel", "discriminator": "AutoModelForPreTraining", "generator": "AutoModelForMaskedLM"
}
batch = one_piece_rows([9, 4], 9)
found = {}
for folder in sorted(Path(sys.argv[1]).glob("*/*")):
    auto = getattr(transformers, CLASSES[folder.name])
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    facts = {name: sorted(map(str, value)) for name, value in report.items()}
    facts["class"] = type(model).__name__
    tied = model.get_output_embeddings() if folder.name == "generator" else None
    facts["tied"] = tied is None or tied.weight is model.get_input_embeddings().weight
    output = model.eval()(
        input_ids=batch.token_ids_BS, attention_mask=batch.piece_BS.long(), token_type_ids=batch.segment_BS
    )[0]
    networks = make_networks(CONFIGS[folder.parent.name])
    ours = their_logits(networks, folder.name, batch)
    real = batch.piece_BS > 0
    facts["difference"] = ((ours[real] - output[real]).abs().max() / output[real].abs().max()).item()
    found[f"{folder.parent.name}/{folder.name}"] = facts
print(json.dumps(found))
"""


def their_logits(networks: Networks, part: str, batch) -> Tensor:
    hidden_BSD = networks.encoder(*batch.all())
    if part == "encoder":
        return hidden_BSD
    if part == "discriminator":
        return networks.discriminator_head(hidden_BSD)
    return networks.masked_lm_head(hidden_BSD, networks.encoder.embeddings.word_VE)


def test_pitfall_K18_exports_load_in_transformers_without_a_word(tmp_path):
    pytest.importorskip("transformers")
    for name, config in CONFIGS.items():
        write_export(tmp_path / "exports" / name, make_networks(config))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "warning",
    }
    done = subprocess.run(
        [sys.executable, "-c", LOAD_IN_SILENCE, str(tmp_path / "exports")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # The bar of the weights' loading is drawn even with progress bars switched off.
    assert [line for line in done.stderr.splitlines() if line.strip() and "Loading weights" not in line] == []
    found = json.loads(done.stdout)
    assert len(found) == 3 * len(CONFIGS)
    classes = {
        "encoder": "ElectraModel",
        "discriminator": "ElectraForPreTraining",
        "generator": "ElectraForMaskedLM",
    }
    for name, facts in found.items():
        assert facts.pop("class") == classes[name.split("/")[1]]
        assert facts.pop("tied"), name
        assert facts.pop("difference") < 1e-5, name
        assert not any(facts.values()), (name, facts)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_we_write_we_read_bit_for_bit(tmp_path, name):
    networks = make_networks(CONFIGS[name])
    write_export(tmp_path, networks)
    written = networks.encoder.state_dict()
    for part in ("encoder", "discriminator", "generator"):
        loaded = load_encoder(tmp_path / part)
        assert loaded.config["model_type"] == "electra"
        assert replace(loaded.encoder.config, dropout=0, attention_dropout=0) == CONFIGS[name]
        for key, value in loaded.encoder.state_dict().items():
            assert torch.equal(value, written[key]), key
    pretrained = load_pretrained(tmp_path)
    for part, head in (
        (pretrained.discriminator, networks.discriminator_head),
        (pretrained.generator, networks.masked_lm_head),
    ):
        assert part is not None
        assert all(torch.equal(part.body[key], value) for key, value in written.items())
        assert part.head.keys() == head.state_dict().keys()
        assert all(torch.equal(part.head[key], value) for key, value in head.state_dict().items())


def test_the_tied_table_is_stored_once_and_the_file_says_its_format(export):
    with safe_open(export / "generator" / "model.safetensors", "pt") as file:
        names = list(file.keys())
        assert file.metadata() == {"format": "pt"}
    assert "generator_lm_head.weight" not in names
    assert "generator_lm_head.bias" in names
    config = json.loads((export / "generator" / "config.json").read_text())
    assert config["tie_word_embeddings"] is True
    assert config["dtype"] == config["torch_dtype"] == "float32"
    assert config["embedding_size"] == 8


def test_written_bytes_are_a_function_of_the_weights(tmp_path):
    for name in ("a", "b"):
        write_export(tmp_path / name, make_networks(BASE))
    for part in ("encoder", "discriminator", "generator"):
        for file in ("model.safetensors", "config.json"):
            assert (tmp_path / "a" / part / file).read_bytes() == (tmp_path / "b" / part / file).read_bytes()


def test_dropout_can_be_replaced_on_loading(export):
    config = load_encoder(export / "encoder", dropout=0.25).encoder.config
    assert (config.dropout, config.attention_dropout) == (0.25, 0.25)


@pytest.mark.parametrize("part", ["encoder", "discriminator", "generator"])
def test_case_F04_a_renamed_tensor_is_named_and_nothing_is_made_up(export, part):
    tensors = read_weights(export / part)
    name = next(name for name in tensors if name.endswith("layer.1.output.dense.weight"))
    tensors[name.replace("layer.1.output", "layer.1.outptu")] = tensors.pop(name)
    write_weights(export / part, tensors)
    with pytest.raises(InputError, match=r"layer\.1\.output\.dense\.weight is missing.*layer\.1\.outptu"):
        load_encoder(export / part)
    with pytest.raises(InputError, match=r"layer\.1\.output\.dense\.weight is missing"):
        load_pretrained(export / part)


def test_case_F04_half_a_head_is_refused(export):
    tensors = read_weights(export / "discriminator")
    del tensors["discriminator_predictions.dense_prediction.weight"]
    write_weights(export / "discriminator", tensors)
    with pytest.raises(InputError, match=r"discriminator_predictions\.dense_prediction\.weight is missing"):
        load_pretrained(export)


def test_layers_that_the_config_does_not_mention_are_refused(export):
    edit_config(export / "encoder", num_hidden_layers=1)
    with pytest.raises(InputError, match=r"encoder\.layer\.1\..* not described by its config\.json"):
        load_encoder(export / "encoder")


def test_layers_that_the_file_lacks_are_refused(export):
    edit_config(export / "encoder", num_hidden_layers=3)
    with pytest.raises(InputError, match=r"encoder\.layer\.2\..* missing"):
        load_encoder(export / "encoder")


def test_another_shape_than_the_config_says_is_refused(export):
    edit_config(export / "encoder", max_position_embeddings=99)
    with pytest.raises(InputError, match=r"position_embeddings.weight has shape \[40, 8\].*\[99, 8\]"):
        load_encoder(export / "encoder")


@pytest.mark.parametrize("prefix", ["electra.", "discriminator.", "bert."])
def test_names_may_carry_a_prefix(export, prefix):
    tensors = {prefix + name: value for name, value in read_weights(export / "encoder").items()}
    tensors[prefix + "embeddings.position_ids"] = torch.arange(40)
    tensors["classifier.weight"] = torch.zeros(2, 32)
    expected = load_encoder(export / "encoder").encoder.state_dict()
    write_weights(export / "encoder", tensors)
    loaded = load_encoder(export / "encoder")
    assert loaded.left_out == ("classifier.weight",)
    assert all(torch.equal(value, expected[key]) for key, value in loaded.encoder.state_dict().items())


def test_old_names_of_layer_norm_and_half_precision_are_read(export):
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value.half()
        for name, value in read_weights(export / "encoder").items()
    }
    write_weights(export / "encoder", tensors)
    assert {value.dtype for value in load_encoder(export / "encoder").encoder.state_dict().values()} == {
        torch.float32
    }


def shard(folder: Path) -> dict[str, str]:
    tensors = read_weights(folder)
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number in (0, 1):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        part = {name: value for i, (name, value) in enumerate(tensors.items()) if i % 2 == number}
        safetensors.torch.save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )
    return weight_map


def test_a_model_in_several_files_is_read_through_its_index(export):
    expected = load_encoder(export / "discriminator").encoder.state_dict()
    shard(export / "discriminator")
    loaded = load_encoder(export / "discriminator").encoder.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in loaded.items())
    (export / "discriminator" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match=r"model-00002-of-00002\.safetensors, which is missing"):
        load_encoder(export / "discriminator")


@pytest.mark.parametrize("name", ["../encoder/model.safetensors", "/etc/passwd", "weights.bin"])
def test_an_index_cannot_lead_out_of_its_folder(export, name):
    weight_map = shard(export / "discriminator")
    index = export / "discriminator" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {**weight_map, "electra.embeddings.LayerNorm.bias": name}}))
    with pytest.raises(CorruptError, match="no file of this folder"):
        load_encoder(export / "discriminator")


class Canary:
    """Unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "model.safetensors"])
@pytest.mark.parametrize("load", [load_encoder, load_pretrained])
def test_case_G01_pickles_are_refused_and_never_run(export, tmp_path, name, load):
    canary = tmp_path / "executed"
    folder = export / "encoder"
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Canary(canary)))
    with pytest.raises(InputError if name != "model.safetensors" else CorruptError, match=name):
        load(folder)
    with pytest.raises(InputError, match=r"safetensors|is a file"):
        load(folder / name)
    assert not canary.exists()


@pytest.mark.parametrize("keep", [0, 7, 200, -1])
def test_a_cut_file_is_corrupt_whatever_is_left_of_it(export, keep):
    path = export / "encoder" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptError, match=r"model\.safetensors is damaged"):
        load_encoder(export / "encoder")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe{}", b"[" * 100_000])
def test_a_config_that_is_no_json_object_is_corrupt(export, content):
    (export / "encoder" / "config.json").write_bytes(content)
    with pytest.raises(CorruptError, match=r"config\.json"):
        load_encoder(export / "encoder")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"),
        ("model_type", None),
        ("hidden_act", "gelu_new"),
        ("hidden_size", "32"),
        ("hidden_size", True),
        ("num_attention_heads", 5),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 1_000_000),
        ("vocab_size", 10**15),
        ("vocab_size", None),
        ("hidden_dropout_prob", 1.5),
        ("layer_norm_eps", "1e-12"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
    ],
)
def test_a_config_of_another_arithmetic_or_of_nonsense_is_refused(export, key, value):
    edit_config(export / "encoder", **{key: value})
    with pytest.raises(InputError, match=key):
        load_encoder(export / "encoder")


def test_a_folder_without_config_or_weights_is_refused(tmp_path, export):
    with pytest.raises(InputError, match="is no folder"):
        load_encoder(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"holds no model\.safetensors"):
        load_encoder(tmp_path)
    (export / "encoder" / "config.json").unlink()
    with pytest.raises(InputError, match=r"cannot read .*config\.json"):
        load_encoder(export / "encoder")


def test_pitfall_K19_one_part_alone_is_known_as_what_it_is(export):
    alone = load_pretrained(export / "discriminator")
    assert alone.generator is None
    assert alone.discriminator is not None and alone.discriminator.head
    body = load_pretrained(export / "encoder")
    assert body.discriminator is not None
    assert not body.discriminator.head
    generator = load_pretrained(export / "generator")
    assert generator.discriminator is None
    assert generator.generator is not None and generator.generator.head


def test_case_F03_a_discriminator_in_the_generators_place_is_refused(export):
    (export / "generator").rename(export / "old")
    (export / "discriminator").rename(export / "generator")
    with pytest.raises(InputError, match="holds a discriminator, not a generator"):
        load_pretrained(export)


def test_case_F03_a_generator_in_the_discriminators_place_is_refused(export):
    (export / "discriminator").rename(export / "old")
    (export / "generator").rename(export / "discriminator")
    with pytest.raises(InputError, match="holds a generator, not a discriminator"):
        load_pretrained(export)


def test_a_separate_output_table_is_read_when_equal_and_refused_when_not(export):
    tensors = read_weights(export / "generator")
    word = tensors["electra.embeddings.word_embeddings.weight"]
    write_weights(export / "generator", {**tensors, "generator_lm_head.weight": word.clone()})
    assert load_pretrained(export).generator is not None
    write_weights(export / "generator", {**tensors, "generator_lm_head.weight": word + 1})
    with pytest.raises(InputError, match="only tied tables"):
        load_pretrained(export)


def test_pitfall_K2_a_short_position_table_is_refused_with_both_values(export):
    part = load_pretrained(export).discriminator
    assert part is not None
    encoder = Encoder(replace(part.config, max_positions=512))
    with pytest.raises(InputError, match=r"40 positions.*sequence_length = 64"):
        copy_body(encoder, part, sequence_length=64)
    copy_body(encoder, part, sequence_length=32)
    assert torch.equal(encoder.embeddings.positions.weight[:40], part.body["embeddings.positions.weight"])


def test_another_model_is_refused_with_every_difference(export):
    part = load_pretrained(export).discriminator
    assert part is not None
    encoder = Encoder(replace(part.config, vocab_size=50, num_layers=1))
    with pytest.raises(InputError, match="vocab_size = 97 there, 50 here; num_layers = 2 there, 1 here"):
        copy_body(encoder, part, sequence_length=8)


def test_copy_into_wants_the_same_names_and_shapes():
    networks = make_networks(BASE)
    head = networks.discriminator_head
    tensors = dict(head.state_dict())
    with pytest.raises(InputError, match=r"dense\.bias is missing"):
        copy_into(head, {name: tensors[name] for name in tensors if name != "dense.bias"}, source="here")
    with pytest.raises(InputError, match="extra has no place"):
        copy_into(head, {**tensors, "extra": torch.zeros(1)}, source="here")
    with pytest.raises(InputError, match=r"dense\.bias has shape \[3\]"):
        copy_into(head, {**tensors, "dense.bias": torch.zeros(3)}, source="here")


def test_loading_leaves_the_logits_as_they_were(export):
    networks = make_networks(CONFIGS["embedding 8 < hidden 32"])
    batch = one_piece_rows([9, 4], 9)
    loaded = load_encoder(export / "discriminator").encoder.eval()
    assert torch.equal(loaded(*batch.all()), networks.encoder(*batch.all()))
