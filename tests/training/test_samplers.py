"""Whichever implementation of the sampling kernel serves, a run learns the same."""

# B batch, S sequence

from dataclasses import replace

import pytest
import torch
from toy_run import VOCABULARY_SIZE, make_settings

from electra_cli.data.batches import Batch
from electra_cli.distributed import Ranks
from electra_cli.kernels.masked_sampling import native
from electra_cli.objectives.base import VocabularyFacts
from electra_cli.objectives.electra import Electra
from electra_cli.optimization.update import NetworkUpdate
from electra_cli.training.device import resolve_engine
from electra_cli.training.step import StepPlan, train_step

NUM_STEPS = 200
FACTS = VocabularyFacts(size=VOCABULARY_SIZE, padding_id=0, unknown_id=1, cls_id=2, sep_id=3, mask_id=4)


def batch_of(step: int) -> Batch:
    """Rows that count upwards by one, from anywhere: something to learn."""
    start_B1 = torch.randint(5, VOCABULARY_SIZE - 40, (8, 1), generator=torch.Generator().manual_seed(step))
    ids_BS = start_B1 + torch.arange(32)
    ids_BS[:, 0], ids_BS[:, -1] = FACTS.cls_id, FACTS.sep_id
    return Batch(
        token_ids_BS=ids_BS,
        piece_BS=torch.ones_like(ids_BS, dtype=torch.int32),
        position_BS=torch.arange(32).expand_as(ids_BS).contiguous(),
        segment_BS=torch.zeros_like(ids_BS),
        sample_B=torch.arange(step * 8, step * 8 + 8),
    )


def losses(sampler: str) -> torch.Tensor:
    settings = make_settings()
    objective = Electra(settings, FACTS, sampler=sampler).train()
    plan = StepPlan(
        objective=objective,
        forward=objective,
        updates=tuple(NetworkUpdate(objective, update, settings.optimizer) for update in objective.updates),
        engine=replace(resolve_engine(settings.pretrain), num_threads=1),
        ranks=Ranks(),
        seed=0,
        micro_batch_size=8,
    )
    return torch.stack(
        [
            train_step(plan, batch_of(step), step=step, learning_rate=1e-3, progress=0.0).loss
            for step in range(NUM_STEPS)
        ]
    )


@pytest.fixture(scope="module")
def by_definition() -> torch.Tensor:
    return losses("reference")


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["cpu", "native"])
def test_two_hundred_steps_of_electra_follow_the_reference(sampler, by_definition):
    if sampler == "native" and native.why_not():
        pytest.skip(f"no native: {native.why_not()}")
    curve = losses(sampler)
    assert by_definition[-20:].mean() < by_definition[:20].mean()
    # Rounding at first (2e-7 was seen over 50 steps). Adam divides it by small numbers, until an id that
    # falls on a boundary is another one: one of some 40 in a step, whose loss it moves by a hundredth (0.019
    # was seen over three seeds, one and two threads), and twenty steps together by much less (0.002).
    assert relative(curve, by_definition)[:50].max() < 1e-5
    assert relative(curve, by_definition).max() < 0.05
    assert relative(*(one.view(-1, 20).mean(1) for one in (curve, by_definition))).max() < 0.01


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    return (ours - theirs).abs() / theirs
