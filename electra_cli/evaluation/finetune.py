"""One fine-tuning run: train on a task from a fresh copy of the encoder, then answer its dev splits."""

# B batch, S sequence, D hidden, C outputs, N examples

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol as TypingProtocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from electra_cli import keyed
from electra_cli.evaluation.classifier import Classifier, mean_pooled
from electra_cli.evaluation.early_stopping import BestEpoch
from electra_cli.evaluation.encoding import Encoded, TextBatch, gather, scoring_batches, training_batches
from electra_cli.evaluation.layer_rates import Rates, make_optimizer, rate_groups, set_learning_rate
from electra_cli.evaluation.precision import Arithmetic
from electra_cli.evaluation.rate_schedule import SCHEDULES, Course
from electra_cli.settings_protocols import ELECTRA, Protocol

Outputs = NDArray[np.float32]

_SCORING_TOKENS = 8192
_TIMED_STEPS = 3
_CHECK_EVERY = 20


class Advance(TypingProtocol):
    """Hears of finished steps, and of an epoch's score."""

    def __call__(self, amount: int = 1, *, note: str = "") -> None: ...


def unheard(amount: int = 1, *, note: str = "") -> None:
    """For a caller that shows no progress."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything but the seed that shapes a run; part of what identifies a finished one."""

    epochs: int
    batch_size: int
    rates: Rates
    weight_decay: float
    warmup_fraction: float
    dropout: float
    sequence_length: int
    protocol: Protocol = ELECTRA


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """What a run learns from: whole numbers of classes, or scores scaled to [0, 1]."""

    encoded: Encoded
    target_N: NDArray[np.float64]
    is_regression: bool


def steps_per_epoch(num_examples: int, recipe: Recipe) -> int:
    """Optimizer steps of a pass over the training examples."""
    return -(-num_examples // recipe.batch_size)


def num_steps(num_examples: int, recipe: Recipe) -> int:
    """Optimizer steps of a run, at most."""
    return recipe.epochs * steps_per_epoch(num_examples, recipe)


def fine_tune(
    classifier: Classifier,
    initial: Mapping[str, Tensor],
    training: TrainingSet,
    recipe: Recipe,
    seed: int,
    arithmetic: Arithmetic,
    advance: Advance = unheard,
    validate: Callable[[], float | None] | None = None,
) -> str:
    """Train in place, from the encoder weights `initial`; returns why the run failed, or nothing.

    A run fails when its loss is not finite; it stops there. `validate` gives the score of the classifier as
    it is; a protocol with patience asks after every epoch, and leaves the weights of the best one behind.
    """
    classifier.encoder.load_state_dict(initial)
    classifier.head.reset(seed)
    # Only dropout draws from torch's generator.
    torch.manual_seed(keyed.key(seed, "fine-tuning dropout") & (2**63 - 1))
    run = Run(classifier, training, recipe, arithmetic)
    protocol = recipe.protocol
    best = BestEpoch(classifier, patience=protocol.patience, least_gain=protocol.least_gain)
    for epoch in range(1, recipe.epochs + 1):
        failure = run.epoch(seed, epoch - 1, advance)
        if failure:
            return failure
        if protocol.patience and validate is not None:
            score = validate()
            best.hear(epoch, score)
            shown = "no score" if score is None else f"dev {score:.4f}"
            advance(0, note=f"epoch {epoch}: {shown}, best of epoch {best.epoch}")
            if best.is_over(epoch):
                break
    best.restore()
    return ""


class Run:
    """The optimizer of a run and its step."""

    def __init__(
        self, classifier: Classifier, training: TrainingSet, recipe: Recipe, arithmetic: Arithmetic
    ) -> None:
        self.classifier, self.training, self.arithmetic = classifier, training, arithmetic
        self.recipe = recipe
        self.optimizer = make_optimizer(
            classifier,
            rate_groups(classifier, recipe.rates),
            protocol=recipe.protocol,
            weight_decay=recipe.weight_decay,
        )
        self.course = Course(
            protocol=recipe.protocol,
            peak=recipe.rates.learning_rate,
            warmup_fraction=recipe.warmup_fraction,
            num_epochs=recipe.epochs,
            steps_per_epoch=steps_per_epoch(len(training.encoded), recipe),
        )
        self.schedule = SCHEDULES[recipe.protocol.schedule]
        self.step = 0
        self.is_bad = torch.zeros((), dtype=torch.bool, device=arithmetic.device)

    def epoch(self, seed: int, epoch: int, advance: Advance) -> str:
        """One pass over the training examples; returns why the run failed, or nothing."""
        self.classifier.train()
        lengths = self.training.encoded.length_N
        for index_B in training_batches(lengths, self.recipe.batch_size, seed=seed, epoch=epoch):
            rate = self.schedule(self.step, self.course)
            set_learning_rate(self.optimizer, rate.rate, rate.least)
            self.is_bad |= ~torch.isfinite(self.update(index_B))
            self.step += 1
            advance(1)
            # Asking the device for its answer makes it wait; once in a while is soon enough.
            is_due = self.step % _CHECK_EVERY == 0 or self._may_be_last()
            if is_due and bool(self.is_bad):
                return f"the loss was not finite within the first {self.step} of {self.course.total} steps"
        return ""

    def _may_be_last(self) -> bool:
        is_end_of_epoch = self.step % self.course.steps_per_epoch == 0
        return is_end_of_epoch and (self.recipe.protocol.patience > 0 or self.step == self.course.total)

    def update(self, index_B: NDArray[np.int64]) -> Tensor:
        """One optimizer step on these examples; the mean loss over them, 0-d."""
        protocol = self.recipe.protocol
        self.optimizer.zero_grad(set_to_none=True)
        size = protocol.micro_batch_size or len(index_B)
        losses: list[Tensor] = []
        for start in range(0, len(index_B), size):
            part = index_B[start : start + size]
            loss = self._loss(part) * (len(part) / len(index_B))
            torch.autograd.backward(loss)
            losses.append(loss.detach())
        if protocol.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.classifier.parameters(), protocol.clip_norm)
        self.optimizer.step()
        return torch.stack(losses).sum()

    def _loss(self, index_B: NDArray[np.int64]) -> Tensor:
        training, device = self.training, self.arithmetic.device
        batch = gather(training.encoded, index_B, self.classifier.encoder.config.padding_id, device)
        with self.arithmetic.autocast():
            output_BC = self.classifier(batch)
        target_B = torch.from_numpy(training.target_N[index_B].astype(np.float32)).to(device)
        return batch_loss(output_BC, target_B, is_regression=training.is_regression)


def batch_loss(output_BC: Tensor, target_B: Tensor, *, is_regression: bool) -> Tensor:
    """Mean cross entropy over the classes, or mean squared error of the one output."""
    if not is_regression:
        return F.cross_entropy(output_BC, target_B.long())
    # [B, 1] against [B] would broadcast to [B, B] without a word.
    assert output_BC.shape == (target_B.shape[0], 1)
    return F.mse_loss(output_BC[:, 0], target_B)


@dataclass(frozen=True)
class Reading:
    """What a classifier makes of examples, in their order."""

    output_NC: Outputs
    state_ND: NDArray[np.float32]
    """Mean of the last hidden states over the real tokens."""


def read(classifier: Classifier, encoded: Encoded, arithmetic: Arithmetic) -> Reading:
    """Outputs and pooled states, without dropout."""
    state_ND = np.empty((len(encoded), classifier.encoder.config.hidden_size), dtype=np.float32)

    def keep(index_B: NDArray[np.int64], batch: TextBatch, hidden_BSD: Tensor) -> None:
        state_ND[index_B] = mean_pooled(hidden_BSD, batch.piece_BS).cpu().numpy()

    return Reading(answer(classifier, encoded, arithmetic, keep), state_ND)


def answer(
    classifier: Classifier,
    encoded: Encoded,
    arithmetic: Arithmetic,
    look: Callable[[NDArray[np.int64], TextBatch, Tensor], None] | None = None,
) -> Outputs:
    """Outputs [N, C] in the order of the examples, without dropout.

    `look` gets the places in that order, the batch and the hidden states [B, S, D] of a few at a time.
    """
    classifier.eval()
    output_NC = np.empty((len(encoded), classifier.num_outputs), dtype=np.float32)
    padding_id = classifier.encoder.config.padding_id
    with torch.inference_mode():
        for index_B in scoring_batches(encoded.length_N, _SCORING_TOKENS):
            batch = gather(encoded, index_B, padding_id, arithmetic.device)
            with arithmetic.autocast():
                hidden_BSD = classifier.states(batch)
            output_NC[index_B] = classifier.outputs(hidden_BSD, batch).cpu().numpy()
            if look is not None:
                look(index_B, batch, hidden_BSD)
    return output_NC


@dataclass(frozen=True)
class Pace:
    """Seconds a padded token takes, as a few timed steps showed."""

    train: float
    score: float


def measure_pace(
    classifier: Classifier, training: TrainingSet, recipe: Recipe, arithmetic: Arithmetic
) -> Pace:
    """Time a few steps, the first one apart. The weights move: whoever trains afterwards reloads them."""
    lengths = training.encoded.length_N
    batches = list(training_batches(lengths, recipe.batch_size, seed=0, epoch=0))
    middle = sorted(batches, key=lambda index_B: int(lengths[index_B].max()))[len(batches) // 2]
    classifier.train()
    run = Run(classifier, training, recipe, arithmetic)
    tokens = len(middle) * int(lengths[middle].max())
    run.update(middle)
    start = time.perf_counter()
    for _ in range(_TIMED_STEPS):
        run.update(middle).item()
    train = (time.perf_counter() - start) / _TIMED_STEPS / tokens
    start = time.perf_counter()
    classifier.eval()
    with torch.inference_mode(), arithmetic.autocast():
        padding_id = classifier.encoder.config.padding_id
        classifier(gather(training.encoded, middle, padding_id, arithmetic.device)).sum().item()
    return Pace(train, (time.perf_counter() - start) / tokens)
