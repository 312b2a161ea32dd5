"""In which arithmetic fine-tuning multiplies matrices."""

from dataclasses import dataclass

import torch

from electra_cli.errors import InputError


@dataclass(frozen=True)
class Arithmetic:
    """The choice, and why."""

    name: str
    """bf16 or fp32."""
    reason: str
    device: torch.device

    def autocast(self) -> torch.autocast:
        """The context to run a forward pass in."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.name == "bf16")


def choose_device(wanted: str) -> torch.device:
    """The device of `pretrain.device`; `auto`: a GPU if there is one, else the CPU."""
    if wanted != "auto":
        try:
            device = torch.device(wanted)
        except RuntimeError as error:
            raise InputError(f"pretrain.device = {wanted!r} is no device", key="pretrain.device") from error
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(
                f"pretrain.device = {wanted!r}, but {torch.cuda.device_count()} CUDA devices are here",
                key="pretrain.device",
            )
        return device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def choose_arithmetic(wanted: str, device: torch.device) -> Arithmetic:
    """bf16 where the device multiplies it natively, else float32; a setting of bf16 or fp32 is obeyed.

    float16 is not offered here: a short run has no use for loss scaling.
    """
    if wanted in ("bf16", "fp32"):
        return Arithmetic(wanted, "as set", device)
    if device.type == "cuda":
        is_native = torch.cuda.get_device_capability(device)[0] >= 8
        return Arithmetic("bf16" if is_native else "fp32", torch.cuda.get_device_name(device), device)
    if device.type == "cpu":
        able = torch.cpu.get_capabilities()
        is_native = bool(able.get("avx512_bf16") or able.get("amx_bf16") or able.get("bf16"))
        what = "has bf16 arithmetic" if is_native else "has no bf16 arithmetic"
        return Arithmetic("bf16" if is_native else "fp32", f"this CPU {what}", device)
    return Arithmetic("fp32", f"device {device.type}", device)
