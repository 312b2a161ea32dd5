"""Initial weights are a function of the seed and the parameter's name."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from small_networks import BASE, Networks
from torch import nn

from electra_cli.models.encoder import Encoder
from electra_cli.models.heads import DiscriminatorHead
from electra_cli.models.initial import CHUNK, initialise, truncated_normal


def fingerprint(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def initialised(seed: int = 7) -> Networks:
    networks = Networks(BASE)
    initialise(networks, seed=seed, std=0.02)
    return networks


def test_values_are_a_normal_distribution_cut_at_two_deviations():
    values = truncated_normal(torch.Size([400, 1000]), 0.02, 0, "x").double() / 0.02
    assert values.abs().max() <= 2
    # Deviation of the standard normal distribution cut at ±2: 0.8796; 400,000 draws, four standard errors.
    assert values.std().item() == pytest.approx(0.8796, abs=0.004)
    assert values.mean().item() == pytest.approx(0, abs=0.006)
    # P(|x| < 1) = 0.6827 / 0.9545.
    assert (values.abs() < 1).double().mean().item() == pytest.approx(0.7152, abs=0.003)


def test_values_do_not_depend_on_the_pieces_they_are_made_in():
    long = truncated_normal(torch.Size([CHUNK + 5]), 1.0, 3, "x")
    short = truncated_normal(torch.Size([100]), 1.0, 3, "x")
    assert torch.equal(long[:100], short)


def test_biases_are_zero_and_layer_norms_the_identity():
    for name, parameter in initialised().named_parameters():
        if parameter.dim() == 1:
            is_scale = name.endswith("norm.weight")
            assert torch.equal(parameter, torch.full_like(parameter, 1.0 if is_scale else 0.0)), name
        else:
            assert parameter.std() > 0.01, name


def test_the_last_layer_of_the_discriminator_head_is_glorot_uniform():
    config = replace(BASE, hidden_size=4096, num_heads=1)
    head = DiscriminatorHead(config)
    initialise(head, seed=0, std=0.02)
    limit = (6 / 4097) ** 0.5
    weight = head.prediction.weight
    assert weight.abs().max() <= limit
    assert weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.03)
    assert head.dense.weight.abs().max() <= 0.04


def test_no_two_parameters_are_alike_and_seeds_differ():
    networks = initialised()
    first, second = networks.encoder.layers[0], networks.encoder.layers[1]
    assert not torch.equal(first.qkv.weight, second.qkv.weight)
    assert fingerprint(networks) != fingerprint(initialised(seed=8))


def test_weights_do_not_depend_on_the_order_in_which_parts_are_registered():
    def pair(order: list[str]) -> nn.ModuleDict:
        shared = Encoder(BASE)
        parts = {"a": shared, "b": Encoder(BASE, shared.embeddings)}
        modules = nn.ModuleDict({name: parts[name] for name in order})
        initialise(modules, seed=1, std=0.02)
        return modules

    assert fingerprint(pair(["a", "b"])) == fingerprint(pair(["b", "a"]))


def test_weights_are_the_same_in_another_process_with_other_threads():
    code = (
        "import torch; torch.set_num_threads(2); torch.manual_seed(5); torch.rand(3)\n"
        "from test_initial import fingerprint, initialised\n"
        "print(fingerprint(initialised()))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == fingerprint(initialised()), done.stderr
