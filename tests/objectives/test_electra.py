"""The ELECTRA objective: what is shared, what reaches what, what the figures say."""

import itertools
import math

import pytest
import torch
from small_batches import (
    batch_of_pieces,
    losses_of,
    part_of,
    random_batch,
    small_settings,
    total_loss,
    vocabulary_facts,
    with_more_padding,
)

from electra_cli.data.batches import Batch
from electra_cli.errors import ProjectError
from electra_cli.objectives.electra import Electra
from electra_cli.optimization.update import NetworkUpdate
from electra_cli.training.weights import load_module_tensors

VOCABULARY = 120


def electra(**tables: dict[str, object]) -> Electra:
    return Electra(small_settings(**tables), vocabulary_facts(VOCABULARY))


def force_samples(objective: Electra, token_id: int) -> None:
    with torch.no_grad():
        objective.generator.head.bias_V[token_id] = 1e4


def corrupted_input(objective: Electra, batch: Batch) -> torch.Tensor:
    """What the discriminator gets to see."""
    seen = []
    hook = objective.discriminator.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    losses_of(objective, batch)
    hook.remove()
    return seen[0]


def gradients(objective: Electra, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    objective.zero_grad()
    loss.backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in objective.named_parameters()
    }


def is_generator_body(name: str) -> bool:
    return name.startswith("generator.") and ".embeddings." not in name


def test_pitfall_K13_samples_that_hit_the_original_are_labelled_original():
    objective = electra()
    force_samples(objective, 9)
    batch = batch_of_pieces([[[9] * 20], [[9] * 7, [9] * 9]], 32)
    losses = losses_of(objective, batch)
    figures = objective.summarise(losses.figures)
    assert torch.equal(corrupted_input(objective, batch), batch.token_ids_BS)
    assert figures["sampled_accuracy"] == 1.0 and figures["replaced_fraction"] == 0.0
    assert figures["disc_recall"] is None and figures["disc_auc"] is None


def test_pitfall_K13_another_sample_is_labelled_replaced_exactly_where_it_was_chosen():
    objective = electra()
    force_samples(objective, 10)
    batch = batch_of_pieces([[[9] * 20], [[9] * 7, [9] * 9]], 32)
    is_replaced_BS = corrupted_input(objective, batch) != batch.token_ids_BS
    chosen = objective.masking.choose(batch)
    expected = torch.zeros(2 * 32, dtype=torch.bool)
    expected[chosen.index_M[chosen.weight_M > 0]] = True
    assert torch.equal(is_replaced_BS.flatten(), expected)
    figures = objective.summarise(losses_of(objective, batch).figures)
    # 22 tokens give round(3.3) = 3 positions, 20 tokens 3.
    assert figures["replaced_fraction"] == 6 / 42
    assert figures["sampled_accuracy"] == 0.0


def test_pitfall_K13_the_discriminator_loss_reaches_the_generator_through_shared_embeddings_alone():
    objective, batch = electra(), random_batch(4, 32, VOCABULARY)
    found = gradients(objective, losses_of(objective, batch).sums["rtd"])
    for name, gradient in found.items():
        if is_generator_body(name):
            assert not gradient.any(), name
        elif name.startswith("discriminator."):
            assert gradient.any(), name
    shared = objective.generator.encoder.embeddings
    assert shared is objective.discriminator.encoder.embeddings
    assert all(p.grad is not None and p.grad.any() for p in shared.parameters())


def test_separate_embeddings_are_out_of_reach_of_the_other_loss():
    objective, batch = electra(generator={"sharing": "none"}), random_batch(4, 32, VOCABULARY)
    found = gradients(objective, losses_of(objective, batch).sums["rtd"])
    assert not any(g.any() for name, g in found.items() if name.startswith("generator."))
    found = gradients(objective, losses_of(objective, batch).sums["mlm"])
    assert not any(g.any() for name, g in found.items() if name.startswith("discriminator."))


def test_the_tied_tables_get_the_sum_of_both_gradients():
    objective, batch = electra(), random_batch(4, 32, VOCABULARY)
    losses = losses_of(objective, batch)
    one, other = (gradients(objective, losses_of(objective, batch).sums[name]) for name in ("mlm", "rtd"))
    both = gradients(objective, losses.sums["mlm"] + losses.sums["rtd"])
    for name, gradient in both.items():
        # float32: a sum of a few hundred terms in another order.
        torch.testing.assert_close(gradient, one[name] + other[name], rtol=1e-4, atol=1e-5)


def test_embeddings_are_shared_whole_and_projections_are_not():
    objective = electra(model={"embedding_size": 24})
    names = {name for name, _ in objective.named_parameters()}
    assert not any(name.startswith("generator.encoder.embeddings") for name in names)
    assert {f"{network}.encoder.projection.weight" for network in ("generator", "discriminator")} <= names
    embeddings = {name.rpartition("embeddings.")[2] for name in names if "embeddings" in name}
    assert embeddings == {
        "word_VE",
        "positions.weight",
        "segments.weight",
        "layer_norm.weight",
        "layer_norm.bias",
    }


def test_the_own_keys_are_checked_and_used():
    objective = Electra(
        small_settings(objective={"generator_weight": 2.0, "discriminator_weight": 7.5, "temperature": 0.5}),
        vocabulary_facts(VOCABULARY),
    )
    assert objective.updates[0].terms == {"mlm": 2.0, "rtd": 7.5}
    assert objective.temperature == 0.5
    with pytest.raises(ProjectError) as caught:
        electra(objective={"discriminator_weigth": 1.0, "temperature": -1.0})
    assert {problem.key for problem in caught.value.problems} == {
        "objective.discriminator_weigth",
        "objective.temperature",
    }


def test_whole_word_masking_needs_to_know_the_continuations():
    with pytest.raises(ProjectError) as caught:
        electra(masking={"whole_word": True})
    assert caught.value.key == "masking.whole_word"
    settings = small_settings(masking={"whole_word": True})
    objective = Electra(settings, vocabulary_facts(VOCABULARY, tuple(range(60, VOCABULARY))))
    assert "masking.continuation_V" not in objective.state_dict()
    batch = random_batch(4, 32, VOCABULARY)
    assert torch.isfinite(total_loss(objective, batch))
    assert objective.counts(batch)["mlm"] == losses_of(objective, batch).figures["num_chosen"]


def test_counts_are_the_chosen_positions_and_all_real_tokens():
    objective, batch = electra(), random_batch(5, 32, VOCABULARY)
    counts = objective.counts(batch)
    assert counts["mlm"] == objective.masking.choose(batch).weight_M.sum()
    assert counts["rtd"] == (batch.piece_BS > 0).sum()
    assert all(count.dtype == torch.float32 and count.dim() == 0 for count in counts.values())


def test_property_P18_micro_batches_add_up_to_the_batch():
    objective, batch = electra(), random_batch(6, 32, VOCABULARY)
    whole = gradients(objective, total_loss(objective, batch))
    counts, terms = objective.counts(batch), objective.updates[0].terms
    for cut in ([0, 3, 6], [0, 1, 2, 6]):
        parts = [part_of(batch, slice(a, b)) for a, b in itertools.pairwise(cut)]
        loss = torch.zeros(())
        for part in parts:
            sums = losses_of(objective, part).sums
            loss = loss + sum(terms[name] * sums[name] / counts[name] for name in terms)
        torch.testing.assert_close(loss, total_loss(objective, batch), rtol=1e-6, atol=0)
        for name, gradient in gradients(objective, loss).items():
            # 1e-6 of the largest value, plus float32's own rounding of sums in another order.
            scale = whole[name].abs().max().item()
            torch.testing.assert_close(gradient, whole[name], rtol=1e-5, atol=2e-6 * scale + 1e-7, msg=name)


def test_property_P19_padding_changes_no_loss_and_no_gradient():
    objective, batch = electra(), random_batch(4, 24, VOCABULARY)
    padded = with_more_padding(batch, 8, rows=2)
    plain, more = (gradients(objective, total_loss(objective, b)) for b in (batch, padded))
    torch.testing.assert_close(total_loss(objective, batch), total_loss(objective, padded), rtol=1e-6, atol=0)
    for name, gradient in more.items():
        scale = plain[name].abs().max().item()
        torch.testing.assert_close(gradient, plain[name], rtol=1e-5, atol=2e-6 * scale + 1e-7, msg=name)


def test_property_P19_the_order_of_the_rows_changes_no_loss():
    objective, batch = electra(), random_batch(6, 24, VOCABULARY)
    shuffled = part_of(batch, torch.tensor([3, 1, 5, 0, 4, 2]))
    torch.testing.assert_close(
        total_loss(objective, batch), total_loss(objective, shuffled), rtol=1e-6, atol=0
    )


def test_property_P20_rows_without_words_give_a_finite_loss_and_no_masked_term():
    objective, batch = electra(), batch_of_pieces([[[]], [[]], []], 16)
    losses = losses_of(objective, batch)
    assert losses.sums["mlm"] == 0 and objective.counts(batch)["mlm"] == 0
    assert torch.isfinite(losses.sums["rtd"]) and objective.counts(batch)["rtd"] == 4
    found = gradients(objective, total_loss(objective, batch))
    assert all(torch.isfinite(g).all() for g in found.values())
    assert objective.summarise(losses.figures)["sampled_accuracy"] is None


@pytest.mark.parametrize("words", [[9], [9, 8], [9, 8, 7]])
def test_pitfall_K10_a_tiny_row_gives_finite_losses(words):
    objective, batch = electra(), batch_of_pieces([[words]], 16)
    losses = losses_of(objective, batch)
    assert objective.counts(batch)["mlm"] == 1
    assert all(torch.isfinite(s) and s > 0 for s in losses.sums.values())


def test_a_batch_of_padding_alone_is_zero_and_finite():
    objective = electra()
    batch = batch_of_pieces([[], []], 16)
    assert all(s == 0 for s in losses_of(objective, batch).sums.values())
    assert all(torch.isfinite(g).all() for g in gradients(objective, total_loss(objective, batch)).values())


def test_the_same_seed_gives_the_same_loss_and_another_seed_another():
    batch = random_batch(4, 32, VOCABULARY)
    first, second, other = (total_loss(electra(project={"seed": seed}), batch).item() for seed in (3, 3, 4))
    assert first == second != other


def test_the_initial_loss_is_that_of_knowing_nothing():
    objective, batch = electra(), random_batch(16, 32, VOCABULARY, full=True)
    losses, counts = losses_of(objective, batch), objective.counts(batch)
    mlm, rtd = ((losses.sums[name] / counts[name]).item() for name in ("mlm", "rtd"))
    assert abs(mlm - math.log(VOCABULARY)) < 0.1
    assert abs(rtd - 0.693) < 0.15


def test_held_out_rows_have_draws_of_their_own():
    objective, batch = electra(), random_batch(8, 32, VOCABULARY, full=True)
    heldout = Batch(**{**vars(batch), "is_heldout": True})
    assert not torch.equal(objective.masking.choose(batch).index_M, objective.masking.choose(heldout).index_M)
    assert torch.equal(corrupted_input(objective, heldout), corrupted_input(objective, heldout))


def test_the_generator_samples_with_dropout_on_while_training():
    objective = electra(model={"dropout": 0.3})
    batch = random_batch(8, 32, VOCABULARY, full=True)
    torch.manual_seed(0)
    first = losses_of(objective, batch).sums["mlm"]
    assert losses_of(objective, batch).sums["mlm"] != first
    objective.eval()
    assert losses_of(objective, batch).sums["mlm"] == losses_of(objective, batch).sums["mlm"]


def test_temperature_flattens_the_samples_and_leaves_the_loss_alone():
    batch = random_batch(64, 32, VOCABULARY, full=True)
    sums, accuracies = [], []
    for temperature in (0.05, 1.0, 50.0):
        settings = small_settings(objective={"temperature": temperature})
        objective = Electra(settings, vocabulary_facts(VOCABULARY))
        with torch.no_grad():
            objective.generator.head.bias_V[:20] = 3.0
        losses = losses_of(objective, batch)
        sums.append(losses.sums["mlm"].item())
        sampled = corrupted_input(objective, batch)[corrupted_input(objective, batch) != batch.token_ids_BS]
        accuracies.append(float((sampled < 20).float().mean()))
    # The sums may be taken in another order.
    assert sums == pytest.approx([sums[0]] * 3, rel=1e-6)
    assert accuracies[0] > accuracies[1] > accuracies[2]


def test_case_C05_no_token_is_ever_replaced_by_padding():
    objective, batch = electra(), random_batch(64, 32, VOCABULARY, full=True)
    with torch.no_grad():
        # As likely as the 119 other ids together.
        objective.generator.head.bias_V[0] = 4.8
    assert not (corrupted_input(objective, batch) == 0).any()


def test_one_batch_is_learnt_by_heart():
    # Samples at temperature 2: a generator that knows the batch still errs, so there is something to detect.
    settings = small_settings(
        generator={"width": 64}, objective={"temperature": 2.0}, optimizer={"weight_decay": 0.0}
    )
    objective = Electra(settings, vocabulary_facts(VOCABULARY))
    batch = random_batch(8, 32, VOCABULARY, full=True)
    update = NetworkUpdate(objective, objective.updates[0], settings.optimizer)
    for step in range(250):
        update.clear_gradients()
        loss = total_loss(objective, batch)
        loss.backward()
        update.step(3e-3 * min(1.0, (step + 1) / 30) * (1 - step / 250), loss.detach())
    losses = losses_of(objective, batch)
    figures = objective.summarise(losses.figures)
    assert losses.sums["mlm"].item() / objective.counts(batch)["mlm"].item() < 0.05
    assert figures["replaced_fraction"] > 0.02
    assert figures["disc_auc"] > 0.99


# Torch's own tracer makes an instance of each autograd function that it meets.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_the_forward_pass_is_one_graph_that_never_waits_for_a_value():
    objective, batch = electra(), random_batch(4, 32, VOCABULARY)
    # `fullgraph` refuses what depends on a value: `.item()`, `if` on a tensor, a shape made from data.
    compiled = torch.compile(objective, backend="eager", fullgraph=True)
    losses = compiled(batch, "electra", torch.tensor(0.0))
    for name, expected in losses_of(objective, batch).sums.items():
        torch.testing.assert_close(losses.sums[name], expected, rtol=1e-6, atol=0)
    assert set(objective.counts(batch)) == {"mlm", "rtd"}


def test_case_C18_loading_keeps_shared_parameters_shared_and_the_optimizer_on_them():
    trained, fresh = electra(project={"seed": 1}), electra(project={"seed": 2})
    update = NetworkUpdate(fresh, fresh.updates[0], fresh.settings.optimizer)
    load_module_tensors(fresh, {name: p.detach() for name, p in trained.named_parameters()}, "a checkpoint")
    assert fresh.generator.encoder.embeddings is fresh.discriminator.encoder.embeddings
    held = {id(p) for group in update.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in fresh.parameters()}
    for name, parameter in fresh.named_parameters():
        assert torch.equal(parameter, trained.get_parameter(name)), name
