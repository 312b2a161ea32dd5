"""Watching for steps that were not finite, without making the device wait."""

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.data.batches import Batch
from electra_cli.optimization.update import SkippedSteps
from electra_cli.training.figures import StepFigures


@dataclass(frozen=True)
class WatchedStep:
    """A step whose outcome is on its way from the device."""

    step: int
    """Number of the step, from 0."""
    sample_B: Tensor
    flags: Tensor
    """Skipped, excused; on the CPU once `is_known`."""
    loss: Tensor
    grad_norm_N: Tensor
    event: torch.cuda.Event | None

    @property
    def is_known(self) -> bool:
        """Whether the flags have arrived."""
        return self.event is None or bool(self.event.query())  # type: ignore[no-untyped-call]


class SkipWatch:
    """Counts skipped steps as their flags arrive: at once on a CPU, a step or two later on a GPU."""

    def __init__(self, skipped: SkippedSteps) -> None:
        self._skipped = skipped
        self._pending: deque[WatchedStep] = deque()

    def add(self, step: int, batch: Batch, figures: StepFigures) -> None:
        """Begin to fetch the flags of a step."""
        flags = torch.stack([figures.is_skipped, figures.is_excused])
        event = None
        if flags.is_cuda:
            # Pinned memory lets the copy run while the host goes on.
            flags = torch.empty_like(flags, device="cpu", pin_memory=True).copy_(flags, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._pending.append(
            WatchedStep(step, batch.sample_B, flags, figures.loss, figures.grad_norm_N, event)
        )

    def settle(self, *, wait: bool) -> WatchedStep | None:
        """Count what has arrived, or all with `wait`; returns the step at which the run has diverged."""
        while self._pending and (wait or self._pending[0].is_known):
            seen = self._pending.popleft()
            if seen.event is not None:
                seen.event.synchronize()
            is_skipped, is_excused = seen.flags.tolist()
            self._skipped.note(seen.step, is_skipped=is_skipped > 0, is_excused=is_excused > 0)
            if self._skipped.is_diverged:
                return seen
        return None
