"""Measuring on held-out rows: no dropout, the same rows and masks every time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.data.batches import Batch
from electra_cli.training.figures import finite
from electra_cli.training.step import StepPlan, add_up, cut


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Means over all held-out rows measured."""

    loss: float | None
    terms: dict[str, float | None]
    health: dict[str, float | None]


def measure(
    plan: StepPlan,
    batches: Iterable[Batch],
    *,
    progress: float,
    is_stopped: Callable[[], object] = lambda: False,
) -> HeldOut | None:
    """Losses and health figures in evaluation mode; `None` without held-out rows, or when `is_stopped`."""
    objective = plan.objective
    counts: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    figures: dict[str, Tensor] = {}
    progress_now = torch.tensor(progress, dtype=torch.float32, device=plan.engine.device)
    objective.eval()
    try:
        with torch.no_grad():
            for batch in batches:
                if is_stopped():
                    return None
                for micro_batch in cut(batch, plan.micro_batch_size, plan.engine.device):
                    add_up(counts, objective.counts(micro_batch))
                    carry: object = None
                    for update in objective.updates:
                        with plan.engine.autocast():
                            losses = objective(micro_batch, update.name, progress_now, carry)
                        carry = losses.carry
                        add_up(sums, losses.sums)
                        add_up(figures, losses.figures)
    finally:
        objective.train()
    if not counts:
        return None
    means = {term: float(total) / (float(counts[term]) or 1.0) for term, total in sums.items()}
    weights = {term: weight for update in objective.updates for term, weight in update.terms.items()}
    return HeldOut(
        loss=finite(sum(weights[term] * mean for term, mean in means.items())),
        terms={term: finite(mean) for term, mean in means.items()},
        health={name: finite(value) for name, value in objective.summarise(figures).items()},
    )
