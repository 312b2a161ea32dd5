"""One training step, from a batch to moved weights; all of it on this page.

A loss is a sum and a count: the counts of the whole batch are known before the first forward pass, so
micro-batches and processes add up to exactly the loss of the batch.
"""

# B batch, K terms

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from electra_cli import keyed
from electra_cli.data.batches import Batch, changed
from electra_cli.distributed import Ranks
from electra_cli.objectives.base import Losses, Objective, Update
from electra_cli.optimization.update import NetworkUpdate
from electra_cli.training.device import Engine
from electra_cli.training.figures import StepFigures
from electra_cli.training.processes import sum_over_ranks


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """What is the same in every step of a run."""

    objective: Objective
    forward: Callable[..., Losses]
    """The objective, compiled or as it is."""
    updates: tuple[NetworkUpdate, ...]
    engine: Engine
    ranks: Ranks
    seed: int
    micro_batch_size: int


def train_step(
    plan: StepPlan, batch: Batch, *, step: int, learning_rate: float, progress: float
) -> StepFigures:
    """Move the weights once a update of the objective. `step` counts from 0; `progress` is in [0, 1]."""
    micro_batches = list(cut(batch, plan.micro_batch_size, plan.engine.device))
    counts = count_terms(plan, micro_batches)
    progress_now = torch.tensor(progress, dtype=torch.float32, device=plan.engine.device)
    carries: list[object] = [None] * len(micro_batches)
    terms: dict[str, Tensor] = {}
    figures: dict[str, Tensor] = {}
    # Figures add up in float64, so that processes log what micro-batches would.
    loss = torch.zeros((), dtype=plan.engine.sum_dtype, device=plan.engine.device)
    norms, skips = [], []
    for network_update in plan.updates:
        update = network_update.update
        update_loss = torch.zeros_like(loss)
        network_update.clear_gradients()
        for number, micro_batch in enumerate(micro_batches):
            seed_dropout(plan, update, step, number + plan.ranks.rank * len(micro_batches))
            with plan.engine.autocast():
                losses = plan.forward(micro_batch, update.name, progress_now, carries[number])
            means = {term: losses.sums[term] / counts[term] for term in update.terms}
            micro_loss = weighted(means, update)
            (micro_loss * network_update.loss_scale.scale).backward()  # type: ignore[no-untyped-call]
            carries[number] = losses.carry
            update_loss = update_loss + micro_loss.detach()
            add_up(terms, {term: mean.to(loss.dtype) for term, mean in means.items()})
            add_up(figures, losses.figures)
        loss = loss + update_loss
        # The local loss takes part, so that every process agrees on what is finite.
        everywhere = update_loss.float()
        sum_over_ranks([*gradients(network_update), everywhere], plan.ranks)
        done = network_update.step(learning_rate, everywhere)
        norms.append(done.grad_norm_N)
        skips.append(torch.stack([done.is_skipped, done.is_excused]))
    is_skipped, is_excused = torch.stack(skips).amax(dim=0)
    return StepFigures(
        terms=terms,
        loss=loss,
        figures=figures,
        grad_norm_N=torch.cat(norms),
        is_skipped=is_skipped,
        is_excused=is_excused,
    )


def cut(batch: Batch, micro_batch_size: int, device: torch.device) -> Iterator[Batch]:
    """The micro-batches of a batch, on the device."""
    for start in range(0, len(batch.sample_B), micro_batch_size):
        yield _part(batch, slice(start, start + micro_batch_size), device)


def _part(batch: Batch, rows: slice, device: torch.device) -> Batch:
    return changed(batch, lambda tensor: tensor[rows].to(device, non_blocking=True))


def count_terms(plan: StepPlan, micro_batches: list[Batch]) -> dict[str, Tensor]:
    """Each term's divisor over the whole batch and all processes; 1 where there is nothing to divide."""
    counts: dict[str, Tensor] = {}
    for micro_batch in micro_batches:
        add_up(counts, plan.objective.counts(micro_batch))
    sum_over_ranks(list(counts.values()), plan.ranks)
    return {term: torch.where(count > 0, count, 1.0) for term, count in counts.items()}


def seed_dropout(plan: StepPlan, update: Update, step: int, micro_batch: int) -> None:
    """Dropout is a function of (seed, step, number of the micro-batch in the global batch)."""
    key = keyed.key(plan.seed, f"dropout of {update.name}")
    bits = keyed.bits(key, np.array([step], dtype=np.int64), np.array([micro_batch], dtype=np.int64))
    torch.manual_seed(int(bits[0]) & (2**63 - 1))


def weighted(means: Mapping[str, Tensor], update: Update) -> Tensor:
    """Σ weight · mean over the terms of an update."""
    return torch.stack([weight * means[term] for term, weight in update.terms.items()]).sum()


def add_up(sums: dict[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Add detached values to the sums of the same names."""
    for name, value in values.items():
        sums[name] = sums[name] + value.detach() if name in sums else value.detach()


def gradients(update: NetworkUpdate) -> list[Tensor]:
    """The gradients of an update, in the order of its parameters."""
    return [parameter.grad for parameter in update.parameters if parameter.grad is not None]
