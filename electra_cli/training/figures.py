"""The figures of the steps between two log lines, added up on the device and read once."""

# N networks

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.distributed import Ranks
from electra_cli.training.processes import sum_over_ranks

_GRAD_NORM = "grad_norm"
_ACCEPTED = "accepted"
# These are the same on every process; the rest adds up.
_SAME = (_ACCEPTED, _GRAD_NORM)


@dataclass(frozen=True, kw_only=True)
class StepFigures:
    """What one step yields; tensors on the device, nothing is waited for."""

    terms: Mapping[str, Tensor]
    """This process's share of each term's mean over the batch; unweighted, 0-d."""
    loss: Tensor
    """The same for the weighted sum of all terms."""
    figures: Mapping[str, Tensor]
    grad_norm_N: Tensor
    is_skipped: Tensor
    """0-d float32, 1 where no weight moved."""
    is_excused: Tensor
    """0-d float32, 1 where the loss scale may be the reason."""


class Interval:
    """Sums since the last log line; part of a checkpoint, so that a resumed run logs the same numbers."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._sums: dict[str, Tensor] = {}
        self.num_steps = 0

    def add(self, step: StepFigures) -> None:
        """Add a step; one that was skipped counts as a step and adds nothing else."""
        self.num_steps += 1
        is_accepted = step.is_skipped == 0
        self._add(_ACCEPTED, is_accepted)
        self._add("loss", torch.where(is_accepted, step.loss, 0.0))
        self._add(_GRAD_NORM, torch.where(is_accepted, step.grad_norm_N, 0.0))
        for name, value in step.terms.items():
            self._add(f"terms.{name}", torch.where(is_accepted, value, 0.0))
        for name, value in step.figures.items():
            self._add(f"figures.{name}", torch.where(is_accepted, value, 0))

    def _add(self, name: str, value: Tensor) -> None:
        value = value.detach().to(self._dtype)
        # Out of place: the sums may lie in a checkpoint that is being written.
        self._sums[name] = self._sums[name] + value if name in self._sums else value

    def tensors(self) -> dict[str, Tensor]:
        """The sums by name."""
        return {f"interval.{name}": value for name, value in self._sums.items()}

    def load_tensors(self, tensors: Mapping[str, Tensor], num_steps: int, ranks: Ranks) -> None:
        """Take over sums written by `tensors` after `combine`."""
        prefix = "interval."
        self.num_steps = num_steps
        self._sums = {
            name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)
        }
        self._keep_on_first(ranks)

    def combine(self, ranks: Ranks) -> None:
        """Give the sums of all processes to the first, so that it can log or save them; each must call it."""
        if ranks.world_size == 1:
            return
        self._sums = {name: value.clone() for name, value in self._sums.items()}
        sum_over_ranks([self._sums[name] for name in sorted(self._sums) if name not in _SAME], ranks)
        self._keep_on_first(ranks)

    def _keep_on_first(self, ranks: Ranks) -> None:
        if not ranks.is_first:
            for name, value in self._sums.items():
                if name not in _SAME:
                    value.zero_()

    def read(self) -> "IntervalMeans":
        """Wait for the device, and start the next interval. Right on the first process, after `combine`."""
        sums = {name: value.cpu() for name, value in self._sums.items()}
        self._sums = {}
        self.num_steps = 0
        accepted = float(sums[_ACCEPTED])
        terms = {
            name.removeprefix("terms."): finite(float(value) / accepted if accepted else None)
            for name, value in sums.items()
            if name.startswith("terms.")
        }
        return IntervalMeans(
            loss=finite(float(sums["loss"]) / accepted if accepted else None),
            terms=terms,
            grad_norms=[finite(norm / accepted if accepted else None) for norm in sums[_GRAD_NORM].tolist()],
            figures={
                name.removeprefix("figures."): value
                for name, value in sums.items()
                if name.startswith("figures.")
            },
        )


@dataclass(frozen=True, kw_only=True)
class IntervalMeans:
    """What a log line says of its interval; `None` where every step was skipped."""

    loss: float | None
    terms: Mapping[str, float | None]
    grad_norms: list[float | None]
    figures: Mapping[str, Tensor]


def finite(value: float | None) -> float | None:
    """`None` in place of NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
