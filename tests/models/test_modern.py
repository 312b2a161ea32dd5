"""The `modern` backbone: the numbers of ModernBERT in transformers, and what masks and tables mean."""

# B batch, S sequence, M masked positions

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_networks import Input, one_piece_rows
from torch import Tensor, nn

from electra_cli.errors import InputError, ProjectError
from electra_cli.models.backbones import build_encoder
from electra_cli.models.folders import (
    HFFolder,
    discriminator_folders,
    generator_folders,
    load_encoder,
    load_pretrained,
    write_folder,
)
from electra_cli.models.heads import DiscriminatorHead, MaskedLMHead
from electra_cli.models.initial import initialise
from electra_cli.models.networks import load_network
from electra_cli.models.sizes import EncoderConfig, discriminator_config, generator_config
from electra_cli.settings import ProjectSettings

BASE = EncoderConfig(
    vocab_size=97,
    num_layers=5,
    hidden_size=32,
    feed_forward_size=40,
    num_heads=4,
    embedding_size=32,
    max_positions=40,
    num_segments=0,
    dropout=0.0,
    attention_dropout=0.0,
    layer_norm_eps=1e-5,
    backbone="modern",
    local_window=6,
)
NARROW = replace(BASE, hidden_size=16, num_heads=2, num_layers=3)
"""A generator of 16 over a word table of 32."""


class Networks(nn.Module):
    """An encoder with both heads."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = build_encoder(config)
        self.discriminator_head = DiscriminatorHead(config)
        self.masked_lm_head = MaskedLMHead(config, self.encoder.projection)


def make_networks(config: EncoderConfig) -> Networks:
    networks = Networks(config)
    initialise(networks, seed=0, std=0.2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in networks.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return networks.eval()


def folder_of(networks: Networks, kind: str) -> HFFolder:
    return {
        **discriminator_folders(networks.encoder, networks.discriminator_head),
        **generator_folders(networks.encoder, networks.masked_lm_head),
    }[kind]


def difference(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize(
    ("kind", "loader", "config"),
    [
        ("encoder", "AutoModel", BASE),
        ("discriminator", "AutoModelForTokenClassification", replace(BASE, global_every=2, local_theta=5e3)),
        ("generator", "AutoModelForMaskedLM", BASE),
        ("generator", "AutoModelForMaskedLM", NARROW),
        ("encoder", "AutoModel", NARROW),
    ],
)
def test_an_export_loads_without_a_word_and_computes_the_same(
    tmp_path: Path, kind: str, loader: str, config: EncoderConfig, caplog: pytest.LogCaptureFixture
) -> None:
    transformers = pytest.importorskip("transformers")
    content = folder_of(make_networks(config), kind)
    write_folder(tmp_path, content)
    model, loading = getattr(transformers, loader).from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == content.architecture
    assert not any(loading.values()) and not caplog.records
    batch = one_piece_rows([23, 7, 2, 16], 23)
    is_real_BS = batch.piece_BS > 0
    with torch.no_grad():
        output = model.eval()(input_ids=batch.token_ids_BS, attention_mask=is_real_BS.long())
        theirs = output.last_hidden_state if kind == "encoder" else output.logits
        ours = content.run(*batch.all())
    if kind == "discriminator":
        theirs = theirs.squeeze(-1)
    assert difference(ours[is_real_BS], theirs[is_real_BS]) < 1e-5


def test_gradients_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    networks = make_networks(BASE)
    write_folder(tmp_path, folder_of(networks, "encoder"))
    model = transformers.AutoModel.from_pretrained(tmp_path).eval()
    batch = one_piece_rows([13, 9], 13)
    is_real_BS = batch.piece_BS > 0
    ours = networks.encoder(*batch.all())[is_real_BS]
    theirs = model(input_ids=batch.token_ids_BS, attention_mask=is_real_BS.long()).last_hidden_state[
        is_real_BS
    ]
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    named = dict(model.named_parameters())
    from electra_cli.models.folder_modern import body_names

    for one in body_names(BASE):
        expected = named[one.theirs[0]].grad
        found = dict(networks.encoder.named_parameters())[one.ours].grad
        if one.ours == "embeddings.word_VE":
            # Theirs keeps the row of [PAD] out of training.
            expected, found = expected[1:], found[1:]
        assert difference(found, expected) < 1e-4, one.ours


def test_a_folder_of_transformers_is_read_back_whatever_its_keys(tmp_path: Path) -> None:
    """Version 5 writes the attention pattern as lists and tables, earlier ones as single numbers."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ModernBertConfig(
        vocab_size=97, hidden_size=32, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=64, local_attention=8, pad_token_id=0, initializer_range=0.2,
        cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.ModernBertForMaskedLM(config).eval()
    model.save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path).encoder.eval()
    assert (encoder.config.global_every, encoder.config.local_window) == (3, 8)
    network = load_network(tmp_path)
    batch = one_piece_rows([19, 5], 19)
    is_real_BS = batch.piece_BS > 0
    with torch.no_grad():
        theirs = model(
            input_ids=batch.token_ids_BS, attention_mask=is_real_BS.long(), output_hidden_states=True
        )
        hidden_BSD = encoder(*batch.all())
        logit_BSV = network.head(hidden_BSD, encoder.embeddings.word_VE)
    assert difference(logit_BSV[is_real_BS], theirs.logits[is_real_BS]) < 1e-5


def test_pieces_of_a_row_are_as_if_alone() -> None:
    encoder = make_networks(BASE).encoder
    alone = [one_piece_rows([length], length, seed=length) for length in (9, 6)]
    row = Input(
        token_ids_BS=torch.cat([one.token_ids_BS for one in alone], 1),
        piece_BS=torch.cat([one.piece_BS * number for number, one in enumerate(alone, 1)], 1),
        position_BS=torch.cat([one.position_BS for one in alone], 1),
        segment_BS=torch.cat([one.segment_BS for one in alone], 1),
    )
    with torch.no_grad():
        together = encoder(*row.all())
        apart = torch.cat([encoder(*one.all()) for one in alone], 1)
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("global_every", "reach"), [(1, 20), (5, 20), (7, None)])
def test_a_local_layer_sees_half_a_window_to_each_side(global_every: int, reach: int | None) -> None:
    """Without any global layer but the first, which is made blind here, news travel 3 places a layer."""
    networks = make_networks(replace(BASE, global_every=global_every, num_layers=3))
    encoder = networks.encoder
    if reach is None:
        with torch.no_grad():
            encoder.layers[0].attention_output.weight.zero_()
    first = one_piece_rows([21], 21)
    changed = replace(first, token_ids_BS=first.token_ids_BS.clone())
    changed.token_ids_BS[0, 10] = 5 + (int(first.token_ids_BS[0, 10]) - 4) % 90
    with torch.no_grad():
        moved_S = (encoder(*first.all()) - encoder(*changed.all())).abs().amax(-1)[0]
    far = int((moved_S > 0).nonzero().sub(10).abs().max())
    # Two local layers of a window of 6: 3 places each.
    assert far == (10 if reach else 6)


def test_the_narrow_generator_shares_its_table_and_exports_one_of_its_own_width() -> None:
    discriminator = build_encoder(BASE)
    generator = build_encoder(NARROW, discriminator.embeddings)
    assert generator.embeddings.word_VE is discriminator.embeddings.word_VE
    networks = make_networks(NARROW)
    head = networks.masked_lm_head
    assert not any(name.startswith("projection") for name, _ in head.named_parameters())
    table = folder_of(networks, "generator").tensors["model.embeddings.tok_embeddings.weight"]
    expected = networks.encoder.embeddings.word_VE @ networks.encoder.projection.weight.T
    torch.testing.assert_close(table, expected.detach())


def settings(**model: object) -> ProjectSettings:
    return ProjectSettings.model_validate(
        {"model": {"backbone": "modern", **model}, "generator": {"width": 64}}
    )


@pytest.mark.parametrize("size", ["toy", "tiny", "xsmall", "small", "base", "large"])
def test_every_size_has_networks_that_fit_together(size: str) -> None:
    config = discriminator_config(settings(size=size), 97, 0)
    assert config.embedding_size == config.hidden_size and not config.has_biases
    generator = generator_config(settings(size=size), 97, 0)
    assert (generator.hidden_size, generator.embedding_size) == (64, config.embedding_size)
    assert discriminator_config(settings(size=size, hidden_size=64, num_heads=2), 97, 0).embedding_size == 64


def test_the_window_of_local_layers_is_the_projects_in_both_networks() -> None:
    project = settings(size="toy", local_window=8)
    assert discriminator_config(project, 97, 0).local_window == 8
    assert generator_config(project, 97, 0).local_window == 8
    assert discriminator_config(settings(size="toy"), 97, 0).local_window == 128
    with pytest.raises(ProjectError, match=r"local_window = 8, and 'electra' has no local layers"):
        discriminator_config(settings(backbone="electra", local_window=8), 97, 0)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"embedding_size": 64, "size": "small"}, r"embedding_size = 64 is not model\.hidden_size = 256"),
        (
            {"hidden_size": 45, "num_heads": 9, "size": "toy"},
            r"heads of 5, and rotary positions need an even",
        ),
    ],
)
def test_wrong_sizes_are_refused_with_both_values(model: dict[str, object], said: str) -> None:
    with pytest.raises(ProjectError, match=said):
        discriminator_config(settings(**model), 97, 0)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("norm_bias", True, "norm_bias = True; needs False"),
        ("hidden_activation", "relu", "hidden_activation = 'relu'"),
        ("layer_types", ["sliding_attention"] * 5, "layer_types"),
        ("rope_parameters", {"full_attention": {"rope_type": "yarn"}}, "rope_parameters.full_attention"),
        ("local_rope_theta", "x", "local_rope_theta = 'x'"),
    ],
)
def test_other_arithmetic_is_refused_by_its_key(tmp_path: Path, key: str, value: object, said: str) -> None:
    content = folder_of(make_networks(BASE), "encoder")
    write_folder(tmp_path, replace(content, config={**content.config, key: value}))
    with pytest.raises(InputError, match=said):
        load_encoder(tmp_path)


@pytest.mark.parametrize("kind", ["discriminator", "generator"])
def test_a_network_is_known_by_what_only_its_head_has(tmp_path: Path, kind: str) -> None:
    networks = make_networks(BASE)
    content = folder_of(networks, kind)
    write_folder(tmp_path, content)
    found = load_pretrained(tmp_path)
    assert (found.generator is not None, found.discriminator is not None) == (
        kind == "generator",
        kind == "discriminator",
    )
    network = load_network(tmp_path)
    batch = one_piece_rows([11, 4], 11)
    with torch.no_grad():
        hidden_BSD = network.encoder(*batch.all())
        arguments = (
            (hidden_BSD,) if kind == "discriminator" else (hidden_BSD, network.encoder.embeddings.word_VE)
        )
        torch.testing.assert_close(network.head(*arguments), content.run(*batch.all()), rtol=1e-4, atol=1e-5)
