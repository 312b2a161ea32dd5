"""Learning rates that fall from the head down to the embeddings (Clark et al. 2020, Table 7)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from electra_cli.errors import ProjectError
from electra_cli.evaluation.classifier import Classifier
from electra_cli.models.sizes import EncoderConfig
from electra_cli.optimization.optimizer import UNCORRECTED_STEP, undecayed_parameters
from electra_cli.settings import Evaluate
from electra_cli.settings_protocols import PROTOCOLS, Exponent, Protocol

_TOP_LAYER_EXPONENT: dict[Exponent, int] = {"top": 0, "paper": 1, "google": 2}

_BY_SIZE = {"small": (3e-4, 0.8), "base": (1e-4, 0.8), "large": (5e-5, 0.9)}


@dataclass(frozen=True)
class Rates:
    """What the learning rates of a run follow from."""

    learning_rate: float
    """Peak of the head."""
    layer_decay: float
    exponent: Exponent


@dataclass(frozen=True)
class RateGroup:
    """Parameters with one learning rate."""

    name: str
    factor: float
    parameters: tuple[nn.Parameter, ...]


def size_of(config: EncoderConfig) -> str:
    """The published size whose rates fit a model of any origin.

    "large" from hidden size 1,024 or 24 layers, "base" from hidden size 512, "small" below.
    """
    if config.hidden_size >= 1024 or config.num_layers >= 24:
        return "large"
    return "base" if config.hidden_size >= 512 else "small"


def choose_rates(settings: Evaluate, config: EncoderConfig) -> Rates:
    """The settings' rates, and the size's where they are 0.

    Raises ProjectError for an exponent where the protocol has one of its own.
    """
    learning_rate, layer_decay = _BY_SIZE[size_of(config)]
    exponent = PROTOCOLS[settings.protocol].layer_decay_exponent
    if exponent is not None and settings.layer_decay_exponent != "paper":
        raise ProjectError(
            f'evaluate.layer_decay_exponent = "{settings.layer_decay_exponent}" would be ignored: '
            f'protocol "{settings.protocol}" has its own',
            key="evaluate.layer_decay_exponent",
            hint="remove it, or choose another evaluate.protocol",
        )
    return Rates(
        settings.learning_rate or learning_rate,
        settings.layer_decay or layer_decay,
        exponent or settings.layer_decay_exponent,
    )


def rate_factors(num_layers: int, rates: Rates) -> list[tuple[str, float]]:
    """Name and factor of each group from the top: head, layer n … 1, embeddings.

    To the head belongs what an encoder has above its layers: ModernBERT's last LayerNorm.

    "paper": the top layer has decay¹ and the embeddings decay^(n+1). "google": one more everywhere below the
    head, as in the official code, which still counts a pooler that it no longer has. "top": one less, so that
    the top layer learns like the head.
    """
    top = _TOP_LAYER_EXPONENT[rates.exponent]
    layers = [
        (f"layer {number}", rates.layer_decay ** (num_layers - number + top))
        for number in range(num_layers, 0, -1)
    ]
    return [("head", 1.0), *layers, ("embeddings", rates.layer_decay ** (num_layers + top))]


def rate_groups(classifier: Classifier, rates: Rates) -> list[RateGroup]:
    """Every parameter of the classifier in exactly one group."""
    encoder = classifier.encoder
    highest = [*classifier.head.parameters(), *encoder.parameters_above_the_layers()]
    modules = [list(layer.parameters()) for layer in reversed(encoder.layers)]
    members = [highest, *modules, encoder.parameters_below_the_layers()]
    factors = rate_factors(len(encoder.layers), rates)
    groups = [
        RateGroup(name, factor, tuple(parameters))
        for (name, factor), parameters in zip(factors, members, strict=True)
    ]
    assert sum(len(group.parameters) for group in groups) == len(list(classifier.parameters()))
    return groups


def make_optimizer(
    classifier: Classifier, groups: Sequence[RateGroup], *, protocol: Protocol, weight_decay: float
) -> torch.optim.AdamW:
    """AdamW with a parameter group for each rate; biases and LayerNorm are decayed if the protocol says so.

    Each group carries its `factor`; `set_learning_rate` multiplies it in.
    """
    undecayed = set() if protocol.decays_all else undecayed_parameters(classifier)
    made: list[dict[str, object]] = []
    for group in groups:
        decayed = [one for one in group.parameters if id(one) not in undecayed]
        plain = [one for one in group.parameters if id(one) in undecayed]
        for chosen, decay in ((decayed, weight_decay), (plain, 0.0)):
            if chosen:
                made.append({"params": chosen, "weight_decay": decay, "factor": group.factor})
    optimizer = torch.optim.AdamW(made, lr=0.0, betas=protocol.betas, eps=protocol.eps, fused=True)
    first_step = 0.0 if protocol.bias_correction else UNCORRECTED_STEP
    for parameter in classifier.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(first_step, dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


def set_learning_rate(optimizer: torch.optim.AdamW, rate: float, least: float = 0.0) -> None:
    """Give every group its share of the head's rate, on top of the least rate that all have."""
    for group in optimizer.param_groups:
        group["lr"] = least + rate * group["factor"]
