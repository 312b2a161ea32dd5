"""The counted cost of a step of every system against the products that torch runs in it, both ways."""

from pathlib import Path

import pytest
import torch
from small_batches import random_batch, small_settings, vocabulary_facts
from test_fast_electra import write_auxiliary
from torch.utils.flop_counter import FlopCounterMode

from electra_cli.errors import ProjectError
from electra_cli.models.masked_lm_folders import load_masked_lm
from electra_cli.objectives import find
from electra_cli.objectives.base import Objective
from electra_cli.objectives.costs import training_flops
from electra_cli.settings import ProjectSettings

VOCABULARY, LENGTH, ROWS = 120, 32, 8
MODERN = {"backbone": "modern", "layer_norm_eps": 1e-5}
DEBERTA = {"backbone": "deberta", "layer_norm_eps": 1e-7}
FULL_WIDTH = {"width": 0, "depth_fraction": 0.5}
CONTRAST = {"use": "coco_lm", "contrast_min_tokens": 8, "vector_size": 16}

CASES = {
    "electra": {},
    "electra, modern": {"model": MODERN},
    "electra, modern, full width": {"model": MODERN, "generator": FULL_WIDTH},
    "electra, one encoder": {"generator": {"width": 0, "sharing": "all"}},
    "electra, chosen tokens": {"objective": {"use": "electra", "discriminator_positions": "chosen"}},
    "masked_lm": {"objective": {"use": "masked_lm"}},
    "masked_lm, modern": {"objective": {"use": "masked_lm"}, "model": MODERN},
    "replace_mlm": {"objective": {"use": "replace_mlm"}},
    "all tokens, modern": {"objective": {"use": "replace_mlm", "positions": "all"}, "model": MODERN},
    "coco_lm": {"objective": CONTRAST},
    "coco_lm, one pass": {"objective": CONTRAST | {"generator_dropout": False}},
    "coco_lm, no contrast": {"objective": {"use": "coco_lm", "contrast_weight": 0.0}},
    "electra, tied, deberta": {"model": DEBERTA, "generator": FULL_WIDTH},
    "electra, disentangled, deberta": {
        "model": DEBERTA,
        "generator": FULL_WIDTH | {"sharing": "gradient-disentangled"},
    },
    "deberta_v3": {
        "model": DEBERTA,
        "generator": FULL_WIDTH | {"sharing": "gradient-disentangled"},
        "objective": {"use": "deberta_v3"},
    },
    "mcl": {"objective": {"use": "mcl"}},
}
TOLERANCE = {
    # The table of distances is projected once a batch in each layer, which a large batch does not feel.
    "electra, tied, deberta": 0.11,
    "electra, disentangled, deberta": 0.11,
    "deberta_v3": 0.11,
    # A row has fewer insertions than chosen tokens, and the products of the insertions' head run no way back.
    "mcl": 0.01,
}


def products_of_a_step(objective: Objective) -> float:
    """What torch multiplies in a whole step, for one place of a row."""
    batch = random_batch(ROWS, LENGTH, VOCABULARY, full=True)
    carry: object = None
    with FlopCounterMode(display=False) as counter:
        for update in objective.updates:
            losses = objective(batch, update.name, torch.tensor(0.5), carry)
            carry = losses.carry
            torch.stack(list(losses.sums.values())).sum().backward()
    return counter.get_total_flops() / batch.token_ids_BS.numel()


def made(settings: ProjectSettings) -> Objective:
    # The reference is plain torch, whose products can be counted.
    kind = find(settings.objective.use, Path())
    return kind(settings, vocabulary_facts(VOCABULARY), sampler="reference").train()


def counted(settings: ProjectSettings, **more: object) -> float:
    return training_flops(settings, vocabulary_size=VOCABULARY, **more)


@pytest.mark.parametrize("name", CASES)
def test_a_step_costs_what_torch_multiplies(name):
    settings = small_settings(pretrain={"batch_size": ROWS}, **CASES[name])
    found, expected = counted(settings), products_of_a_step(made(settings))
    assert found == pytest.approx(expected, rel=TOLERANCE.get(name, 1e-6)), f"{found:,.0f} {expected:,.0f}"


@pytest.mark.parametrize("backbone", [{}, MODERN])
def test_a_frozen_model_costs_its_way_forward_and_nothing_from_samples(backbone, tmp_path):
    auxiliary = write_auxiliary(tmp_path / "auxiliary", model=backbone)
    own = {"use": "fast_electra", "auxiliary": str(auxiliary)}
    settings = small_settings(objective=own, model=backbone)
    objective = made(settings)
    objective.load_frozen({"auxiliary": auxiliary})
    config = load_masked_lm(auxiliary).config
    online = counted(settings, auxiliary=config)
    assert online == pytest.approx(products_of_a_step(objective), rel=1e-6)
    from_samples = counted(small_settings(objective=own | {"samples": "samples"}, model=backbone))
    forward = {"masked_lm": counted(small_settings(objective={"use": "masked_lm"}, model=backbone)) / 3}
    # The frozen model is as large as the discriminator here.
    assert online - from_samples == pytest.approx(forward["masked_lm"])


@pytest.mark.parametrize(
    ("objective", "named"),
    [
        ({"use": "fast_electra", "auxiliary": "somewhere"}, "objective.auxiliary"),
        ({"use": "mcl", "itd_weight": 0.0}, "objective.itd_weight"),
        ({"use": "ideas/mine.py:Mine"}, "objective.use"),
    ],
)
def test_what_cannot_be_counted_is_refused(objective, named):
    with pytest.raises(ProjectError, match=named) as caught:
        counted(small_settings(objective=objective))
    assert caught.value.key == named
