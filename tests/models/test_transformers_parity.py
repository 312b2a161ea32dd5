"""Our networks and the classes of transformers compute the same, forward and backward, in float32."""

# B batch, S sequence, M masked positions

import pytest
import torch
from small_networks import BASE, CONFIGS, Input, Networks, make_networks, one_piece_rows
from torch import Tensor

from electra_cli.models.folder_electra import ELECTRA
from electra_cli.models.folders import (
    HFFolder,
    discriminator_folders,
    encoder_folder,
    generator_folders,
    load_encoder,
)

transformers = pytest.importorskip("transformers")


def twin(folder: HFFolder, implementation: str = "eager") -> torch.nn.Module:
    """The transformers model with the weights of `folder`."""
    config = transformers.ElectraConfig(**{k: v for k, v in folder.config.items() if k != "torch_dtype"})
    config._attn_implementation = implementation
    model = getattr(transformers, folder.architecture)(config)
    report = model.load_state_dict(dict(folder.tensors), strict=False)
    assert set(report.missing_keys) <= {"generator_lm_head.weight"}
    assert not report.unexpected_keys
    model.tie_weights()
    return model.eval()


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def their_inputs(batch: Input) -> dict[str, Tensor]:
    return {
        "input_ids": batch.token_ids_BS,
        "attention_mask": (batch.piece_BS > 0).long(),
        "token_type_ids": batch.segment_BS,
        "position_ids": batch.position_BS,
    }


def assert_same_gradients(ours: dict[str, Tensor], model: torch.nn.Module, prefix: str, networks: Networks):
    theirs = dict(model.named_parameters())
    names = [(named, prefix, "encoder.") for named in ELECTRA.body_names(networks.encoder.config)]
    if any(name.startswith("discriminator_predictions") for name in theirs):
        names += [(named, "", "discriminator_head.") for named in ELECTRA.discriminator_head]
    if any(name.startswith("generator_predictions") for name in theirs):
        names += [(named, "", "masked_lm_head.") for named in ELECTRA.masked_lm_head]
    scale = max(parameter.grad.abs().max() for parameter in theirs.values() if parameter.grad is not None)
    for named, before, owner in names:
        expected = torch.cat([theirs[before + name].grad for name in named.theirs])
        # The gradient of a key's bias is 0 in exact arithmetic: measured against the largest gradient.
        assert (ours[owner + named.ours].grad - expected).abs().max() <= 1e-5 * scale, named.ours


@pytest.mark.parametrize("name", CONFIGS)
def test_encoder_equals_electra_model(name):
    networks = make_networks(CONFIGS[name])
    model = twin(encoder_folder(networks.encoder))
    batch = one_piece_rows([7, 13, 2, 13], 13)
    is_real_BS = batch.piece_BS > 0
    ours = networks.encoder(*batch.all())[is_real_BS]
    theirs = model(**their_inputs(batch)).last_hidden_state[is_real_BS]
    assert relative_difference(ours, theirs) < 1e-5
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    assert_same_gradients(dict(networks.named_parameters()), model, "", networks)


@pytest.mark.parametrize("name", CONFIGS)
def test_discriminator_equals_electra_for_pre_training(name):
    networks = make_networks(CONFIGS[name])
    model = twin(discriminator_folders(networks.encoder, networks.discriminator_head)["discriminator"])
    batch = one_piece_rows([9, 4, 11], 11)
    is_real_BS = batch.piece_BS > 0
    label_BS = torch.randint(0, 2, is_real_BS.shape, generator=torch.Generator().manual_seed(2))
    ours = networks.discriminator_head(networks.encoder(*batch.all()))
    theirs = model(**their_inputs(batch), labels=label_BS)
    assert relative_difference(ours[is_real_BS], theirs.logits[is_real_BS]) < 1e-5
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        ours[is_real_BS], label_BS[is_real_BS].float()
    )
    assert loss.item() == pytest.approx(theirs.loss.item(), rel=1e-5)
    loss.backward()
    theirs.loss.backward()
    assert_same_gradients(dict(networks.named_parameters()), model, "electra.", networks)


@pytest.mark.parametrize("name", CONFIGS)
def test_generator_equals_electra_for_masked_lm(name):
    networks = make_networks(CONFIGS[name])
    model = twin(generator_folders(networks.encoder, networks.masked_lm_head)["generator"])
    batch = one_piece_rows([9, 4, 11], 11)
    masked_M = torch.tensor([1, 5, 8, 12, 14, 23, 31])
    label_BS = torch.full(batch.token_ids_BS.shape, -100)
    label_BS.view(-1)[masked_M] = batch.token_ids_BS.view(-1)[masked_M]
    hidden_MD = networks.encoder(*batch.all()).flatten(0, 1)[masked_M]
    logit_MV = networks.masked_lm_head(hidden_MD, networks.encoder.embeddings.word_VE)
    theirs = model(**their_inputs(batch), labels=label_BS)
    assert relative_difference(logit_MV, theirs.logits.flatten(0, 1)[masked_M]) < 1e-5
    loss = torch.nn.functional.cross_entropy(logit_MV, batch.token_ids_BS.view(-1)[masked_M])
    assert loss.item() == pytest.approx(theirs.loss.item(), rel=1e-5)
    loss.backward()
    theirs.loss.backward()
    # The pad row: transformers keeps its look-up gradient at 0, and ours never looks at padding.
    assert_same_gradients(dict(networks.named_parameters()), model, "electra.", networks)


def test_encoder_equals_bert_model(tmp_path):
    config = transformers.BertConfig(
        vocab_size=BASE.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    model.save_pretrained(tmp_path)
    loaded = load_encoder(tmp_path)
    assert loaded.config["model_type"] == "bert"
    assert loaded.left_out == ("pooler.dense.bias", "pooler.dense.weight")
    batch = one_piece_rows([7, 13, 2], 13)
    is_real_BS = batch.piece_BS > 0
    ours = loaded.encoder.eval()(*batch.all())[is_real_BS]
    theirs = model(**their_inputs(batch)).last_hidden_state[is_real_BS]
    assert relative_difference(ours, theirs) < 1e-5
