"""Each promise of the contract: kept by what is built in, and told in plain words when it is broken."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_batches import random_batch, small_settings, vocabulary_facts
from torch import Tensor, nn

from electra_cli.data.batches import Batch
from electra_cli.models.folders import HFFolder
from electra_cli.objectives import BUILTIN, find
from electra_cli.objectives.base import Losses, Objective, VocabularyFacts
from electra_cli.objectives.electra import Electra
from electra_cli.settings import ProjectSettings
from electra_cli.training.contract import Contract, check_contract

ROOT = Path(__file__).parents[2]
VOCABULARY = 120


def make(kind: type[Objective] = Electra, **tables: dict[str, object]) -> Objective:
    return kind(small_settings(**tables), vocabulary_facts(VOCABULARY)).train()


def checked(objective: Objective) -> Contract:
    return check_contract(objective, random_batch(4, 32, VOCABULARY))


@pytest.mark.parametrize("use", [*(name for name in ("electra", "masked-lm") if name in BUILTIN), "own"])
def test_what_we_ship_keeps_its_contract_and_is_left_as_it_was(use: str) -> None:
    use = "docs/examples/masked_lm.py:MaskedLM" if use == "own" else use
    model = {"dropout": 0.1, "attention_dropout": 0.1}
    objective = make(find(use, ROOT), objective={"use": use}, model=model)
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    state = torch.random.get_rng_state()
    contract = checked(objective)
    assert (contract.num_rows, contract.breaches, contract.without_gradient) == (4, (), ())
    assert objective.training and torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in objective.state_dict().items())
    assert all(parameter.grad is None for parameter in objective.parameters())


def test_parameters_without_gradient_are_named_and_no_fault() -> None:
    contract = checked(make(objective={"generator_weight": 0.0}))
    assert contract.breaches == ()
    assert "generator.head.dense.weight" in contract.without_gradient
    assert not any(name.startswith("discriminator") for name in contract.without_gradient)


class Faulty(Electra):
    """ELECTRA that does one thing wrong."""

    fault = ""

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        super().__init__(settings, vocabulary, sampler=sampler)
        self.calls = 0
        if self.fault == "a parameter that nobody owns":
            self.spare = nn.Linear(2, 2)
        if self.fault == "two owners":
            self.updates = (self.updates[0], replace(self.updates[0], name="again", terms={}))
        if self.fault == "an unknown network":
            self.updates = (replace(self.updates[0], networks=("discriminator", "generatr")),)
        self.register_buffer("memory", torch.zeros(()))

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        counts = super().counts(batch)
        if self.fault == "counts by prediction":
            counts["rtd"] = counts["rtd"] + (self.discriminator.head.prediction.weight > 0).sum()
        if self.fault == "a count for nothing":
            counts["more"] = counts["rtd"]
        if self.fault == "a constant count":
            counts["rtd"] = torch.tensor(1.0)
        if self.fault == "a whole number":
            counts["mlm"] = counts["mlm"].long()
        return counts

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        losses = super().forward(batch, update, progress, carry)
        sums, figures = dict(losses.sums), dict(losses.figures)
        self.calls += 1
        changes: dict[str, Callable[[Tensor], Tensor]] = {
            "a mean": lambda rtd: rtd / len(batch.sample_B),
            "half precision": lambda rtd: rtd.bfloat16(),
            "a vector": lambda rtd: rtd[None],
            "not finite": lambda rtd: rtd * float("inf"),
            "detached": lambda rtd: rtd.detach(),
            "state": lambda rtd: rtd + self.calls,
        }
        if self.fault in changes:
            sums["rtd"] = changes[self.fault](sums["rtd"])
        if self.fault == "a term too few":
            del sums["mlm"]
        if self.fault == "a figure with its graph":
            figures["loss"] = sums["rtd"]
        if self.fault == "the batch is changed":
            batch.token_ids_BS[0, 1] = 7
        if self.fault == "held-out rows are remembered" and batch.is_heldout:
            self.memory.add_(1)
        return replace(losses, sums=sums, figures=figures)

    def exports(self) -> dict[str, HFFolder]:
        exports = super().exports()
        if self.fault == "no encoder":
            del exports["encoder"]
        if self.fault == "another encoder":
            tensors = {name: value * 1.5 for name, value in exports["encoder"].tensors.items()}
            exports["encoder"] = replace(exports["encoder"], tensors=tensors)
        if self.fault == "half an encoder":
            tensors = dict(list(exports["encoder"].tensors.items())[1:])
            exports["encoder"] = replace(exports["encoder"], tensors=tensors)
        return exports


@pytest.mark.parametrize(
    ("fault", "promise", "found"),
    [
        ("a parameter that nobody owns", "belongs to one update", "no update owns spare.weight"),
        ("two owners", "belongs to one update", 'by "electra" and by "again"'),
        ("an unknown network", "belongs to one update", '"generatr", which is no child module'),
        ("counts by prediction", "functions of the batch alone", "with other weights"),
        ("a count for nothing", "give the terms", 'counts gives "mlm", "more", "rtd"'),
        ("a constant count", "micro-batches add up", "in its two halves"),
        ("a whole number", "functions of the batch alone", "torch.int64, not 0-d float32"),
        ("a mean", "micro-batches add up", "for its halves"),
        ("half precision", "sums are finite", "torch.bfloat16, not 0-d float32"),
        ("a vector", "sums are finite", "[1] of torch.float32"),
        ("not finite", "sums are finite", 'the sum of "rtd" is inf'),
        ("detached", "sums are finite", "carries no gradient"),
        ("state", "the same rows and seed", '"rtd" was'),
        ("a term too few", "give the terms", 'gives "rtd", it has the terms "mlm", "rtd"'),
        ("a figure with its graph", "figures cost nothing", '"loss" carries a gradient'),
        ("the batch is changed", "leaves the batch as it is", "batch.token_ids_BS"),
        ("held-out rows are remembered", "leaves no trace", "it changed memory"),
        ("no encoder", "exports load back", "no encoder"),
        ("another encoder", "exports load back", "folder and network differ"),
        ("half an encoder", "exports load back", "is missing"),
    ],
)
def test_a_broken_promise_is_told_with_what_to_do(
    fault: str, promise: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "fault", fault)
    breaches = checked(make(Faulty)).breaches
    told = [breach for breach in breaches if promise in breach.promise and found in breach.found]
    assert told, [breach.text() for breach in breaches]
    assert all(len(breach.advice) > 20 for breach in breaches)


def test_a_term_that_compares_rows_is_exempt_where_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "fault", "a mean")
    monkeypatch.setattr(Faulty, "coupled_terms", frozenset({"rtd"}), raising=False)
    assert checked(make(Faulty)).breaches == ()
