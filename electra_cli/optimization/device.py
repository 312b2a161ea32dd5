"""The device that a setting names, and the fastest arithmetic that it has; training and fine-tuning agree."""

import re
from pathlib import Path
from typing import Literal

import torch

from electra_cli.errors import InputError, ProjectError

Precision = Literal["fp32", "bf16", "fp16"]

_NAMES = re.compile(r"cpu|mps|cuda(?::(\d{1,6}))?")


def resolve_device(text: str, local_rank: int = 0) -> torch.device:
    """The device of `pretrain.device`; "auto": this process's GPU if there is one, else the CPU.

    ProjectError for a name that is no device, InputError where the device is not there.
    """
    if text == "auto":
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    named = _NAMES.fullmatch(text)
    if named is None:
        raise ProjectError(
            f'pretrain.device = "{text}" is no device',
            key="pretrain.device",
            hint="auto, cpu, cuda, cuda:1 or mps",
        )
    if text.startswith("cuda"):
        number = local_rank if named[1] is None else int(named[1])
        if number >= torch.cuda.device_count():
            raise InputError(
                f'pretrain.device = "{text}", but torch {torch.__version__} sees {torch.cuda.device_count()} '
                "CUDA devices",
                key="pretrain.device",
                hint='device = "auto" takes what is there',
            )
        return torch.device("cuda", number)
    if text == "mps" and not torch.backends.mps.is_available():
        raise InputError(
            'pretrain.device = "mps" is not on this machine',
            key="pretrain.device",
            hint='device = "auto" takes what is there',
        )
    return torch.device(text)


def natural_precision(device: torch.device) -> tuple[Precision, str]:
    """The fastest precision that the device computes natively."""
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16", "the GPU computes it natively"
        return "fp16", "the GPU has no bfloat16; the loss is scaled"
    if device.type == "cpu":
        found = sorted(cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"})
        if found:
            return "bf16", f"the CPU has {' and '.join(found)}"
        return "fp32", "the CPU has no bfloat16 arithmetic"
    return "fp32", f"{device.type} has no tested half precision"


def cpu_flags() -> frozenset[str]:
    """Instruction sets that Linux lists for the first processor; empty elsewhere."""
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return frozenset()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
