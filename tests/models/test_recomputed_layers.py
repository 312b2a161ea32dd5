"""Layers whose values are computed again on the way back: the same bits, and less to keep."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from small_networks import BASE, Input, one_piece_rows
from torch import Tensor

from electra_cli.models.backbone import Backbone
from electra_cli.models.deberta import DebertaEncoder
from electra_cli.models.encoder import Encoder
from electra_cli.models.initial import initialise
from electra_cli.models.modern import ModernEncoder
from electra_cli.models.sizes import EncoderConfig

CONFIG = replace(BASE, num_layers=3, dropout=0.2, attention_dropout=0.1)
NETWORKS = {
    "electra": (Encoder, CONFIG),
    "electra with a bias by place": (Encoder, replace(CONFIG, relative_buckets=8)),
    "deberta": (DebertaEncoder, replace(CONFIG, backbone="deberta")),
    "modern": (ModernEncoder, replace(CONFIG, backbone="modern", layer_norm_eps=1e-5)),
}


def make(name: str) -> Backbone:
    kind: tuple[type[Backbone], EncoderConfig] = NETWORKS[name]
    encoder = kind[0](kind[1])
    initialise(encoder, seed=3, std=0.2)
    return encoder.train()


def encoded(encoder: Backbone, row: Input) -> Tensor:
    return encoder(*row.all())


def decoded(encoder: Backbone, row: Input) -> Tensor:
    """DeBERTa's enhanced mask decoder, which applies its last layer twice."""
    assert isinstance(encoder, DebertaEncoder)
    return encoder.decode(*row.all(), torch.ones(*row.token_ids_BS.shape, CONFIG.hidden_size))


def trained(
    encoder: Backbone, run: Callable[[Backbone, Input], Tensor], precision: str
) -> tuple[list[Tensor], int]:
    """Output and gradients, and the bytes that autograd kept, those of parameters left out."""
    row = one_piece_rows([12, 7, 1], 12)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    encoder.zero_grad()
    torch.manual_seed(5)
    is_narrow = precision == "bf16"
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_narrow):
            output = run(encoder, row)
        output.float().square().sum().backward()
    # What comes after draws the same numbers, too.
    following = torch.rand(1)
    gradients = [one.grad for one in encoder.parameters() if one.grad is not None]
    return [output.detach(), following, *gradients], sum(kept.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "run"), [*((name, encoded) for name in NETWORKS), ("deberta", decoded)])
def test_outputs_and_gradients_are_the_same_bits_and_less_is_kept(name, run, precision):
    encoder = make(name)
    plain, kept = trained(encoder, run, precision)
    encoder.recomputes_layers = True
    again, kept_less = trained(encoder, run, precision)
    assert len(plain) == len(again) > 10
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))
    assert kept_less < kept / 2


@pytest.mark.parametrize("name", NETWORKS)
def test_a_layer_is_computed_again_only_where_there_is_a_way_back(name):
    encoder, calls = make(name), []
    encoder.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    encoder.recomputes_layers = True
    row = one_piece_rows([12, 7], 12)
    encoded(encoder, row).sum().backward()
    assert len(calls) == 2
    with torch.no_grad():
        encoded(encoder, row)
    assert len(calls) == 3
    encoded(encoder.eval(), row).sum().backward()
    assert len(calls) == 4
