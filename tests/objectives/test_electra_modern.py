"""ELECTRA on the `modern` backbone: a narrow generator over the discriminator's words learns."""

import pytest
import torch
from small_batches import random_batch, small_settings, total_loss, vocabulary_facts

from electra_cli.objectives.electra import Electra
from electra_cli.optimization.update import NetworkUpdate

VOCABULARY = 120


def make_objective(**generator: object) -> Electra:
    model = {"backbone": "modern", "num_layers": 2, "layer_norm_eps": 1e-5}
    settings = small_settings(model=model, generator={"width": 16, **generator})
    return Electra(settings, vocabulary_facts(VOCABULARY))


@pytest.mark.parametrize("sharing", ["tied", "none", "gradient-disentangled"])
def test_a_gradient_reaches_every_parameter(sharing: str) -> None:
    objective = make_objective(sharing=sharing)
    total_loss(objective, random_batch(6, 32, VOCABULARY)).backward()
    for name, parameter in objective.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name
    assert set(objective.exports()) == {"encoder", "discriminator", "generator"}


def test_one_batch_is_learnt() -> None:
    objective = make_objective()
    batch = random_batch(4, 32, VOCABULARY, full=True)
    update = NetworkUpdate(objective, objective.updates[0], objective.settings.optimizer)
    first = float(total_loss(objective, batch).detach())
    for step in range(60):
        update.clear_gradients()
        loss = total_loss(objective, batch)
        loss.backward()
        update.step(5e-3 * (1 - step / 60), loss.detach())
    assert torch.isfinite(loss)
    assert float(total_loss(objective, batch).detach()) < 0.6 * first
