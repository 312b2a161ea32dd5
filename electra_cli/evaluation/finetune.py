"""One fine-tuning run: train on a task from a fresh copy of the encoder, then answer its dev splits."""

# B batch, C outputs, N examples

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from electra_cli import keyed
from electra_cli.evaluation.classifier import Classifier
from electra_cli.evaluation.encoding import Encoded, gather, scoring_batches, training_batches
from electra_cli.evaluation.layer_rates import Rates, make_optimizer, rate_groups, set_learning_rate
from electra_cli.evaluation.precision import Arithmetic
from electra_cli.optimization.schedule import learning_rate
from electra_cli.settings import Optimizer, Schedule

Outputs = NDArray[np.float32]

_SCORING_TOKENS = 8192
_TIMED_STEPS = 3
_CHECK_EVERY = 20


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
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    bias_correction: bool = False
    """The official code fine-tunes with the optimizer it pre-trains with, which has none."""
    clip_norm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """What a run learns from: whole numbers of classes, or scores scaled to [0, 1]."""

    encoded: Encoded
    target_N: NDArray[np.float64]
    is_regression: bool


def num_steps(num_examples: int, recipe: Recipe) -> int:
    """Optimizer steps of a run."""
    return recipe.epochs * -(-num_examples // recipe.batch_size)


def fine_tune(
    classifier: Classifier,
    initial: Mapping[str, Tensor],
    training: TrainingSet,
    recipe: Recipe,
    seed: int,
    arithmetic: Arithmetic,
    advance: Callable[[int], None] = lambda steps: None,
) -> str:
    """Train in place, from the encoder weights `initial`; returns why the run failed, or nothing.

    A run fails when its loss is not finite; it stops there. `advance` hears of finished steps.
    """
    classifier.encoder.load_state_dict(initial)
    classifier.reset_head(seed)
    # Only dropout draws from torch's generator.
    torch.manual_seed(keyed.key(seed, "fine-tuning dropout") & (2**63 - 1))
    classifier.train()
    optimizer = make_optimizer(
        classifier,
        rate_groups(classifier, recipe.rates),
        betas=recipe.betas,
        eps=recipe.eps,
        weight_decay=recipe.weight_decay,
        bias_correction=recipe.bias_correction,
    )
    total = num_steps(len(training.encoded), recipe)
    schedule = Schedule(warmup_steps=int(recipe.warmup_fraction * total))
    peak = Optimizer(learning_rate=recipe.rates.learning_rate)
    is_bad = torch.zeros((), dtype=torch.bool, device=arithmetic.device)
    step = 0
    for epoch in range(recipe.epochs):
        batches = training_batches(training.encoded.length_N, recipe.batch_size, seed=seed, epoch=epoch)
        for index_B in batches:
            set_learning_rate(optimizer, learning_rate(step, schedule, peak, total))
            loss = _train_step(classifier, training, index_B, optimizer, recipe, arithmetic)
            is_bad |= ~torch.isfinite(loss)
            step += 1
            advance(1)
            # Asking the device for its answer makes it wait; once in a while is soon enough.
            if (step % _CHECK_EVERY == 0 or step == total) and bool(is_bad):
                return f"the loss was not finite within the first {step} of {total} steps"
    return ""


def _train_step(
    classifier: Classifier,
    training: TrainingSet,
    index_B: NDArray[np.int64],
    optimizer: torch.optim.AdamW,
    recipe: Recipe,
    arithmetic: Arithmetic,
) -> Tensor:
    padding_id = classifier.encoder.config.padding_id
    batch = gather(training.encoded, index_B, padding_id, arithmetic.device)
    with arithmetic.autocast():
        output_BC = classifier(batch)
    target_B = torch.from_numpy(training.target_N[index_B].astype(np.float32)).to(arithmetic.device)
    loss = batch_loss(output_BC, target_B, is_regression=training.is_regression)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(classifier.parameters(), recipe.clip_norm)
    optimizer.step()
    return loss.detach()


def batch_loss(output_BC: Tensor, target_B: Tensor, *, is_regression: bool) -> Tensor:
    """Mean cross entropy over the classes, or mean squared error of the one output."""
    if not is_regression:
        return F.cross_entropy(output_BC, target_B.long())
    # [B, 1] against [B] would broadcast to [B, B] without a word.
    assert output_BC.shape == (target_B.shape[0], 1)
    return F.mse_loss(output_BC[:, 0], target_B)


def answer(classifier: Classifier, encoded: Encoded, arithmetic: Arithmetic) -> Outputs:
    """Outputs [N, C] in the order of the examples, without dropout."""
    classifier.eval()
    output_NC = np.empty((len(encoded), classifier.output.out_features), dtype=np.float32)
    padding_id = classifier.encoder.config.padding_id
    with torch.inference_mode():
        for index_B in scoring_batches(encoded.length_N, _SCORING_TOKENS):
            with arithmetic.autocast():
                output_BC = classifier(gather(encoded, index_B, padding_id, arithmetic.device))
            output_NC[index_B] = output_BC.float().cpu().numpy()
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
    optimizer = make_optimizer(
        classifier,
        rate_groups(classifier, recipe.rates),
        betas=recipe.betas,
        eps=recipe.eps,
        weight_decay=0.0,
        bias_correction=False,
    )
    tokens = len(middle) * int(lengths[middle].max())
    _train_step(classifier, training, middle, optimizer, recipe, arithmetic)
    start = time.perf_counter()
    for _ in range(_TIMED_STEPS):
        _train_step(classifier, training, middle, optimizer, recipe, arithmetic).item()
    train = (time.perf_counter() - start) / _TIMED_STEPS / tokens
    start = time.perf_counter()
    classifier.eval()
    with torch.inference_mode(), arithmetic.autocast():
        padding_id = classifier.encoder.config.padding_id
        classifier(gather(training.encoded, middle, padding_id, arithmetic.device)).sum().item()
    return Pace(train, (time.perf_counter() - start) / tokens)
