"""DeBERTaV3: its losses against NumPy, and who moves whom under each sharing and each order of updates."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy_deberta as plain
import pytest
import torch
from numpy_electra import Arrays, Piece
from small_batches import batch_of_pieces, random_batch, small_settings, vocabulary_facts
from torch import Tensor

from electra_cli.data.batches import Batch
from electra_cli.errors import ProjectError
from electra_cli.models.sharing import GradientDisentangledEmbeddings, share_embeddings
from electra_cli.models.sizes import EncoderConfig
from electra_cli.objectives import find
from electra_cli.objectives.base import Losses, Objective
from electra_cli.objectives.deberta_v3 import DebertaV3, Drawn
from electra_cli.optimization.update import NetworkUpdate

VOCABULARY, HEADS = 60, 2
PROGRESS = torch.tensor(0.0)


def make(
    sharing: str = "gradient-disentangled",
    *,
    objective: dict[str, object] | None = None,
    model: dict[str, object] | None = None,
    **tables: dict[str, object],
) -> DebertaV3:
    settings = small_settings(
        objective={"use": "deberta_v3"} | (objective or {}),
        model={"backbone": "deberta"} | (model or {}),
        generator={"width": 0, "depth_fraction": 0.5, "sharing": sharing},
        **({"masking": {"keep_fraction": 0.0}} | tables),
    )
    made = find("deberta_v3", Path())(settings, vocabulary_facts(VOCABULARY))
    assert isinstance(made, DebertaV3)
    return made


def run(objective: Objective, batch: Batch) -> dict[str, Tensor]:
    """The sums of all updates, in their order."""
    sums: dict[str, Tensor] = {}
    carry: object = None
    for update in objective.updates:
        losses = objective(batch, update.name, PROGRESS, carry)
        carry = losses.carry
        sums |= losses.sums
    return sums


def gradients(objective: Objective, loss: Tensor) -> dict[str, Tensor]:
    objective.zero_grad()
    loss.backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in objective.named_parameters()
    }


@dataclass
class Case:
    """A small model of float64, a batch, and the same in NumPy."""

    objective: DebertaV3
    batch: Batch
    arrays: Arrays
    pieces: list[Piece]


@pytest.fixture(scope="module", params=[16, 12], ids=["no projection", "projection"])
def case(request: pytest.FixtureRequest) -> Case:
    objective = make(
        model={"hidden_size": 16, "feed_forward_size": 24, "embedding_size": request.param, "num_layers": 3},
        masking={"fraction": 0.25, "keep_fraction": 0.0},
    ).double()
    random = np.random.default_rng(5)
    with torch.no_grad():
        for parameter in objective.parameters():
            # Biases and LayerNorms away from 0 and 1, E_Δ away from 0.
            parameter.add_(torch.from_numpy(random.normal(0, 0.25, parameter.shape)))
    words = random.integers(5, VOCABULARY, 20).tolist()
    batch = batch_of_pieces([[words[:7], words[7:11]], [words[11:]]], 20)
    arrays = {name: p.detach().numpy() for name, p in objective.named_parameters()}
    return Case(objective, batch, arrays, pieces_of(objective, batch))


def pieces_of(objective: DebertaV3, batch: Batch) -> list[Piece]:
    """The batch piece by piece, as our objective masks and corrupts it."""
    chosen = objective.masking.choose(batch)
    shown_BS = objective.masking.hide(batch, chosen).numpy()
    drawn = objective(batch, "generator", PROGRESS).carry
    assert isinstance(drawn, Drawn)
    corrupted_BS = drawn.corrupted_BS.numpy()
    is_chosen = np.zeros(shown_BS.shape, bool)
    is_chosen.flat[chosen.index_M[chosen.weight_M > 0].numpy()] = True
    pieces = []
    for row, number in enumerate(batch.piece_BS.numpy()):
        for piece in range(1, number.max() + 1):
            here = row, np.flatnonzero(number == piece)
            pieces.append(
                Piece(
                    original=batch.token_ids_BS.numpy()[here],
                    shown=shown_BS[here],
                    chosen=np.flatnonzero(is_chosen[here]),
                    corrupted=corrupted_BS[here],
                    segment=batch.segment_BS.numpy()[here],
                )
            )
    return pieces


def test_both_losses_equal_the_numpy_program(case):
    sums = run(case.objective, case.batch)
    assert len(case.pieces) == 3 and sum(len(piece.chosen) for piece in case.pieces) == 7
    # Sums are float32 whatever the weights.
    assert sums["mlm"].item() == pytest.approx(plain.mlm_sum(case.arrays, case.pieces, HEADS), rel=1e-6)
    assert sums["rtd"].item() == pytest.approx(plain.rtd_sum(case.arrays, case.pieces, HEADS), rel=1e-6)


@pytest.mark.parametrize("term", ["mlm", "rtd"])
def test_gradients_equal_central_differences_of_the_numpy_program(case, term):
    """Along random directions over all parameters; E_G is no parameter of the discriminator's loss."""
    found = gradients(case.objective, run(case.objective, case.batch)[term])
    program = plain.mlm_sum if term == "mlm" else plain.rtd_sum
    network = "generator" if term == "mlm" else "discriminator"
    random = np.random.default_rng(1)
    own = [name for name in case.arrays if name.startswith(network)]
    for _ in range(4):
        direction = {name: random.normal(size=case.arrays[name].shape) for name in own}
        expected = sum(
            sign * program(moved(case.arrays, direction, sign * 1e-6), case.pieces, HEADS) for sign in (1, -1)
        )
        along = sum(float((found[name].numpy() * direction[name]).sum()) for name in own)
        assert along == pytest.approx(expected / 2e-6, rel=1e-4)


def moved(arrays: Arrays, direction: Arrays, step: float) -> Arrays:
    return arrays | {name: arrays[name] + step * change for name, change in direction.items()}


def test_no_loss_of_the_discriminator_reaches_the_generators_tables_nor_the_other_way_round():
    """dL_RTD/dE_G = 0 and dL_MLM/dE_Δ = 0; each reaches its own."""
    objective, batch = make(), random_batch(4, 32, VOCABULARY)
    of_rtd = gradients(objective, run(objective, batch)["rtd"])
    of_mlm = gradients(objective, run(objective, batch)["mlm"])
    for name in of_rtd:
        is_generators = name.startswith("generator.")
        assert bool(of_rtd[name].any()) != is_generators, name
        assert bool(of_mlm[name].any()) == is_generators, name
    assert "discriminator.encoder.embeddings.own.word_VE" in of_rtd


def test_gradient_disentangled_starts_as_tied_and_each_table_is_one_parameter():
    objective, batch = make(), random_batch(4, 32, VOCABULARY)
    tables = objective.discriminator.encoder.embeddings
    assert isinstance(tables, GradientDisentangledEmbeddings)
    assert not tables.own.word_VE.any()
    assert torch.equal(tables.word_VE, objective.generator.encoder.embeddings.word_VE)
    tied = make("tied", objective={"update": "joint"})
    state = dict(objective.discriminator.encoder.plain_state())
    tied.discriminator.encoder.load_state_dict(state)
    tied.discriminator.head.load_state_dict(objective.discriminator.head.state_dict())
    drawn = objective(batch, "generator", PROGRESS).carry
    assert isinstance(drawn, Drawn)
    ours = objective.discriminator(drawn.corrupted_BS, batch)
    assert torch.equal(ours, tied.discriminator(drawn.corrupted_BS, batch))
    words = [name for name, _ in objective.named_parameters() if name.endswith("word_VE")]
    assert sorted(words) == [
        "discriminator.encoder.embeddings.own.word_VE",
        "generator.encoder.embeddings.word_VE",
    ]


def test_the_discriminator_reads_the_generators_tables_of_the_moment():
    objective, batch = make(), random_batch(2, 32, VOCABULARY)
    drawn = objective(batch, "generator", PROGRESS).carry
    before = objective(batch, "discriminator", PROGRESS, drawn).sums["rtd"]
    with torch.no_grad():
        # No common factor, which a LayerNorm would take out again.
        objective.generator.encoder.embeddings.word_VE.square_()
    assert not torch.equal(objective(batch, "discriminator", PROGRESS, drawn).sums["rtd"], before)


def test_every_chosen_token_is_hidden_and_no_unknown_one_is_chosen():
    objective = make()
    batch = batch_of_pieces([[[1, 9, 1, 1, 11, 12, 13, 1, 14]]], 16)
    chosen = objective.masking.choose(batch)
    used = chosen.index_M[chosen.weight_M > 0]
    assert len(used) == 2 and not (batch.token_ids_BS.flatten()[used] == 1).any()
    assert (objective.masking.hide(batch, chosen).flatten()[used] == 4).all()


def test_a_logit_depends_on_the_cls_of_its_own_piece_alone():
    objective = make()
    batch = batch_of_pieces([[[9, 10, 11], [12, 13, 14, 15]]], 16)
    hidden_BSD = torch.randn(1, 16, 32, generator=torch.Generator().manual_seed(0))
    head, changed_BSD = objective.discriminator.head, hidden_BSD.clone()
    # A constant would be lost in the LayerNorm.
    changed_BSD[:, 5] += torch.randn(32, generator=torch.Generator().manual_seed(1))
    before, after = (head(one, batch.position_BS) for one in (hidden_BSD, changed_BSD))
    is_changed = (before != after)[0]
    assert is_changed[5:11].all() and not is_changed[:5].any() and not is_changed[11:].any()


def train(objective: DebertaV3, batch: Batch, steps: int, learning_rate: float = 1e-3) -> list[Losses]:
    updates = [NetworkUpdate(objective, one, objective.settings.optimizer) for one in objective.updates]
    counts, seen = objective.counts(batch), []
    for _ in range(steps):
        carry: object = None
        for update in updates:
            update.clear_gradients()
            losses = objective(batch, update.update.name, PROGRESS, carry)
            carry = losses.carry
            terms = update.update.terms.items()
            loss = torch.stack([weight * losses.sums[t] / counts[t] for t, weight in terms]).sum()
            loss.backward()
            update.step(learning_rate, loss.detach())
            seen.append(losses)
    return seen


def test_with_a_generator_that_stands_still_both_orders_are_equal():
    batch = random_batch(4, 32, VOCABULARY)
    quiet = {"optimizer": {"weight_decay": 0.0}}
    # In the joint update a weight of 0 leaves the generator where it is.
    joint = make(objective={"update": "joint", "generator_weight": 0.0}, **quiet)
    apart = make(objective={"generator_learning_rate_scale": 0.0}, **quiet)
    start = {name: value.clone() for name, value in apart.state_dict().items()}
    train(joint, batch, 3)
    train(apart, batch, 3)
    for name, value in apart.named_parameters():
        assert torch.equal(value, start[name]) == name.startswith("generator."), name
        torch.testing.assert_close(value, joint.get_parameter(name), rtol=1e-5, atol=1e-7)


def test_for_the_same_tables_the_discriminators_gradients_are_those_of_the_joint_update():
    batch = random_batch(4, 32, VOCABULARY)
    apart, joint = make(), make(objective={"update": "joint"})
    drawn = apart(batch, "generator", PROGRESS).carry
    alone = gradients(apart, apart(batch, "discriminator", PROGRESS, drawn).sums["rtd"])
    both = gradients(joint, sum(run(joint, batch).values(), torch.zeros(())))
    for name, gradient in alone.items():
        if name.startswith("discriminator."):
            assert torch.equal(gradient, both[name]), name


def test_the_discriminators_update_sees_the_ids_of_before_and_the_tables_of_after():
    batch = random_batch(4, 32, VOCABULARY)
    objective = make()
    drawn = objective(batch, "generator", PROGRESS).carry
    (generated, detected) = train(objective, batch, 1)
    assert isinstance(drawn, Drawn) and isinstance(generated.carry, Drawn)
    assert torch.equal(generated.carry.corrupted_BS, drawn.corrupted_BS)
    fresh = make()
    untouched = fresh(batch, "discriminator", PROGRESS, drawn).sums["rtd"]
    assert not torch.equal(detected.sums["rtd"], untouched)


def test_each_update_has_its_own_rate_and_clip():
    objective = make(
        objective={
            "generator_learning_rate_scale": 0.5,
            "discriminator_learning_rate_scale": 2.0,
            "generator_clip_norm": 0.25,
        }
    )
    generator, discriminator = objective.updates
    assert (generator.networks, discriminator.networks) == (("generator",), ("discriminator",))
    assert (generator.learning_rate_scale, discriminator.learning_rate_scale) == (0.5, 2.0)
    assert (generator.clip_norm, discriminator.clip_norm) == (0.25, 1.0)
    assert generator.terms == {"mlm": 1.0} and discriminator.terms == {"rtd": 50.0}


def test_the_generator_is_as_wide_and_half_as_deep():
    objective = make(model={"num_layers": 6})
    ours, theirs = objective.generator.encoder.config, objective.discriminator.encoder.config
    assert (ours.hidden_size, ours.num_heads, ours.feed_forward_size) == (32, 2, 64)
    assert (ours.num_layers, theirs.num_layers) == (3, 6)


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"sharing": "tied"}, "generator.sharing", "decoupled"),
        ({"sharing": "all"}, "generator.sharing", "differ"),
        ({"model": {"backbone": "electra"}}, "objective.enhanced_mask_decoder", "electra"),
        (
            {"objective": {"update": "joint", "generator_learning_rate_scale": 0.5}},
            "objective",
            "generator_learning_rate_scale = 0.5",
        ),
        ({"objective": {"lambda": 1.0}}, "objective.lambda", "lambda"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, key, said):
    with pytest.raises(ProjectError) as caught:
        make(**changes)
    assert caught.value.key.startswith(key)
    assert said in caught.value.message


def test_tables_of_unequal_width_cannot_be_shared():
    def config(embedding_size: int) -> EncoderConfig:
        return EncoderConfig(
            vocab_size=9,
            num_layers=1,
            hidden_size=8,
            feed_forward_size=8,
            num_heads=1,
            embedding_size=embedding_size,
            max_positions=8,
            backbone="deberta",
        )

    with pytest.raises(ProjectError, match=r"8 columns.* 6"):
        share_embeddings("gradient-disentangled", config(8), config(6))
    share_embeddings("none", config(8), config(6))


def test_a_plain_generator_is_exported_and_the_sum_of_the_tables():
    objective = make(objective={"enhanced_mask_decoder": False})
    train(objective, random_batch(4, 32, VOCABULARY), 2, 1e-2)
    exports = objective.exports()
    assert set(exports) == {"encoder", "generator"} and objective.left_out() == {}
    enhanced = make()
    assert set(enhanced.exports()) == {"encoder"} and set(enhanced.left_out()) == {"generator"}
    shared = objective.generator.encoder.embeddings.word_VE
    own = objective.discriminator.encoder.embeddings
    assert isinstance(own, GradientDisentangledEmbeddings) and own.own.word_VE.any()
    word = exports["encoder"].tensors["embeddings.word_embeddings.weight"]
    torch.testing.assert_close(word, shared + own.own.word_VE, rtol=0, atol=0)
    assert exports["encoder"].rtd_head["layer_norm.weight"].shape == (32,)
