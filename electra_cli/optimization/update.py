"""From gradients to new weights: unscale, measure, clip, check, step. Backward happens in `training/step.py`.

A loss or gradient that is not finite never reaches the weights: the fused kernel reads the flag on the device
and leaves weights and moments as they are, so that no step waits for the device to answer.
"""

# N networks of an update

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from electra_cli.objectives.base import Update
from electra_cli.optimization.optimizer import (
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    owned_parameters,
)
from electra_cli.settings import Optimizer

MAX_SKIPPED_IN_A_ROW = 3
MAX_SKIPPED_FRACTION = 0.01
SKIP_WINDOW = 1000

_SCALE_START = 2.0**16
_SCALE_GROWS_AFTER = 2000


@dataclass(frozen=True, kw_only=True)
class UpdateFigures:
    """What one optimizer step saw, as tensors on the device."""

    grad_norm_N: Tensor
    """Norm of each network's gradients before clipping."""
    is_skipped: Tensor
    """0-d float32, 1 where the loss or a gradient was not finite and nothing moved."""
    is_excused: Tensor
    """0-d float32, 1 where a loss scale above 1 may be the reason: it was halved, nothing is wrong yet."""


class LossScale:
    """A power of two that keeps float16 gradients from underflow; 1 for every other precision."""

    def __init__(self, *, is_used: bool, device: torch.device) -> None:
        self.is_used = is_used
        self.scale = torch.tensor(_SCALE_START if is_used else 1.0, device=device)
        self.good_steps = torch.tensor(0.0, device=device)

    def adapt(self, is_skipped: Tensor) -> None:
        """Halve after a step that overflowed, double after many that did not."""
        if not self.is_used:
            return
        good = torch.where(is_skipped > 0, 0.0, self.good_steps + 1)
        grows = good >= _SCALE_GROWS_AFTER
        factor = torch.where(is_skipped > 0, 0.5, torch.where(grows, 2.0, 1.0))
        self.good_steps.copy_(torch.where(grows, 0.0, good))
        self.scale.copy_(torch.clamp(self.scale * factor, min=1.0))


class NetworkUpdate:
    """The optimizer of one of an objective's updates, over the networks that it owns."""

    def __init__(
        self, objective: nn.Module, update: Update, settings: Optimizer, *, is_loss_scaled: bool = False
    ) -> None:
        self.update = update
        self.settings = settings
        owned = owned_parameters(objective, update.networks)
        self.names = {name: one for network in owned.values() for name, one in network.items()}
        self.optimizer = make_optimizer(objective, self.names.values(), settings)
        device = next(iter(self.names.values())).device
        self.loss_scale = LossScale(is_used=is_loss_scaled, device=device)
        numbers = [n for n, network in enumerate(owned.values()) for _ in network]
        self._network_P = torch.tensor(numbers, device=device)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Every parameter of this update, in a fixed order."""
        return list(self.names.values())

    def clear_gradients(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, learning_rate: float, loss: Tensor) -> UpdateFigures:
        """One optimizer step with the gradients at hand, clipped to the update's global norm.

        `loss` (0-d, unscaled) takes part in the finite check: where it or any gradient is not finite, weights
        and moments stay as they are.
        """
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        unscale = 1.0 / self.loss_scale.scale
        norm_P = torch.stack(torch._foreach_norm(gradients)) * unscale
        total = torch.linalg.vector_norm(norm_P)
        is_finite = torch.isfinite(total) & torch.isfinite(loss)
        clip = self.settings.clip_norm if self.update.clip_norm is None else self.update.clip_norm
        if clip or self.loss_scale.is_used:
            factor = clip / torch.clamp(total, min=clip) if clip else torch.ones_like(total)
            torch._foreach_mul_(gradients, factor * unscale)
        is_skipped = (~is_finite).float()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * self.update.learning_rate_scale
        # The fused kernel's own switch: where it is 1, weights, moments and step count stay untouched.
        self.optimizer.found_inf = is_skipped  # type: ignore[attr-defined]
        self.optimizer.step()
        is_excused = is_skipped * (self.loss_scale.scale > 1)
        self.loss_scale.adapt(is_skipped)
        squares_N = torch.zeros(len(self.update.networks), device=total.device)
        squares_N.index_add_(0, self._network_P, norm_P.square())
        return UpdateFigures(grad_norm_N=squares_N.sqrt(), is_skipped=is_skipped, is_excused=is_excused)

    def tensors(self) -> dict[str, Tensor]:
        """All state, by names that do not clash between updates."""
        state = optimizer_tensors(self.optimizer, self.names)
        state["loss_scale.scale"] = self.loss_scale.scale
        state["loss_scale.good_steps"] = self.loss_scale.good_steps
        return {f"{self.update.name}.{name}": value for name, value in state.items()}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Copy state written by `tensors` back in place; raises KeyError for a missing tensor."""
        prefix = f"{self.update.name}."
        own = {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
        load_optimizer_tensors(self.optimizer, self.names, own)
        self.loss_scale.scale.copy_(own["loss_scale.scale"])
        self.loss_scale.good_steps.copy_(own["loss_scale.good_steps"])


@dataclass
class SkippedSteps:
    """Which steps were skipped, and whether that is still an accident."""

    total: int = 0
    in_a_row: int = 0
    recent: list[int] = field(default_factory=list)
    """Skipped steps among the last 1,000."""

    def note(self, step: int, *, is_skipped: bool, is_excused: bool = False) -> None:
        """Record the outcome of `step`; an excused one (a loss scale that was too large) is only counted."""
        self.total += is_skipped
        is_bad = is_skipped and not is_excused
        self.in_a_row = self.in_a_row + 1 if is_bad else 0
        self.recent = [one for one in self.recent if one > step - SKIP_WINDOW]
        if is_bad:
            self.recent.append(step)

    @property
    def is_diverged(self) -> bool:
        """More than 3 in a row, or more than 1 % of 1,000 steps."""
        return self.in_a_row > MAX_SKIPPED_IN_A_ROW or len(self.recent) > MAX_SKIPPED_FRACTION * SKIP_WINDOW


def network_names(updates: Sequence[Update]) -> tuple[str, ...]:
    """Names of all networks, in the order in which gradient norms are reported."""
    return tuple(network for update in updates for network in update.networks)
