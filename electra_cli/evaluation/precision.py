"""In which arithmetic fine-tuning multiplies matrices."""

from dataclasses import dataclass

import torch

from electra_cli.optimization.device import natural_precision


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


def choose_arithmetic(wanted: str, device: torch.device) -> Arithmetic:
    """bf16 where the device multiplies it natively, else float32; a setting of bf16 or fp32 is obeyed.

    float16 is not offered here: a short run has no use for loss scaling.
    """
    if wanted in ("bf16", "fp32"):
        return Arithmetic(wanted, "as set", device)
    precision, reason = natural_precision(device)
    return Arithmetic("fp32" if precision == "fp16" else precision, reason, device)
