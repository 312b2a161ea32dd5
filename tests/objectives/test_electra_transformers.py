"""Fifty steps of ours against a loop written with transformers' classes, given the same masks and samples."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from small_batches import losses_of, part_of, random_batch, small_settings, total_loss, vocabulary_facts

from electra_cli.data.batches import Batch
from electra_cli.objectives.electra import Electra
from electra_cli.optimization.schedule import learning_rate
from electra_cli.optimization.update import NetworkUpdate

transformers = pytest.importorskip("transformers")

VOCABULARY, STEPS, LENGTH = 211, 50, 31


@dataclass
class Seen:
    """One step of ours, as the other loop must repeat it."""

    batch: Batch
    masked_BS: torch.Tensor
    corrupted_BS: torch.Tensor
    chosen_BS: torch.Tensor
    losses: dict[str, float]


def settings_of(embedding_size: int):
    return small_settings(
        rows={"sequence_length": LENGTH},
        model={"embedding_size": embedding_size},
        optimizer={"learning_rate": 2e-3},
        schedule={"warmup_steps": 10},
        pretrain={"steps": STEPS},
    )


def batches() -> Iterator[Batch]:
    """Rows of one piece, since transformers knows no pieces; some have padding."""
    for step in range(STEPS):
        batch = random_batch(24, LENGTH, VOCABULARY, seed=step, first_sample=100 * step)
        single = part_of(batch, batch.piece_BS.amax(1) == 1)
        yield part_of(single, slice(0, 6))


def our_steps(objective: Electra) -> Iterator[Seen]:
    settings = objective.settings
    update = NetworkUpdate(objective, objective.updates[0], settings.optimizer)
    seen: dict[str, torch.Tensor] = {}
    for net in ("generator", "discriminator"):
        getattr(objective, net).register_forward_pre_hook(
            lambda _, inputs, net=net: seen.update({net: inputs[0]})
        )
    for step, batch in enumerate(batches()):
        update.clear_gradients()
        losses, counts = losses_of(objective, batch), objective.counts(batch)
        terms = objective.updates[0].terms
        loss = sum(terms[name] * losses.sums[name] / counts[name] for name in terms)
        loss.backward()
        update.step(learning_rate(step, settings.schedule, settings.optimizer, STEPS), loss.detach())
        chosen = objective.masking.choose(batch)
        chosen_BS = torch.zeros(batch.token_ids_BS.numel(), dtype=torch.bool)
        chosen_BS[chosen.index_M[chosen.weight_M > 0]] = True
        yield Seen(
            batch=batch,
            masked_BS=seen["generator"],
            corrupted_BS=seen["discriminator"],
            chosen_BS=chosen_BS.view_as(batch.token_ids_BS),
            losses={
                **{name: (losses.sums[name] / counts[name]).item() for name in terms},
                "total": loss.item(),
            },
        )


class Straightforward:
    """ELECTRA as one writes it with transformers: two models that share their embeddings module."""

    def __init__(self, objective: Electra) -> None:
        folders = objective.exports()
        self.generator = self._load(transformers.ElectraForMaskedLM, folders["generator"])
        self.discriminator = self._load(transformers.ElectraForPreTraining, folders["discriminator"])
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        table = self.discriminator.electra.embeddings.word_embeddings.weight
        self.generator.generator_lm_head.weight = table
        self.named = {
            id(p): (name, p)
            for model in (self.discriminator, self.generator)
            for name, p in model.named_parameters()
        }
        self.moments = {key: (torch.zeros_like(p), torch.zeros_like(p)) for key, (_, p) in self.named.items()}

    @staticmethod
    def _load(architecture, folder):
        model = architecture(transformers.ElectraConfig(**folder.config))
        wanted = {name: value.clone() for name, value in folder.tensors.items()}
        missing, unexpected = model.load_state_dict(wanted, strict=False)
        assert not unexpected
        # The tied output table and the buffers of positions are not stored.
        assert {name.rpartition(".")[2] for name in missing} <= {"weight", "position_ids", "token_type_ids"}
        model.tie_weights()
        return model.train()

    def losses(self, seen: Seen) -> dict[str, torch.Tensor]:
        inputs = {
            "attention_mask": (seen.batch.piece_BS > 0).long(),
            "token_type_ids": seen.batch.segment_BS,
        }
        original_BS = seen.batch.token_ids_BS
        mlm = self.generator(
            seen.masked_BS, labels=original_BS.masked_fill(~seen.chosen_BS, -100), **inputs
        ).loss
        is_replaced_BS = (seen.corrupted_BS != original_BS).long()
        rtd = self.discriminator(seen.corrupted_BS, labels=is_replaced_BS, **inputs).loss
        return {"mlm": mlm, "rtd": rtd, "total": mlm + 50 * rtd}

    def step(self, loss: torch.Tensor, rate: float) -> None:
        """Adam as in the official code: clip to norm 1, no bias correction, decay outside the moments."""
        parameters = [p for _, p in self.named.values()]
        for p in parameters:
            p.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        with torch.no_grad():
            for key, (name, p) in self.named.items():
                mean, square = self.moments[key]
                mean.mul_(0.9).add_(0.1 * p.grad)
                square.mul_(0.999).add_(0.001 * p.grad**2)
                change = mean / (square.sqrt() + 1e-6)
                if "LayerNorm" not in name and "bias" not in name and "layer_norm" not in name:
                    change = change + 0.01 * p
                p.sub_(rate * change)


@pytest.mark.parametrize("embedding_size", [24, 32], ids=["projected", "not projected"])
def test_fifty_steps_equal_a_loop_written_with_transformers(embedding_size):
    settings = settings_of(embedding_size)
    objective = Electra(settings, vocabulary_facts(VOCABULARY))
    theirs = Straightforward(objective)
    first = last = 0.0
    for step, seen in enumerate(our_steps(objective)):
        losses = theirs.losses(seen)
        for name, ours in seen.losses.items():
            assert losses[name].item() == pytest.approx(ours, rel=1e-5), f"{name} at step {step}"
        rate = 2e-3 * (1 - step / STEPS) * min(1.0, step / 10)
        theirs.step(losses["total"], rate)
        first, last = first or seen.losses["total"], seen.losses["total"]
    # The steps did move the weights.
    assert last < 0.8 * first
    assert total_loss(objective, next(batches())).isfinite()
