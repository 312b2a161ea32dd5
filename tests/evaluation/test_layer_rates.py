"""Layer-wise learning rates: the published table, and the official code's."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from evaluation_cases import write_model

from electra_cli.evaluation.classifier import Classifier
from electra_cli.evaluation.layer_rates import (
    Rates,
    choose_rates,
    make_optimizer,
    rate_factors,
    rate_groups,
    set_learning_rate,
)
from electra_cli.models.encoder import Encoder
from electra_cli.models.folders import load_encoder
from electra_cli.models.modern import ModernEncoder
from electra_cli.models.sizes import SIZES, EncoderConfig
from electra_cli.settings import Evaluate
from electra_cli.settings_protocols import ELECTRA


def config_of(size: str) -> EncoderConfig:
    row = SIZES[size]
    return EncoderConfig(
        vocab_size=10,
        num_layers=row.num_layers,
        hidden_size=row.hidden_size,
        feed_forward_size=row.feed_forward_size,
        num_heads=row.num_heads,
        embedding_size=row.embedding_size,
        max_positions=8,
    )


def test_case_C14_the_top_layer_decays_once() -> None:
    factors = dict(rate_factors(3, Rates(1e-4, 0.8, "paper")))
    assert factors == pytest.approx(
        {"head": 1.0, "layer 3": 0.8, "layer 2": 0.64, "layer 1": 0.512, "embeddings": 0.4096}
    )


def test_case_C14_the_official_table_is_one_decay_lower() -> None:
    # 12 layers at 0.8: layer 12 has 0.64, the embeddings 0.044.
    factors = dict(rate_factors(12, Rates(1e-4, 0.8, "google")))
    assert factors["layer 12"] == pytest.approx(0.64)
    assert factors["embeddings"] == pytest.approx(0.8**14)
    assert factors["embeddings"] == pytest.approx(0.044, abs=5e-4)


def test_case_K26_the_head_learns_fastest_and_every_group_follows_the_formula() -> None:
    classifier = Classifier(Encoder(replace(config_of("small"), feed_forward_size=8)), 2, 0.0)
    groups = rate_groups(classifier, Rates(3e-4, 0.8, "paper"))
    assert len(groups) == 14
    assert max(groups, key=lambda group: group.factor).name == "head"
    assert [group.factor for group in groups] == pytest.approx([0.8**n for n in range(14)])


def test_every_parameter_is_in_one_group_and_gets_its_rate(tmp_path: Path) -> None:
    encoder = load_encoder(write_model(tmp_path, num_layers=2), dropout=0.0).encoder
    classifier = Classifier(encoder, 2, 0.0)
    groups = rate_groups(classifier, Rates(1.0, 0.5, "paper"))
    optimizer = make_optimizer(classifier, groups, protocol=ELECTRA, weight_decay=0.01)
    set_learning_rate(optimizer, 2.0)
    rate_of = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    decay_of = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert len(rate_of) == len(list(classifier.parameters()))
    assert rate_of[id(classifier.head.bias)] == 2.0
    assert rate_of[id(encoder.layers[1].qkv.weight)] == 1.0  # type: ignore[union-attr]
    assert rate_of[id(encoder.layers[0].qkv.weight)] == 0.5  # type: ignore[union-attr]
    assert rate_of[id(encoder.embeddings.word_VE)] == 0.25
    assert decay_of[id(encoder.embeddings.word_VE)] == 0.01
    assert decay_of[id(classifier.head.bias)] == decay_of[id(encoder.embeddings.layer_norm.weight)] == 0.0


def test_what_modern_has_above_its_layers_learns_like_the_head(tmp_path: Path) -> None:
    encoder = load_encoder(write_model(tmp_path, num_layers=2, backbone="modern"), dropout=0.0).encoder
    assert isinstance(encoder, ModernEncoder)
    groups = rate_groups(Classifier(encoder, 2, 0.0), Rates(1.0, 0.5, "paper"))
    factor_of = {id(parameter): group.factor for group in groups for parameter in group.parameters}
    assert factor_of[id(encoder.final_norm.weight)] == 1.0
    assert factor_of[id(encoder.embedding_norm.weight)] == factor_of[id(encoder.embeddings.word_VE)] == 0.125
    assert len(factor_of) == len(list(encoder.parameters())) + 2


def test_the_first_step_without_bias_correction_is_the_official_one() -> None:
    torch.manual_seed(0)
    classifier = Classifier(Encoder(config_of("toy")), 1, 0.0)
    groups = rate_groups(classifier, Rates(1.0, 1.0, "paper"))
    optimizer = make_optimizer(classifier, groups, protocol=ELECTRA, weight_decay=0.0)
    set_learning_rate(optimizer, 0.01)
    before = classifier.head.weight.detach().clone()
    classifier.head.weight.grad = gradient = torch.full_like(before, 0.5)
    optimizer.step()
    # m = 0.1 g, v = 0.001 g², neither divided by 1 − β.
    expected = before - 0.01 * (0.1 * gradient) / ((0.001 * gradient**2).sqrt() + 1e-6)
    torch.testing.assert_close(classifier.head.weight.detach(), expected)


@pytest.mark.parametrize(
    ("size", "rates"),
    [("tiny", (3e-4, 0.8)), ("small", (3e-4, 0.8)), ("base", (1e-4, 0.8)), ("large", (5e-5, 0.9))],
)
def test_rates_left_open_follow_from_the_size(size: str, rates: tuple[float, float]) -> None:
    chosen = choose_rates(Evaluate(), config_of(size))
    assert (chosen.learning_rate, chosen.layer_decay) == rates
    fixed = choose_rates(Evaluate(learning_rate=1e-3, layer_decay=0.5), config_of(size))
    assert (fixed.learning_rate, fixed.layer_decay) == (1e-3, 0.5)
