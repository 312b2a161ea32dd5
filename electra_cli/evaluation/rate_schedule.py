"""The learning rate of each fine-tuning step, by the schedule that a protocol names."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from electra_cli.optimization.schedule import learning_rate
from electra_cli.settings import Optimizer, Schedule
from electra_cli.settings_protocols import Protocol, ScheduleName


@dataclass(frozen=True, kw_only=True)
class Course:
    """How long a run is, and what its rates follow from."""

    protocol: Protocol
    peak: float
    """Rate of the head at its highest."""
    warmup_fraction: float
    """Share of all steps with rising rate."""
    num_epochs: int
    steps_per_epoch: int

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.num_epochs * self.steps_per_epoch


@dataclass(frozen=True)
class StepRate:
    """A group of parameters with factor f learns with `least + rate · f`."""

    rate: float
    least: float = 0.0


def linear(step: int, course: Course) -> StepRate:
    """The official shape: rise and linear decay to 0 over the whole run, overlapping."""
    schedule = Schedule(warmup_steps=int(course.warmup_fraction * course.total))
    return StepRate(learning_rate(step, schedule, Optimizer(learning_rate=course.peak), course.total))


def cosine_restarts(step: int, course: Course) -> StepRate:
    """A cosine from the peak to the least rate every `restart_epochs` epochs, moving on every step.

    This is torch's CosineAnnealingWarmRestarts with T_mult 1: for a group with the highest rate r,
    least + (r − least) · (1 + cos(π·t/T)) / 2, here as least · (1 − c) + r · c.
    """
    protocol = course.protocol
    epoch = step / course.steps_per_epoch
    share = (1 + math.cos(math.pi * (epoch % protocol.restart_epochs) / protocol.restart_epochs)) / 2
    warmup = int(course.warmup_fraction * course.total)
    rise = min(1.0, step / warmup) if warmup else 1.0
    return StepRate(course.peak * rise * share, protocol.least_rate * (1 - share))


SCHEDULES: Mapping[ScheduleName, Callable[[int, Course], StepRate]] = {
    "linear": linear,
    "cosine-restarts": cosine_restarts,
}
"""By the name in a protocol; of the update that leads from `step` to `step + 1`."""
