"""Initial weights: a function of the seed and of each parameter's name, whatever process builds it."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from electra_cli import keyed
from electra_cli.models.heads import DiscriminatorHead
from electra_cli.models.sharing import GradientDisentangledEmbeddings

CHUNK = 1 << 16
"""Values made at a time: 64-bit integers and floats that fit the cache."""


def initialise(module: nn.Module, *, seed: int, std: float) -> None:
    """Fill every parameter: matrices truncated normal at ±2 `std`, biases 0, LayerNorm 1 and 0.

    The differences of gradient-disentangled embeddings start at 0.

    The discriminator head's last matrix is Glorot uniform, as in the official code, which leaves that one
    layer to TensorFlow's default. A parameter with several names goes by the first in alphabetical order,
    so the order in which networks are built or registered does not matter.
    """
    special = _special_parameters(module)
    with torch.no_grad():
        for name, parameter in _named_once(module).items():
            kind = special.get(parameter, "matrix" if parameter.dim() > 1 else "zero")
            if kind == "matrix":
                parameter.copy_(truncated_normal(parameter.shape, std, seed, name))
            elif kind == "glorot":
                parameter.copy_(_glorot_uniform(parameter.shape, seed, name))
            else:
                parameter.fill_(1.0 if kind == "one" else 0.0)


def truncated_normal(shape: torch.Size, std: float, seed: int, name: str) -> Tensor:
    """Float32 values of a normal distribution cut at ±2 `std`, by its inverse distribution function."""
    low = torch.special.ndtr(torch.tensor(-2.0, dtype=torch.float64)).item()
    chunks = [
        (torch.special.ndtri(low + share * (1 - 2 * low)) * std).float()
        for share in _uniform_chunks(shape, seed, name)
    ]
    return torch.cat(chunks).view(shape)


def _glorot_uniform(shape: torch.Size, seed: int, name: str) -> Tensor:
    limit = math.sqrt(6 / (shape[0] + shape[1]))
    chunks = [((2 * share - 1) * limit).float() for share in _uniform_chunks(shape, seed, name)]
    return torch.cat(chunks).view(shape)


def _uniform_chunks(shape: torch.Size, seed: int, name: str) -> Iterator[Tensor]:
    key = keyed.key(seed, f"initial {name}")
    for start in range(0, shape.numel(), CHUNK):
        yield keyed.uniform(key, torch.arange(start, min(start + CHUNK, shape.numel())))


def _named_once(module: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter under the first of its names."""
    first: dict[nn.Parameter, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        first[parameter] = min(name, first.get(parameter, name))
    return {name: parameter for parameter, name in first.items()}


def _special_parameters(module: nn.Module) -> dict[Tensor, str]:
    special: dict[Tensor, str] = {}
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            special[part.weight] = "one"
        elif isinstance(part, DiscriminatorHead):
            special[part.prediction.weight] = "glorot"
        elif isinstance(part, GradientDisentangledEmbeddings):
            special.update(dict.fromkeys(part.differences().values(), "zero"))
    return special
