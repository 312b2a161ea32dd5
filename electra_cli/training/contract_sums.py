"""The promises about losses: counts, sums, micro-batches, held-out rows."""

# B batch

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from electra_cli.data.batches import Batch, changed
from electra_cli.objectives.base import Losses, Objective

TENSORS = ("token_ids_BS", "piece_BS", "position_BS", "segment_BS", "sample_B")
_SEED = 20_200_326
# Sums of a few rows in float32, taken in another order; a sample on the edge of two ids may flip.
_ADDITIVE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Breach:
    """A promise that is not kept."""

    promise: str
    found: str
    advice: str

    def text(self) -> str:
        """One line."""
        return f"{self.promise}: {self.found}; {self.advice}"


def run(objective: Objective, batch: Batch) -> dict[str, Losses]:
    """Every update's losses, in order, with what each hands to the next."""
    torch.manual_seed(_SEED)
    progress = torch.zeros((), dtype=torch.float32, device=batch.token_ids_BS.device)
    carry: object = None
    losses: dict[str, Losses] = {}
    for update in objective.updates:
        losses[update.name] = objective(batch, update.name, progress, carry)
        carry = losses[update.name].carry
    return losses


def _sums(objective: Objective, batch: Batch) -> dict[str, Tensor]:
    """Every term's sum, without dropout and without a graph."""
    objective.eval()
    with torch.no_grad():
        losses = run(objective, batch)
    objective.train()
    return {term: value.detach() for one in losses.values() for term, value in one.sums.items()}


def _rows(batch: Batch, rows: slice) -> Batch:
    return changed(batch, lambda tensor: tensor[rows])


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch.sample_B) // 2
    return _rows(batch, slice(0, middle)), _rows(batch, slice(middle, None))


def counts_breaches(objective: Objective, batch: Batch) -> Iterator[Breach]:
    promise = "counts are functions of the batch alone"
    counted = objective.counts(batch)
    first = {term: count.detach() for term, count in counted.items()}
    for term, count in counted.items():
        yield from _number(promise, f'the count of "{term}"', count, needs_graph=False)
        if count.requires_grad or float(first[term]) < 0:
            yield Breach(
                promise=promise,
                found=f'the count of "{term}" is {float(first[term]):g}'
                + (" and carries a gradient" if count.requires_grad else ""),
                advice="count positions or rows; 0 is allowed, a prediction is not",
            )
    torch.manual_seed(_SEED + 1)
    with torch.no_grad(), _other_weights(objective):
        again = objective.counts(batch)
    for term in first:
        if float(first[term]) != float(again[term]):
            yield Breach(
                promise=promise,
                found=f'"{term}" has {float(first[term]):g}, and {float(again[term]):g} with other weights',
                advice="the engine counts before the first forward pass; weight a fixed list of positions by "
                "0 and 1 in the sum instead",
            )
    halves = [objective.counts(half) for half in _halves(batch)]
    for term in first:
        total = sum(float(half[term]) for half in halves)
        if not math.isclose(float(first[term]), total, rel_tol=1e-5):
            yield Breach(
                promise="micro-batches add up",
                found=f'"{term}" counts {float(first[term]):g} in the batch, {total:g} in its two halves',
                advice="count row by row, without looking at other rows",
            )


@contextmanager
def _other_weights(objective: Objective) -> Iterator[None]:
    """Every parameter with the other sign; the sign of a float is turned back exactly."""
    for parameter in objective.parameters():
        parameter.neg_()
    try:
        yield
    finally:
        for parameter in objective.parameters():
            parameter.neg_()


def _number(promise: str, what: str, value: Tensor, *, needs_graph: bool) -> Iterator[Breach]:
    if value.dim() != 0 or value.dtype != torch.float32:
        yield Breach(
            promise=promise,
            found=f"{what} is {list(value.shape)} of {value.dtype}, not 0-d float32",
            advice="return .sum() in float32; bfloat16 counts to 256 and no further",
        )
    elif not bool(torch.isfinite(value)):
        yield Breach(
            promise=promise,
            found=f"{what} is {float(value.detach())}",
            advice="look for 0/0, log 0, or -inf − -inf; ELECTRA_DEBUG=1 shows where an error is raised",
        )
    elif needs_graph and not value.requires_grad:
        yield Breach(
            promise=promise,
            found=f"{what} carries no gradient",
            advice="something was detached, or computed under torch.no_grad",
        )


def forward_breaches(objective: Objective, batch: Batch) -> Iterator[Breach]:
    losses = run(objective, batch)
    figures: dict[str, Tensor] = {}
    for update in objective.updates:
        one = losses[update.name]
        for term, value in one.sums.items():
            is_used = bool(update.terms[term])
            yield from _number("sums are finite", f'the sum of "{term}"', value, needs_graph=is_used)
        figures |= one.figures
    for name, value in figures.items():
        if value.requires_grad:
            yield Breach(
                promise="figures cost nothing",
                found=f'the figure "{name}" carries a gradient',
                advice="detach it, or the graph of every logged step stays in memory",
            )
    summary = objective.summarise({name: value.detach() for name, value in figures.items()})
    for name, number in summary.items():
        if number is not None and not math.isfinite(number):
            yield Breach(
                promise="health figures are numbers or None",
                found=f'summarise gives "{name}" = {number}',
                advice="return None where a figure is undefined",
            )
    again = run(objective, batch)
    for name, one in losses.items():
        for term, value in one.sums.items():
            then, now = value.detach(), again[name].sums[term].detach()
            if not torch.equal(then, now):
                yield Breach(
                    promise="the same rows and seed give the same loss",
                    found=f'"{term}" was {float(then):.7g}, then {float(now):.7g}',
                    advice="take random choices from electra_cli.keyed; keep no state between calls",
                )


def additivity_breaches(objective: Objective, batch: Batch) -> Iterator[Breach]:
    whole = _sums(objective, batch)
    parts = [_sums(objective, half) for half in _halves(batch)]
    for term, value in whole.items():
        if term in objective.coupled_terms:
            continue
        total = sum(float(part[term]) for part in parts)
        if not math.isclose(float(value), total, rel_tol=_ADDITIVE, abs_tol=1e-6):
            yield Breach(
                promise="micro-batches add up",
                found=f'the sum of "{term}" is {float(value):.6g} for the batch, {total:.6g} for its halves',
                advice="sum over rows instead of averaging, and let no row see another; name a term that "
                "compares rows (contrastive) in coupled_terms",
            )


def heldout_breaches(objective: Objective, batch: Batch) -> Iterator[Breach]:
    before = {name: value.detach().clone() for name, value in objective.state_dict().items()}
    first = _sums(objective, batch)
    _sums(objective, replace(batch, is_heldout=True))
    changed = [n for n, v in objective.state_dict().items() if not torch.equal(v, before[n])]
    again = _sums(objective, batch)
    differing = [term for term in first if not torch.equal(first[term], again[term])]
    if changed or differing:
        found = f"it changed {some_of(changed)}" if changed else f"{names_of(differing)} differs afterwards"
        yield Breach(
            promise="measuring on held-out rows leaves no trace",
            found=found,
            advice="update running state only where batch.is_heldout is false and the module is training",
        )


def names_of(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names)) or "nothing"


def some_of(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
