"""What every pre-training system promises, whatever it computes (`electra_cli/objectives/base.py`)."""

from pathlib import Path

import pytest
import torch
from contract_cases import CASES
from small_batches import part_of, random_batch, small_settings, vocabulary_facts, with_more_padding
from torch import Tensor

from electra_cli.data.batches import Batch
from electra_cli.objectives import find
from electra_cli.objectives.base import Losses, Objective
from electra_cli.optimization.optimizer import owned_parameters
from electra_cli.optimization.update import NetworkUpdate

VOCABULARY = 120
LENGTH = 32


def make(name: str, **changes: dict[str, object]) -> Objective:
    tables = {table: dict(values) for table, values in CASES[name].tables.items()}
    for table, values in changes.items():
        tables[table] = tables.get(table, {}) | values
    settings = small_settings(**tables)
    return find(settings.objective.use, Path())(settings, vocabulary_facts(VOCABULARY))


@pytest.fixture(params=CASES)
def objective(request: pytest.FixtureRequest) -> Objective:
    return make(request.param)


def all_losses(objective: Objective, batch: Batch) -> dict[str, Losses]:
    """What each update yields, in the order in which they run."""
    losses: dict[str, Losses] = {}
    carry: object = None
    for update in objective.updates:
        losses[update.name] = objective(batch, update.name, torch.tensor(0.5), carry)
        carry = losses[update.name].carry
    return losses


def all_sums(objective: Objective, batch: Batch) -> dict[str, Tensor]:
    return {
        term: value for losses in all_losses(objective, batch).values() for term, value in losses.sums.items()
    }


def total_of(objective: Objective, batch: Batch) -> Tensor:
    sums, counts = all_sums(objective, batch), objective.counts(batch)
    terms = {term: weight for update in objective.updates for term, weight in update.terms.items()}
    return torch.stack([w * sums[t] / counts[t].clamp(min=1.0) for t, w in terms.items()]).sum()


def test_terms_counts_and_networks_are_named_in_the_updates(objective):
    batch = random_batch(4, LENGTH, VOCABULARY)
    counts = objective.counts(batch)
    for update, losses in zip(objective.updates, all_losses(objective, batch).values(), strict=True):
        assert set(losses.sums) == set(update.terms) <= set(counts)
        assert all(value.dtype == torch.float32 and value.dim() == 0 for value in losses.sums.values())
        assert not any(value.requires_grad for value in losses.figures.values())
    networks = [network for update in objective.updates for network in update.networks]
    owned = owned_parameters(objective, networks)
    moved = {id(one) for network in owned.values() for one in network.values()}
    assert moved == {id(one) for one in objective.parameters() if one.requires_grad}


def test_a_gradient_reaches_every_parameter_that_is_trained(objective):
    total_of(objective, random_batch(6, LENGTH, VOCABULARY)).backward()
    for name, parameter in objective.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None and parameter.grad.any(), name
            assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("name", CASES)
def test_micro_batches_add_up_to_the_batch(name):
    objective, batch = make(name), random_batch(6, LENGTH, VOCABULARY)
    whole, parts = all_sums(objective, batch), {}
    counts: dict[str, Tensor] = {}
    for rows in (slice(0, 2), slice(2, 6)):
        part = part_of(batch, rows)
        for term, value in all_sums(objective, part).items():
            parts[term] = parts.get(term, 0.0) + value
        for term, value in objective.counts(part).items():
            counts[term] = counts.get(term, 0.0) + value
    for term in set(whole) - set(CASES[name].coupled_terms):
        # float32: sums of a few hundred values in another order.
        torch.testing.assert_close(parts[term], whole[term], rtol=1e-5, atol=1e-5)
        assert counts[term] == objective.counts(batch)[term]


def test_padding_changes_no_loss(objective):
    batch = random_batch(5, LENGTH, VOCABULARY)
    wider = with_more_padding(batch, 7, 0)
    for term, value in all_sums(objective, batch).items():
        torch.testing.assert_close(all_sums(objective, wider)[term], value, rtol=1e-5, atol=1e-5)


def test_the_same_seed_gives_the_same_loss_and_another_seed_another(objective):
    batch = random_batch(4, LENGTH, VOCABULARY)
    settings = objective.settings
    first, again, other = (
        type(objective)(
            settings.model_copy(update={"project": settings.project.model_copy(update={"seed": seed})}),
            objective.vocabulary,
        )
        for seed in (0, 0, 1)
    )
    assert torch.equal(total_of(first, batch), total_of(again, batch))
    assert not torch.equal(total_of(first, batch), total_of(other, batch))


def test_rows_of_padding_and_of_specials_alone_are_finite(objective):
    batch = with_more_padding(part_of(random_batch(2, 8, VOCABULARY), slice(0, 1)), 0, 2)
    total = total_of(objective, batch)
    total.backward()
    assert total.isfinite()
    assert all(p.grad.isfinite().all() for p in objective.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", CASES)
def test_one_batch_is_learnt_by_heart(name):
    objective = make(name, optimizer={"weight_decay": 0.0})
    batch = random_batch(4, LENGTH, VOCABULARY, full=True)
    updates = [NetworkUpdate(objective, one, objective.settings.optimizer) for one in objective.updates]
    counts, steps = objective.counts(batch), 160
    first = total_of(objective, batch).item()
    for step in range(steps):
        carry: object = None
        for update in updates:
            update.clear_gradients()
            losses = objective(batch, update.update.name, torch.tensor(0.5), carry)
            carry = losses.carry
            terms = update.update.terms.items()
            loss = torch.stack([weight * losses.sums[t] / counts[t] for t, weight in terms]).sum()
            loss.backward()
            update.step(4e-3 * min(1.0, (step + 1) / 20) * (1 - step / steps), loss.detach())
    assert total_of(objective, batch).item() < 0.1 * first


def test_every_export_holds_finite_tensors_once(objective):
    exports = objective.exports()
    assert "encoder" in exports
    for content in exports.values():
        assert all(
            value.isfinite().all() and value.dtype == torch.float32 for value in content.tensors.values()
        )
        storages = [value.untyped_storage().data_ptr() for value in content.tensors.values()]
        assert len(set(storages)) == len(storages)
