"""The tensors of a module as a checkpoint holds them: each once, whatever is shared."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from electra_cli.errors import CorruptError


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; a shared one stands under its first name alone.

    A parameter that is frozen belongs to the folder that it came from, and is left out.
    """
    persistent = set(module.state_dict())
    tensors: dict[str, Tensor] = {
        name: one.detach() for name, one in module.named_parameters() if one.requires_grad
    }
    tensors |= {name: one for name, one in module.named_buffers() if name in persistent}
    return tensors


def load_module_tensors(module: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    """Copy tensors written by `module_tensors` into a module; CorruptError names what does not fit."""
    own = module_tensors(module)
    missing, foreign = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or foreign:
        raise CorruptError(f"{what} does not fit the model: missing {missing[:3]}, unknown {foreign[:3]}")
    for name, value in own.items():
        if value.shape != tensors[name].shape:
            raise CorruptError(
                f"{what}: {name} has the shape {tuple(tensors[name].shape)}, "
                f"the model needs {tuple(value.shape)}"
            )
        value.copy_(tensors[name])


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no value is NaN or infinite; waits for the device once."""
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    if not floating:
        return True
    sums = torch.stack([torch.isfinite(tensor).all() for tensor in floating])
    return bool(sums.all())


def count_parameters(module: nn.Module) -> dict[str, int]:
    """Parameters of each child network; a shared table counts in every network that uses it."""
    counts = {
        name: sum(parameter.numel() for parameter in child.parameters())
        for name, child in module.named_children()
    }
    return {name: count for name, count in counts.items() if count}


def in_words(counts: Mapping[str, int]) -> str:
    """`discriminator 13.5 M · generator 3.4 M`; below a hundred thousand in thousands."""
    return " · ".join(
        f"{name} {count / 1e6:.1f} M" if count >= 1e5 else f"{name} {count / 1e3:.1f} k"
        for name, count in counts.items()
    )
