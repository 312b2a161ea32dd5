"""The DeBERTa backbone: exactly transformers' DebertaV2, pieces, buckets, folders."""

# B batch, S sequence, D hidden

import json
from dataclasses import replace

import pytest
import torch
from small_networks import BASE, Input, one_piece_rows
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.errors import CorruptError, InputError
from electra_cli.models.backbones import build_encoder
from electra_cli.models.disentangled import log_bucket, needed_rows, relative_rows
from electra_cli.models.folder_heads import RTD_HEAD, load_rtd_head
from electra_cli.models.folders import (
    HFFolder,
    copy_body,
    discriminator_folders,
    encoder_folder,
    generator_folders,
    load_encoder,
    load_pretrained,
    write_folder,
)
from electra_cli.models.heads import ContextDiscriminatorHead, DiscriminatorHead, MaskedLMHead
from electra_cli.models.initial import initialise
from electra_cli.models.networks import load_network
from electra_cli.models.sharing import share_embeddings
from electra_cli.models.sizes import EncoderConfig

# Few buckets, so that short rows reach the logarithmic ones and those beyond the last.
DEBERTA = replace(
    BASE, backbone="deberta", num_segments=0, layer_norm_eps=1e-7, position_buckets=8, max_distance=16
)
CONFIGS = {
    "no projection": DEBERTA,
    "embedding 8 < hidden 32": replace(DEBERTA, embedding_size=8),
    "released buckets": replace(DEBERTA, position_buckets=256, max_distance=512, num_heads=1),
}


class Networks(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = build_encoder(config)
        self.masked_lm_head = MaskedLMHead(config)
        self.context_head = ContextDiscriminatorHead(config)
        self.plain_head = DiscriminatorHead(config)


def make_networks(config: EncoderConfig) -> Networks:
    networks = Networks(config)
    initialise(networks, seed=0, std=0.2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in networks.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return networks.eval()


def twin(folder: HFFolder) -> torch.nn.Module:
    """The transformers model with the weights of `folder`."""
    transformers = pytest.importorskip("transformers")
    config = transformers.DebertaV2Config(**{k: v for k, v in folder.config.items() if k != "torch_dtype"})
    model = getattr(transformers, folder.architecture)(config)
    report = model.load_state_dict(dict(folder.tensors), strict=False)
    # Both tied, to the word table and to the bias beside it.
    assert set(report.missing_keys) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    assert not report.unexpected_keys
    model.tie_weights()
    return model.eval()


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize("name", CONFIGS)
def test_encoder_equals_deberta_v2_model_forward_and_backward(name):
    networks = make_networks(CONFIGS[name])
    folder = encoder_folder(networks.encoder)
    model = twin(folder)
    batch = one_piece_rows([7, 33, 2, 25], 33)
    is_real_BS = batch.piece_BS > 0
    ours = networks.encoder(*batch.all())[is_real_BS]
    theirs = model(input_ids=batch.token_ids_BS, attention_mask=is_real_BS.long()).last_hidden_state
    assert relative_difference(ours, theirs[is_real_BS]) < 1e-5
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    (ours * weight).sum().backward()
    (theirs[is_real_BS] * weight).sum().backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    scale = max(gradient.abs().max() for gradient in expected.values())
    from electra_cli.models.folder_deberta import body_names

    found = dict(networks.encoder.named_parameters())
    for named in body_names(CONFIGS[name]):
        theirs_joined = torch.cat([expected[one] for one in named.theirs])
        assert (found[named.ours].grad - theirs_joined).abs().max() <= 1e-5 * scale, named.ours


@pytest.mark.parametrize("name", CONFIGS)
def test_generator_equals_deberta_v2_for_masked_lm(name):
    networks = make_networks(CONFIGS[name])
    (folder,) = generator_folders(networks.encoder, networks.masked_lm_head).values()
    model = twin(folder)
    batch = one_piece_rows([9, 4, 33], 33)
    is_real_BS = batch.piece_BS > 0
    with torch.no_grad():
        ours = folder.run(*batch.all())[is_real_BS]
        theirs = model(input_ids=batch.token_ids_BS, attention_mask=is_real_BS.long()).logits[is_real_BS]
    assert relative_difference(ours, theirs) < 1e-5


@pytest.mark.parametrize(("buckets", "reach"), [(256, 512), (8, 16), (32, 128), (256, 1024)])
def test_buckets_are_those_of_transformers(buckets, reach):
    deberta = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    distance = torch.arange(-1500, 1501)
    theirs = deberta.make_log_bucket_position(distance, buckets, reach).long()
    assert torch.equal(log_bucket(distance, buckets, reach), theirs)


def test_buckets_by_hand():
    distance = torch.tensor([0, 1, -1, 4, -4, 5, 15, -15, 1000])
    # middle 4, step ln(15 / 4) / 3: 5 → 4 + ⌈0.51⌉, 15 → 4 + ⌈3⌉.
    assert log_bucket(distance, 8, 16).tolist()[:8] == [0, 1, -1, 4, -4, 5, 7, -7]
    rows = relative_rows(3, 8, 16, torch.device("cpu"))
    assert rows.tolist() == [11, 10, 9, 8, 7, 6]
    assert needed_rows(3, 8, 16) == (5, 12) and needed_rows(1000, 8, 16) == (0, 16)


def packed(rows: Input, lengths: list[int]) -> Input:
    """The pieces of one-piece rows one behind the other in a single row."""
    columns = [torch.cat([tensor[i, :n] for i, n in enumerate(lengths)]) for tensor in rows.all()]
    columns[1] = torch.repeat_interleave(torch.arange(1, len(lengths) + 1), torch.tensor(lengths)).int()
    return Input(*(tensor.unsqueeze(0) for tensor in columns))


@pytest.mark.parametrize("name", CONFIGS)
def test_padding_and_packing_do_not_change_a_piece(name):
    lengths = [5, 17, 9, 3, 1]
    encoder = make_networks(CONFIGS[name]).encoder
    rows = [one_piece_rows([n], n, seed=n) for n in lengths]
    alone = [encoder(*row.all())[0] for row in rows]
    wide = Input(
        *(
            torch.cat([F.pad(tensor, (0, 40 - n)) for tensor, n in zip(column, lengths, strict=True)])
            for column in zip(*(row.all() for row in rows), strict=True)
        )
    )
    padded = encoder(*wide.all())
    together = encoder(*packed(wide, lengths).all())[0].split(lengths)
    for i, n in enumerate(lengths):
        torch.testing.assert_close(padded[i, :n], alone[i], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(together[i], alone[i], rtol=1e-5, atol=1e-5)


def test_rows_of_padding_are_finite_and_dropout_follows_the_seed():
    networks = make_networks(replace(DEBERTA, dropout=0.1, attention_dropout=0.1)).train()
    batch = one_piece_rows([0, 2, 9], 12)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(networks.encoder(*batch.all()))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    logit_BS = networks.context_head(results[2], batch.position_BS)
    (logit_BS * batch.piece_BS).sum().backward()
    assert logit_BS.isfinite().all()
    assert all(p.grad.isfinite().all() for p in networks.parameters() if p.grad is not None)


def test_autocast_keeps_scores_and_logits_in_float32():
    networks = make_networks(DEBERTA)
    batch = one_piece_rows([8, 12], 12)
    exact = networks.encoder(*batch.all())
    with torch.autocast("cpu", torch.bfloat16):
        hidden_BSD = networks.encoder(*batch.all())
        logit_BS = networks.context_head(hidden_BSD, batch.position_BS)
    assert (hidden_BSD.dtype, logit_BS.dtype) == (torch.bfloat16, torch.float32)
    # 8 bits of mantissa through two layers of weights far larger than trained ones.
    assert (hidden_BSD.float() - exact).abs().mean() < 0.05


def test_what_we_write_we_read_bit_for_bit(tmp_path):
    networks = make_networks(CONFIGS["embedding 8 < hidden 32"])
    folders = discriminator_folders(networks.encoder, networks.context_head)
    folders |= generator_folders(networks.encoder, networks.masked_lm_head)
    assert set(folders) == {"encoder", "generator"}
    for name, content in folders.items():
        write_folder(tmp_path / name, content)
        loaded = load_encoder(tmp_path / name)
        assert loaded.encoder.config == networks.encoder.config
        for key, value in networks.encoder.state_dict().items():
            assert torch.equal(loaded.encoder.state_dict()[key], value), key
    head = load_rtd_head(tmp_path / "encoder")
    assert isinstance(head, ContextDiscriminatorHead)
    batch = one_piece_rows([5, 9], 9)
    hidden_BSD = networks.encoder(*batch.all())
    ours = networks.context_head(hidden_BSD, batch.position_BS)
    assert torch.equal(head.detect(hidden_BSD, batch.position_BS), ours)
    network = load_network(tmp_path / "encoder")
    assert torch.equal(network.head.detect(network.encoder(*batch.all()), batch.position_BS), ours)
    found = load_pretrained(tmp_path)
    assert found.discriminator.head and found.generator.head


def test_a_head_of_electra_lies_beside_its_encoder_too(tmp_path):
    networks = make_networks(DEBERTA)
    for name, content in discriminator_folders(networks.encoder, networks.plain_head).items():
        write_folder(tmp_path / name, content)
    assert isinstance(load_rtd_head(tmp_path / "encoder"), DiscriminatorHead)
    (tmp_path / "encoder" / RTD_HEAD).write_bytes(b"nothing")
    with pytest.raises(CorruptError):
        load_rtd_head(tmp_path / "encoder")
    (tmp_path / "encoder" / RTD_HEAD).unlink()
    with pytest.raises(InputError):
        load_rtd_head(tmp_path / "encoder")


def test_a_body_goes_into_gradient_disentangled_tables_as_their_sum(tmp_path):
    write_folder(tmp_path, encoder_folder(make_networks(DEBERTA).encoder))
    tables = share_embeddings("gradient-disentangled", DEBERTA, DEBERTA)
    encoder = build_encoder(DEBERTA, tables.discriminator)
    initialise(nn.ModuleDict({"d": encoder, "g": tables.generator}), seed=3, std=0.2)
    part = load_pretrained(tmp_path).discriminator
    copy_body(encoder, part, sequence_length=32)
    plain = encoder.plain_state()
    for name, value in part.body.items():
        # A difference and a sum in float32.
        torch.testing.assert_close(plain[name], value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("relative_attention", False),
        ("position_biased_input", True),
        ("share_att_key", False),
        ("norm_rel_ebd", "none"),
        ("pos_att_type", ["c2p"]),
        ("pos_att_type", 3),
        ("type_vocab_size", 2),
        ("conv_kernel_size", 3),
        ("position_buckets", -1),
        ("num_attention_heads", 5),
    ],
)
def test_other_arithmetic_is_refused_by_key(tmp_path, key, value):
    write_folder(tmp_path, encoder_folder(make_networks(DEBERTA).encoder))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InputError) as caught:
        load_encoder(tmp_path)
    assert caught.value.key == key and key in caught.value.message


def test_a_config_of_the_released_models_is_read(tmp_path):
    """`microsoft/deberta-v3-*` write the terms with a bar and leave the reach to the position table."""
    write_folder(tmp_path, encoder_folder(make_networks(CONFIGS["released buckets"]).encoder))
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    content |= {"pos_att_type": "p2c|c2p", "max_relative_positions": -1, "max_position_embeddings": 512}
    for absent in ("legacy", "embedding_size", "dtype", "tie_word_embeddings"):
        content.pop(absent)
    path.write_text(json.dumps(content))
    config = load_encoder(tmp_path).encoder.config
    assert (config.max_distance, config.position_buckets, config.embedding_size) == (512, 256, 32)
