"""The contract between an objective and the engine, asked of the objective itself on a few rows.

The engine divides sums by counts, cuts batches, saves and resumes without knowing what it trains. That is
right only if the objective keeps what `objectives/base.py` says; here each promise is tried, and a broken one
is told in plain words with what to do about it. Weights, gradients and buffers are afterwards as they were.
"""

# B batch

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from electra_cli.data.batches import Batch
from electra_cli.errors import ElectraError
from electra_cli.models.folders import HFFolder, load_encoder, write_folder
from electra_cli.objectives.base import Objective
from electra_cli.training.contract_sums import (
    TENSORS,
    Breach,
    additivity_breaches,
    counts_breaches,
    forward_breaches,
    heldout_breaches,
    names_of,
    run,
    some_of,
)

_EXPORTED = 1e-4


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What the objective was asked, and what came out."""

    num_rows: int
    breaches: tuple[Breach, ...]
    without_gradient: tuple[str, ...]
    """Parameters that no update's loss reaches: meant, where a weight is 0 or a part is switched off."""


def check_contract(objective: Objective, batch: Batch) -> Contract:
    """Try every promise of an objective on two or more rows, which lie on its device."""
    breaches: list[Breach] = []
    unreached: tuple[str, ...] = ()
    before = {name: getattr(batch, name).clone() for name in TENSORS}
    with _untouched(objective):
        breaches += [*_ownership(objective), *_terms(objective, batch), *_changes(batch, before)]
        # What follows needs sums by the names of the terms.
        if not breaches:
            breaches += [*counts_breaches(objective, batch), *forward_breaches(objective, batch)]
            breaches += [*additivity_breaches(objective, batch), *heldout_breaches(objective, batch)]
            breaches += _exports(objective, batch)
        # Sums of a wrong kind have no gradient to look at.
        if not breaches:
            unreached, wrong = _gradients(objective, batch)
            breaches += wrong
    return Contract(num_rows=len(batch.sample_B), breaches=tuple(breaches), without_gradient=unreached)


@contextmanager
def _untouched(objective: Objective) -> Iterator[None]:
    """Weights, buffers, mode, and torch's generator as they were."""
    before = {name: value.detach().clone() for name, value in objective.state_dict().items()}
    was_training = objective.training
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            objective.train(was_training)
            for parameter in objective.parameters():
                parameter.grad = None
            own = objective.state_dict()
            with torch.no_grad():
                for name, value in before.items():
                    own[name].copy_(value)


def _ownership(objective: Objective) -> Iterator[Breach]:
    promise = "each trained parameter belongs to one update"
    children = dict(objective.named_children())
    owner: dict[int, str] = {}
    for update in objective.updates:
        for network in update.networks:
            if network not in children:
                yield Breach(
                    promise=promise,
                    found=f'update "{update.name}" names the network "{network}", which is no child module',
                    advice=f"the child modules are {', '.join(children) or 'none'}",
                )
                return
            for name, parameter in children[network].named_parameters():
                first = owner.setdefault(id(parameter), update.name)
                if parameter.requires_grad and first != update.name:
                    yield Breach(
                        promise=promise,
                        found=f'"{network}.{name}" is moved by "{first}" and by "{update.name}"',
                        advice="two optimizers would pull at it; give it to one, or detach it in the other",
                    )
                    return
    free = [n for n, p in objective.named_parameters() if p.requires_grad and id(p) not in owner]
    if free:
        yield Breach(
            promise=promise,
            found=f"no update owns {some_of(free)}",
            advice="name their network in `updates`, or set requires_grad to False where they are frozen",
        )


def _terms(objective: Objective, batch: Batch) -> Iterator[Breach]:
    promise = "forward and counts give the terms of the updates"
    wanted = [term for update in objective.updates for term in update.terms]
    counted = set(objective.counts(batch))
    if sorted(counted) != sorted(wanted):
        yield Breach(
            promise=promise,
            found=f"counts gives {names_of(counted)}, the updates name {names_of(wanted)}",
            advice="return a count for each term of each update, and for nothing else",
        )
        return
    losses = run(objective, batch)
    for update in objective.updates:
        found = set(losses[update.name].sums)
        if found != set(update.terms):
            yield Breach(
                promise=promise,
                found=f'forward of "{update.name}" gives {names_of(found)}, it has the terms '
                f"{names_of(update.terms)}",
                advice="return a sum for each term of the update, and figures as `figures`",
            )


def _changes(batch: Batch, before: Mapping[str, Tensor]) -> Iterator[Breach]:
    for name, value in before.items():
        if not torch.equal(value, getattr(batch, name)):
            yield Breach(
                promise="forward leaves the batch as it is",
                found=f"batch.{name} was changed in place",
                advice="work on a copy: the next update and the counts read the same rows",
            )


def _gradients(objective: Objective, batch: Batch) -> tuple[tuple[str, ...], list[Breach]]:
    counts = objective.counts(batch)
    losses = run(objective, batch)
    for update in objective.updates:
        means = [
            weight * losses[update.name].sums[term] / counts[term].clamp(min=1.0)
            for term, weight in update.terms.items()
        ]
        total = torch.stack(means).sum()
        if total.requires_grad:
            torch.autograd.backward(total, retain_graph=True)
    unreached, breaches = [], []
    for name, parameter in objective.named_parameters():
        gradient = parameter.grad
        if gradient is not None and not bool(torch.isfinite(gradient).all()):
            breaches.append(
                Breach(
                    promise="gradients are finite",
                    found=f"that of {name} is not",
                    advice="a masked softmax or a norm of 0 has no gradient there; use a finite stand-in",
                )
            )
        if parameter.requires_grad and (gradient is None or not bool(gradient.any())):
            unreached.append(name)
    return tuple(unreached), breaches


def _exports(objective: Objective, batch: Batch) -> Iterator[Breach]:
    if objective.settings.model.relative_buckets:
        # No folder can hold this model, whatever the objective; `electra export` says so.
        return
    exports = objective.exports()
    if "encoder" not in exports:
        yield Breach(
            promise="exports load back",
            found=f"exports gives {names_of(exports) if exports else 'nothing'}, no encoder",
            advice="add an entry `encoder`: fine-tuning loads that folder",
        )
        return
    for kind, content in exports.items():
        bad = [name for name, value in content.tensors.items() if not bool(torch.isfinite(value).all())]
        if bad:
            yield Breach(
                promise="exports load back",
                found=f"{kind}: {some_of(bad)} is not finite",
                advice="look at how it is initialised",
            )
    yield from _encoder_loads(exports["encoder"], batch)


def _encoder_loads(content: HFFolder, batch: Batch) -> Iterator[Breach]:
    one = [getattr(batch, name)[:1].cpu() for name in TENSORS[:4]]
    is_real_BS = one[1] > 0
    device = batch.token_ids_BS.device
    with tempfile.TemporaryDirectory(prefix="electra-contract-") as name, torch.no_grad():
        write_folder(Path(name), content)
        try:
            loaded = load_encoder(Path(name)).encoder.eval()
        except ElectraError as error:
            yield Breach(
                promise="exports load back",
                found=f"encoder: {error.message}",
                advice="make it with encoder_folder, which writes what is read",
            )
            return
        expected = content.run(*(value.to(device) for value in one)).float().cpu()
        given = loaded(*one).float()
    scale = float(expected[is_real_BS].abs().max())
    difference = float((given - expected)[is_real_BS].abs().max()) / (scale or 1.0)
    if not difference <= _EXPORTED:
        yield Breach(
            promise="exports load back",
            found=f"encoder: folder and network differ by {difference:.1e} of the largest value",
            advice="export the encoder that is trained, not a copy of it",
        )
