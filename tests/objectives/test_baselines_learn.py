"""Each baseline, and Fast-ELECTRA, learns one batch by heart; the generator of ELECTRA 15 % stands still."""

from pathlib import Path

import pytest
from small_batches import random_batch, small_settings, total_loss, vocabulary_facts
from test_fast_electra import write_auxiliary

from electra_cli.objectives import find
from electra_cli.optimization.update import NetworkUpdate

VOCABULARY, STEPS = 120, 160
SYSTEMS = {
    "masked_lm": {"use": "masked_lm"},
    "replace_mlm": {"use": "replace_mlm"},
    "all_tokens_mlm": {"use": "replace_mlm", "positions": "all"},
    "electra_15": {"use": "electra", "discriminator_positions": "chosen", "generator_weight": 0.0},
    "fast_electra": {"use": "fast_electra"},
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_one_batch_is_learnt_by_heart(name: str, tmp_path: Path) -> None:
    settings = small_settings(objective=SYSTEMS[name], optimizer={"weight_decay": 0.0})
    objective = find(settings.objective.use, tmp_path)(settings, vocabulary_facts(VOCABULARY))
    if name == "fast_electra":
        objective.load_frozen({"auxiliary": write_auxiliary(tmp_path / "auxiliary")})
    batch = random_batch(4, 32, VOCABULARY, full=True)
    (update,) = objective.updates
    moved = NetworkUpdate(objective, update, settings.optimizer)
    first = total_loss(objective, batch).item()
    for step in range(STEPS):
        moved.clear_gradients()
        loss = total_loss(objective, batch)
        loss.backward()
        moved.step(5e-3 * min(1.0, (step + 1) / 20) * (1 - step / STEPS), loss.detach())
    assert total_loss(objective, batch).item() < 0.1 * first
