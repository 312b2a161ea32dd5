"""AdamW without bias correction, its exclusions, and its state."""

import numpy as np
import pytest
import torch
from torch import nn

from electra_cli.objectives.base import Update
from electra_cli.optimization.optimizer import undecayed_parameters
from electra_cli.optimization.update import NetworkUpdate, SkippedSteps
from electra_cli.settings import Optimizer

UPDATE = Update(name="all", networks=("first", "second"), terms={"loss": 1.0})
FINITE = torch.tensor(1.0)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7))
        self.second = nn.Linear(7, 3)


def give_gradients(module: nn.Module, step: int, scale: float = 1.0) -> None:
    for number, parameter in enumerate(module.parameters()):
        generator = torch.Generator().manual_seed(1000 * step + number)
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator)


def adam_in_float64(module: Pair, settings: Optimizer, steps: int, rate: float) -> dict[str, np.ndarray]:
    """The official update (google-research/electra optimization.py), or AdamW, written out in NumPy."""
    undecayed = undecayed_parameters(module)
    names = list(module.named_parameters())
    weights = {name: p.detach().double().numpy().copy() for name, p in names}
    decays = {name: 0.0 if id(p) in undecayed else settings.weight_decay for name, p in names}
    m = {name: np.zeros_like(w) for name, w in weights.items()}
    v = {name: np.zeros_like(w) for name, w in weights.items()}
    beta1, beta2 = settings.betas
    for step in range(steps):
        give_gradients(module, step)
        gradients = {name: p.grad.double().numpy() for name, p in module.named_parameters()}
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        for name, gradient in gradients.items():
            gradient = gradient * (settings.clip_norm / max(norm, settings.clip_norm))
            m[name] = beta1 * m[name] + (1 - beta1) * gradient
            v[name] = beta2 * v[name] + (1 - beta2) * gradient**2
            m_hat, v_hat = m[name], v[name]
            if settings.bias_correction:
                m_hat = m_hat / (1 - beta1 ** (step + 1))
                v_hat = v_hat / (1 - beta2 ** (step + 1))
            move = m_hat / (np.sqrt(v_hat) + settings.eps) + decays[name] * weights[name]
            weights[name] = weights[name] - rate * move
    return weights


@pytest.mark.parametrize("bias_correction", [False, True])
def test_fused_steps_follow_float64(bias_correction):
    settings = Optimizer(weight_decay=0.1, bias_correction=bias_correction)
    wanted = adam_in_float64(Pair(), settings, 50, 1e-2)
    module = Pair()
    update = NetworkUpdate(module, UPDATE, settings)
    for step in range(50):
        give_gradients(module, step)
        update.step(1e-2, FINITE)
    for name, parameter in module.named_parameters():
        # 50 float32 steps of size 1e-2 on weights near 1: a few ulps a step.
        np.testing.assert_allclose(parameter.detach().numpy(), wanted[name], rtol=2e-5, atol=2e-6)


def test_uncorrected_first_step_is_smaller_than_a_corrected_one():
    moved = {}
    for bias_correction in (False, True):
        module = Pair()
        before = module.second.weight.detach().clone()
        update = NetworkUpdate(module, UPDATE, Optimizer(bias_correction=bias_correction, clip_norm=0.0))
        give_gradients(module, 0)
        update.step(1.0, FINITE)
        moved[bias_correction] = (module.second.weight - before).abs().mean().item()
    # (1 − β₁) / sqrt(1 − β₂) = 3.16 uncorrected against 1 corrected, in units of the learning rate.
    assert moved[False] == pytest.approx(3.16 * moved[True], rel=0.05)


def test_biases_and_layer_norm_are_not_decayed():
    module = Pair()
    undecayed = undecayed_parameters(module)
    assert {name for name, p in module.named_parameters() if id(p) in undecayed} == {
        "first.0.bias",
        "first.1.weight",
        "first.1.bias",
        "second.bias",
    }


def test_a_shared_parameter_is_stepped_once():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight

    update = NetworkUpdate(Tied(), UPDATE, Optimizer())
    assert sorted(update.names) == ["first.bias", "first.weight", "second.bias"]


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_gradients_are_clipped_by_their_global_norm(scale):
    module = Pair()
    update = NetworkUpdate(module, UPDATE, Optimizer(clip_norm=1.0))
    give_gradients(module, 0, scale)
    norm = torch.sqrt(sum(p.grad.square().sum() for p in module.parameters()))
    figures = update.step(1e-3, FINITE)
    clipped = torch.sqrt(sum(p.grad.square().sum() for p in module.parameters()))
    torch.testing.assert_close(figures.grad_norm_N.square().sum().sqrt(), norm)
    torch.testing.assert_close(clipped, torch.clamp(norm, max=1.0))


@pytest.mark.parametrize("bad", ["loss", "gradient", "infinite"])
def test_what_is_not_finite_moves_nothing(bad):
    module = Pair()
    update = NetworkUpdate(module, UPDATE, Optimizer())
    give_gradients(module, 0)
    update.step(1e-3, FINITE)
    before = {name: value.clone() for name, value in {**module.state_dict(), **update.tensors()}.items()}
    give_gradients(module, 1)
    if bad != "loss":
        module.second.weight.grad[0, 0] = float("nan" if bad == "gradient" else "inf")
    figures = update.step(1e-3, torch.tensor(float("nan")) if bad == "loss" else FINITE)
    assert figures.is_skipped.item() == 1
    for name, value in {**module.state_dict(), **update.tensors()}.items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("bias_correction", [False, True])
def test_restored_optimizer_continues_with_equal_bits(bias_correction):
    settings = Optimizer(bias_correction=bias_correction)
    straight = Pair()
    update = NetworkUpdate(straight, UPDATE, settings)
    for step in range(6):
        if step == 3:
            saved = {name: value.clone() for name, value in update.tensors().items()}
            weights = {name: value.clone() for name, value in straight.state_dict().items()}
        give_gradients(straight, step)
        update.step(1e-3, FINITE)
    resumed = Pair()
    second = NetworkUpdate(resumed, UPDATE, settings)
    resumed.load_state_dict(weights)
    second.load_tensors(saved)
    for step in range(3, 6):
        give_gradients(resumed, step)
        second.step(1e-3, FINITE)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])


def test_loss_scale_halves_on_overflow_and_doubles_after_2000_good_steps():
    module = Pair()
    update = NetworkUpdate(module, UPDATE, Optimizer(), is_loss_scaled=True)
    give_gradients(module, 0, float("inf"))
    update.step(1e-3, FINITE)
    assert update.loss_scale.scale.item() == 2.0**15
    for _ in range(1999):
        update.loss_scale.adapt(torch.tensor(0.0))
    assert update.loss_scale.scale.item() == 2.0**15
    update.loss_scale.adapt(torch.tensor(0.0))
    assert update.loss_scale.scale.item() == 2.0**16
    assert update.loss_scale.good_steps.item() == 0


def test_scaled_gradients_give_the_unscaled_step():
    plain, scaled = Pair(), Pair()
    first = NetworkUpdate(plain, UPDATE, Optimizer())
    second = NetworkUpdate(scaled, UPDATE, Optimizer(), is_loss_scaled=True)
    for step in range(3):
        give_gradients(plain, step)
        give_gradients(scaled, step, 2.0**16)
        first.step(1e-3, FINITE)
        second.step(1e-3, FINITE)
    for name, value in plain.state_dict().items():
        # The scale is a power of two: exact but for the norm's last bit.
        torch.testing.assert_close(value, scaled.state_dict()[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("in_a_row", "is_diverged"), [(3, False), (4, True)])
def test_four_skipped_steps_in_a_row_are_divergence(in_a_row, is_diverged):
    skipped = SkippedSteps()
    for step in range(in_a_row):
        skipped.note(step, is_skipped=True)
    assert skipped.is_diverged is is_diverged


@pytest.mark.parametrize(("number", "is_diverged"), [(10, False), (11, True)])
def test_more_than_one_percent_of_a_thousand_is_divergence(number, is_diverged):
    skipped = SkippedSteps()
    for step in range(number * 10):
        skipped.note(step, is_skipped=step % 10 == 0)
    assert skipped.is_diverged is is_diverged
    assert skipped.total == number


def test_skipped_steps_of_long_ago_are_forgotten():
    skipped = SkippedSteps()
    for step in range(20_000):
        skipped.note(step, is_skipped=step % 150 == 0)
        assert not skipped.is_diverged
    assert len(skipped.recent) <= 7
