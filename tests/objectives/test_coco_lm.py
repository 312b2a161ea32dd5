"""COCO-LM: which loss trains what, samples without dropout, what is refused, what comes out."""

import pytest
import torch
from small_batches import (
    PADDING,
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
from electra_cli.objectives.coco_lm import CocoLM, correction_loss

VOCABULARY = 120


def coco_lm(objective: dict[str, object] | None = None, **tables: dict[str, object]) -> CocoLM:
    own = {"use": "coco_lm", "contrast_min_tokens": 8, "vector_size": 16, **(objective or {})}
    return CocoLM(small_settings(objective=own, **tables), vocabulary_facts(VOCABULARY))


def gradients(objective: CocoLM, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    objective.zero_grad()
    loss.backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in objective.named_parameters()
    }


def corrupted_input(objective: CocoLM, batch: Batch) -> torch.Tensor:
    """The rows that the encoder sees first; the crops lie below them."""
    seen = []
    hook = objective.discriminator.encoder.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    losses_of(objective, batch)
    hook.remove()
    return seen[0][: len(batch.sample_B)]


HEADS = {"copy": "copy_head", "clm": "corrective_head", "scl": "vector_head"}


@pytest.mark.parametrize("term", ["mlm", *HEADS])
def test_a_loss_trains_its_own_head_and_no_other(term):
    """In particular, the copy probability is a constant of the corrective loss."""
    objective, batch = coco_lm(generator={"sharing": "none"}), random_batch(6, 32, VOCABULARY)
    for name, gradient in gradients(objective, losses_of(objective, batch).sums[term]).items():
        if name.startswith("generator."):
            assert gradient.any() == (term == "mlm"), name
        elif "_head." in name:
            assert gradient.any() == (HEADS.get(term, "no head") in name), name
        elif ".segments." not in name:
            assert gradient.any() == (term != "mlm"), name


def test_every_parameter_learns():
    objective, batch = coco_lm(), random_batch(6, 32, VOCABULARY)
    for name, gradient in gradients(objective, total_loss(objective, batch)).items():
        assert torch.isfinite(gradient).all() and gradient.any(), name


def test_specials_and_padding_are_never_changed():
    objective, batch = coco_lm(), random_batch(20, 32, VOCABULARY)
    changed = corrupted_input(objective, batch) != batch.token_ids_BS
    assert changed.any() and (batch.token_ids_BS[changed] >= 5).all()


def test_the_corrective_loss_is_the_papers_mixture_or_the_released_form():
    log_prob = torch.tensor([0.2, 0.3, 0.2]).log().requires_grad_()
    logit = torch.tensor([0.25, 0.75, 0.75]).logit().requires_grad_()
    is_replaced = torch.tensor([False, False, True])
    mixture = correction_loss(log_prob, logit, is_replaced, is_weighted=False)
    # c + (1 - c) p where the token is the original, (1 - c) p elsewhere.
    torch.testing.assert_close(mixture.exp(), 1 / torch.tensor([0.4, 0.825, 0.05]))
    weighted = correction_loss(log_prob, logit, is_replaced, is_weighted=True)
    torch.testing.assert_close(weighted, -torch.tensor([0.75, 0.25, 0.25]) * log_prob)
    (mixture.sum() + weighted.sum()).backward()
    assert logit.grad is None and log_prob.grad.isfinite().all()


def test_samples_are_drawn_without_dropout_and_the_generator_learns_with_it():
    objective = coco_lm(model={"dropout": 0.3})
    batch = random_batch(8, 32, VOCABULARY, full=True)
    sampled, losses = [], []
    for _ in range(3):
        sampled.append(corrupted_input(objective, batch))
        losses.append(losses_of(objective, batch).sums["mlm"].item())
    assert objective.generator.training and objective.discriminator.encoder.embeddings.training
    assert torch.equal(sampled[0], sampled[1]) and torch.equal(sampled[0], sampled[2])
    assert len(set(losses)) == 3
    objective.eval()
    assert torch.equal(corrupted_input(objective, batch), sampled[0])
    assert not objective.generator.training


def test_a_generator_without_dropout_needs_one_pass_and_still_learns():
    objective = coco_lm({"generator_dropout": False}, model={"dropout": 0.3})
    batch, calls = random_batch(8, 32, VOCABULARY, full=True), []
    hook = objective.generator.register_forward_hook(lambda *_: calls.append(1))
    first, again = (losses_of(objective, batch).sums["mlm"] for _ in range(2))
    hook.remove()
    assert len(calls) == 2 and first == again
    first.backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.generator.head.parameters())


def test_without_contrast_there_is_no_second_view():
    objective, batch = coco_lm({"contrast_weight": 0.0}), random_batch(4, 32, VOCABULARY)
    assert set(objective.counts(batch)) == set(losses_of(objective, batch).sums) == {"mlm", "copy", "clm"}
    assert (objective.num_passes, objective.smallest_micro_batch) == (1, 1)
    assert objective.discriminator.vector_head is None
    assert (coco_lm().num_passes, coco_lm().smallest_micro_batch) == (2, 2)
    assert (objective.coupled_terms, coco_lm().coupled_terms) == (frozenset(), {"scl"})


def test_one_row_is_enough_where_other_processes_have_the_second(monkeypatch):
    own = {"contrast_negatives": "processes"}
    assert coco_lm(own).smallest_micro_batch == 2
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert coco_lm(own).smallest_micro_batch == 1
    assert coco_lm().smallest_micro_batch == 2


def test_rows_shorter_than_the_shortest_piece_are_refused_with_both_values():
    with pytest.raises(ProjectError) as caught:
        coco_lm({"contrast_min_tokens": 33})
    assert caught.value.key == "rows.sequence_length"
    assert "sequence_length = 32" in caught.value.message and "min_tokens = 33" in caught.value.message
    coco_lm({"contrast_min_tokens": 33, "contrast_weight": 0.0})


def test_property_P18_all_but_the_contrast_add_up_over_micro_batches():
    objective, batch = coco_lm(), random_batch(6, 32, VOCABULARY)
    whole = losses_of(objective, batch).sums
    parts = [losses_of(objective, part_of(batch, slice(at, at + 3))).sums for at in (0, 3)]
    counts = [objective.counts(part_of(batch, slice(at, at + 3))) for at in (0, 3)]
    for term in ("mlm", "copy", "clm"):
        torch.testing.assert_close(parts[0][term] + parts[1][term], whole[term], rtol=1e-5, atol=1e-5)
    # The contrast's divisor adds up all the same.
    assert counts[0]["scl"] + counts[1]["scl"] == objective.counts(batch)["scl"] > 3


def test_property_P19_padding_changes_no_loss():
    objective, batch = coco_lm(), random_batch(4, 24, VOCABULARY)
    padded = with_more_padding(batch, 8, rows=2)
    torch.testing.assert_close(total_loss(objective, batch), total_loss(objective, padded), rtol=1e-6, atol=0)


@pytest.mark.parametrize("rows", [[[], []], [[[]], [[]]], [[[9]], []], [[[9] * 10], []]])
def test_property_P20_rows_without_words_or_company_give_finite_losses(rows):
    objective, batch = coco_lm(), batch_of_pieces(rows, 16)
    losses = losses_of(objective, batch)
    assert losses.sums["scl"] == 0
    assert all(torch.isfinite(g).all() for g in gradients(objective, total_loss(objective, batch)).values())
    objective.summarise(losses.figures)


def test_the_copy_head_leaves_as_electras_head_with_the_sign_turned():
    objective, batch = coco_lm(), random_batch(4, 32, VOCABULARY)
    with torch.no_grad():
        objective.discriminator.copy_head.prediction.weight.mul_(30)
        objective.discriminator.copy_head.prediction.bias.fill_(0.7)
        given = batch.token_ids_BS, batch.piece_BS, batch.position_BS, batch.segment_BS
        exports = objective.exports()
        replaced = exports["discriminator"].run(*given)
        original = objective.discriminator.copy_head(exports["encoder"].run(*given))
    assert original.abs().max() > 3
    # float32: gelu's two halves are rounded each.
    torch.testing.assert_close(replaced, -original, rtol=1e-6, atol=2e-6)
    assert set(exports) == {"encoder", "discriminator", "generator"}
    assert not (exports["discriminator"].tensors["discriminator_predictions.dense.weight"][2:]).any()


def test_figures_say_replaced_as_electras_do():
    objective, batch = coco_lm(), random_batch(8, 32, VOCABULARY, full=True)
    with torch.no_grad():
        # Every token is "original" to the copy head.
        objective.discriminator.copy_head.prediction.bias.fill_(20.0)
    figures = objective.summarise(losses_of(objective, batch).figures)
    assert figures["disc_recall"] == 0.0 and figures["disc_precision"] is None
    assert 0 <= figures["contrast_accuracy"] <= 1 and figures["replaced_fraction"] > 0.1


def test_the_contrast_learns_to_find_the_partner():
    objective, batch = coco_lm({"contrast_temperature": 0.2}), random_batch(6, 32, VOCABULARY, full=True)
    optimizer = torch.optim.Adam(objective.parameters(), lr=3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        losses_of(objective, batch).sums["scl"].backward()
        optimizer.step()
    assert objective.summarise(losses_of(objective, batch).figures)["contrast_accuracy"] == 1.0


def test_case_C05_no_token_is_ever_replaced_by_padding():
    objective, batch = coco_lm(), random_batch(64, 32, VOCABULARY, full=True)
    with torch.no_grad():
        objective.generator.head.bias_V[PADDING] = 4.8
    assert not (corrupted_input(objective, batch) == PADDING).any()


# Torch's own tracer makes an instance of each autograd function that it meets.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_the_forward_pass_is_one_graph_that_never_waits_for_a_value():
    objective, batch = coco_lm(), random_batch(3, 32, VOCABULARY)
    compiled = torch.compile(objective, backend="eager", fullgraph=True)
    losses = compiled(batch, "coco_lm", torch.tensor(0.0))
    for name, expected in losses_of(objective, batch).sums.items():
        torch.testing.assert_close(losses.sums[name], expected, rtol=1e-5, atol=0)
