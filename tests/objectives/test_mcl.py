"""MCL: which course trains what, what a weight of 0 switches off, what is refused."""

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

from electra_cli.errors import ProjectError
from electra_cli.objectives.mcl import MCL

VOCABULARY = 120
DETECTION = ("rtd", "std", "itd", "re_rtd", "re_std")
RESTORATION = ("mlm", "slm", "re_mlm", "re_slm")


def mcl(objective: dict[str, object] | None = None, **tables: dict[str, object]) -> MCL:
    settings = small_settings(objective={"use": "mcl", **(objective or {})}, **tables)
    return MCL(settings, vocabulary_facts(VOCABULARY))


def only(*terms: str) -> dict[str, object]:
    """Weights that switch every other term off."""
    return {f"{term}_weight": 0.0 for term in (*RESTORATION, *DETECTION) if term not in terms}


def calls_of(objective: MCL, batch) -> dict[str, list[int]]:
    """Rows of each call of each network."""
    calls: dict[str, list[int]] = {"generator": [], "discriminator": []}
    hooks = [
        getattr(objective, name).register_forward_pre_hook(
            lambda _, inputs, name=name: calls[name].append(len(inputs[0]))
        )
        for name in calls
    ]
    losses_of(objective, batch)
    for hook in hooks:
        hook.remove()
    return calls


def gradients(objective: MCL, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    objective.zero_grad()
    loss.backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in objective.named_parameters()
    }


def test_the_weights_are_a_setting_for_each_term():
    assert mcl().updates[0].terms == {
        **dict.fromkeys(DETECTION, 50.0),
        **dict.fromkeys(RESTORATION, 1.0),
    }
    assert mcl({"itd_weight": 7.0}).updates[0].terms["itd"] == 7.0


@pytest.mark.parametrize(
    ("terms", "generator", "discriminator", "num_passes"),
    [
        (("mlm", "rtd"), [4], [4], 1),
        (("mlm",), [4], [], 1),
        (("itd",), [4], [4], 1),
        (("mlm", "rtd", "itd"), [8], [8], 2),
        (("rtd", "re_mlm"), [4, 4], [4], 2),
        (("std", "re_std"), [4], [4, 4], 2),
        (("mlm", "rtd", "slm", "std", "re_slm", "re_rtd"), [8, 4], [8, 4], 4),
    ],
)
def test_a_weight_of_zero_runs_no_pass_and_leaves_no_term(terms, generator, discriminator, num_passes):
    objective, batch = mcl(only(*terms)), random_batch(4, 32, VOCABULARY)
    losses = losses_of(objective, batch)
    assert set(losses.sums) == set(objective.counts(batch)) == set(objective.updates[0].terms) == set(terms)
    assert calls_of(objective, batch) == {"generator": generator, "discriminator": discriminator}
    assert objective.num_passes == num_passes
    objective.summarise(losses.figures)


def test_without_any_weight_there_is_nothing_to_do():
    with pytest.raises(ProjectError, match="every weight"):
        mcl(only())


@pytest.mark.parametrize("term", DETECTION)
def test_a_detection_loss_reaches_the_generator_through_shared_embeddings_alone(term):
    objective, batch = mcl(), random_batch(6, 32, VOCABULARY)
    found = gradients(objective, losses_of(objective, batch).sums[term])
    for name, gradient in found.items():
        # Only the tied tables of both networks stand under the discriminator's name.
        assert gradient.any() == name.startswith("discriminator."), name


@pytest.mark.parametrize("term", RESTORATION)
def test_a_restoration_loss_trains_the_generator_alone(term):
    objective, batch = mcl(generator={"sharing": "none"}), random_batch(6, 32, VOCABULARY)
    found = gradients(objective, losses_of(objective, batch).sums[term])
    for name, gradient in found.items():
        assert gradient.any() == name.startswith("generator."), name


def test_every_parameter_learns():
    objective, batch = mcl(), random_batch(6, 32, VOCABULARY)
    for name, gradient in gradients(objective, total_loss(objective, batch)).items():
        assert torch.isfinite(gradient).all() and gradient.any(), name


def test_property_P18_micro_batches_add_up_to_the_batch():
    objective, batch = mcl(), random_batch(6, 32, VOCABULARY)
    counts, terms = objective.counts(batch), objective.updates[0].terms
    whole = gradients(objective, total_loss(objective, batch))
    parts = [losses_of(objective, part_of(batch, slice(at, at + 2))).sums for at in (0, 2, 4)]
    loss = sum(terms[name] * sums[name] / counts[name] for sums in parts for name in terms)
    torch.testing.assert_close(loss, total_loss(objective, batch), rtol=1e-5, atol=0)
    for name, gradient in gradients(objective, loss).items():
        scale = whole[name].abs().max().item()
        torch.testing.assert_close(gradient, whole[name], rtol=1e-4, atol=1e-5 * scale + 1e-7, msg=name)


def test_property_P19_padding_changes_no_loss():
    objective, batch = mcl(), random_batch(4, 32, VOCABULARY)
    padded = with_more_padding(batch, 8, rows=2)
    torch.testing.assert_close(total_loss(objective, batch), total_loss(objective, padded), rtol=1e-6, atol=0)


@pytest.mark.parametrize("rows", [[[], []], [[[]], [[]]], [[[9]], []]])
def test_property_P20_rows_without_words_give_finite_losses(rows):
    objective, batch = mcl(), batch_of_pieces(rows, 16)
    losses = losses_of(objective, batch)
    assert all(torch.isfinite(s) for s in losses.sums.values())
    assert all(torch.isfinite(g).all() for g in gradients(objective, total_loss(objective, batch)).values())
    objective.summarise(losses.figures)


def test_rows_too_short_for_an_insertion_are_refused_with_both_values():
    with pytest.raises(ProjectError) as caught:
        mcl(rows={"sequence_length": 8}, masking={"fraction": 0.05})
    assert caught.value.key == "rows.sequence_length"
    assert "sequence_length = 8" in caught.value.message and "0.05" in caught.value.message
    mcl({"itd_weight": 0.0}, rows={"sequence_length": 8}, masking={"fraction": 0.05})


def test_a_sharing_that_mcl_does_not_have_is_refused():
    with pytest.raises(ProjectError) as caught:
        mcl(generator={"sharing": "gradient-disentangled"})
    assert caught.value.key == "generator.sharing" and "mcl" in caught.value.message


def test_the_figures_of_each_course_have_names_of_their_own():
    objective, batch = mcl(), random_batch(6, 32, VOCABULARY)
    figures = objective.summarise(losses_of(objective, batch).figures)
    plain = {"sampled_accuracy", "replaced_fraction", "disc_auc", "disc_precision", "disc_recall"}
    assert set(figures) == plain | {f"std_{name}" for name in plain} | {
        f"itd_{name}" for name in plain - {"sampled_accuracy"}
    }
    is_inserted = objective._lessons(batch)[2].is_inserted_BS
    num_longer = (objective._lessons(batch)[2].batch.piece_BS > 0).sum()
    assert figures["itd_replaced_fraction"] == pytest.approx(float(is_inserted.sum() / num_longer))


# Torch's own tracer makes an instance of each autograd function that it meets.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_the_forward_pass_is_one_graph_that_never_waits_for_a_value():
    objective, batch = mcl(), random_batch(3, 32, VOCABULARY)
    compiled = torch.compile(objective, backend="eager", fullgraph=True)
    losses = compiled(batch, "mcl", torch.tensor(0.0))
    for name, expected in losses_of(objective, batch).sums.items():
        torch.testing.assert_close(losses.sums[name], expected, rtol=1e-5, atol=0)
