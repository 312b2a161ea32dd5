"""The device that a setting names, and the fastest arithmetic that it has; training and fine-tuning agree."""

from pathlib import Path
from typing import Literal

import torch

from electra_cli.errors import InputError

Precision = Literal["fp32", "bf16", "fp16"]


def resolve_device(text: str, local_rank: int = 0) -> torch.device:
    """The device of `pretrain.device`; "auto": this process's GPU if there is one, else the CPU.

    InputError where the device is not there.
    """
    if text == "auto":
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise InputError(
            f"pretrain.device = {text!r} is no device",
            key="pretrain.device",
            hint="auto, cpu, cuda, cuda:1 or mps",
        ) from error
    if device.type == "cuda":
        number = device.index if device.index is not None else local_rank
        # torch keeps the index in a signed byte: cuda:999 arrives negative.
        if not 0 <= number < torch.cuda.device_count():
            raise InputError(
                f"pretrain.device = {text!r}, but torch {torch.__version__} sees {torch.cuda.device_count()} "
                "CUDA devices",
                key="pretrain.device",
                hint='device = "auto" takes what is there',
            )
        return torch.device("cuda", number)
    is_there = device.type == "cpu" or (device.type == "mps" and torch.backends.mps.is_available())
    if not is_there:
        raise InputError(f"pretrain.device = {text!r} is not on this machine", key="pretrain.device")
    return device


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
