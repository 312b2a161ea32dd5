"""Adam with decoupled weight decay (Loshchilov & Hutter 2019) on float32 master weights.

The official ELECTRA optimizer has no bias correction. AdamW divides its moments by 1 − βᵗ; with t counted
from 10⁸ both divisors are exactly 1 in float32, so the same fused kernel serves both.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from electra_cli.settings import Optimizer

# βᵗ is 0 in double precision for every β below 1 − 10⁻⁶.
UNCORRECTED_STEP = 1e8

_NORMS = (nn.LayerNorm, nn.RMSNorm)


def owned_parameters(module: nn.Module, networks: Iterable[str]) -> dict[str, dict[str, nn.Parameter]]:
    """Parameters of the named children, by network and by full name; a shared one belongs to the first."""
    seen: set[int] = set()
    owned: dict[str, dict[str, nn.Parameter]] = {}
    for network in networks:
        child = module.get_submodule(network)
        owned[network] = {}
        for name, parameter in child.named_parameters(prefix=network):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                owned[network][name] = parameter
    return owned


def undecayed_parameters(module: nn.Module) -> set[int]:
    """`id` of each parameter that weight decay leaves alone: biases, and all of a normalisation layer."""
    undecayed: set[int] = set()
    for child in module.modules():
        for name, parameter in child.named_parameters(recurse=False):
            if isinstance(child, _NORMS) or name.startswith("bias"):
                undecayed.add(id(parameter))
    return undecayed


def make_optimizer(
    module: nn.Module, parameters: Iterable[nn.Parameter], settings: Optimizer
) -> torch.optim.AdamW:
    """AdamW over `parameters`, decaying all but biases and normalisation layers, with its state in place.

    The fused kernel reads and writes each value once (3.8 times the speed of the plain loop for
    electra-small on a CPU core), is elementwise and so deterministic, and can skip a step on the device.
    """
    undecayed = undecayed_parameters(module)
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for parameter in parameters:
        (plain if id(parameter) in undecayed else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=(settings.betas[0], settings.betas[1]),
        eps=settings.eps,
        fused=True,
    )
    first_step = 0.0 if settings.bias_correction else UNCORRECTED_STEP
    for parameter in (*decayed, *plain):
        optimizer.state[parameter] = {
            "step": torch.tensor(first_step, dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        }
    return optimizer


def optimizer_tensors(optimizer: torch.optim.AdamW, names: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """The optimizer's state as tensors named `<kind>.<parameter>`."""
    return {
        f"{kind}.{name}": optimizer.state[parameter][kind]
        for name, parameter in names.items()
        for kind in ("exp_avg", "exp_avg_sq", "step")
    }


def load_optimizer_tensors(
    optimizer: torch.optim.AdamW, names: dict[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    """Copy state written by `optimizer_tensors` back in place; raises KeyError for a missing tensor."""
    for name, value in optimizer_tensors(optimizer, names).items():
        value.copy_(tensors[name])
