"""The learning rate of each step.

The official code (google-research/electra, `model/optimization.py`) multiplies rise and decay, both
counted from step 0: lr(t) = peak · decay(t / T) · min(1, t / W). So the peak is never quite reached, and
step 0 moves nothing. The other common shape rises first and decays over what is left. A rise of 0 steps
starts at the peak.
"""

import math

from electra_cli.settings import Optimizer, Schedule


def learning_rate(step: int, schedule: Schedule, optimizer: Optimizer, total: int) -> float:
    """Learning rate of the update that leads from `step` to `step + 1`, for 0 ≤ step ≤ total.

    Finite and never negative, whatever the number of warm-up steps; a rise that is longer than the run is cut
    off by the run's end.
    """
    warmup = schedule.warmup_steps
    rise = min(1.0, step / warmup) if warmup else 1.0
    if schedule.warmup_multiplies_decay:
        done = step / max(1, total)
    else:
        done = max(0, step - warmup) / max(1, total - warmup)
    return optimizer.learning_rate * rise * _decay(schedule.decay, min(1.0, done))


def _decay(shape: str, done: float) -> float:
    """Factor after a share `done` of the way, from 1 down to 0 (`constant`: 1 throughout)."""
    if shape == "constant":
        return 1.0
    if shape == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * done))
    return 1.0 - done
