"""How much memory a run needs, and what happens when there is too little."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from math import gcd
from pathlib import Path

import torch

from electra_cli.models.sizes import EncoderConfig
from electra_cli.optimization import memory
from electra_cli.training.device import Engine

# Weight, gradient and two moments in float32.
BYTES_PER_PARAMETER = 16
# Weight and two moments.
CHECKPOINT_BYTES_PER_PARAMETER = 12
_USABLE_FRACTION = 0.5
_CPU_ROW_TOKENS = 4096


def micro_batch_for(
    rows: int,
    *,
    configs: Iterable[EncoderConfig],
    sequence_length: int,
    num_parameters: int,
    engine: Engine,
    recomputes_layers: bool = False,
) -> int:
    """The largest divisor of `rows` whose activations fit, by estimate, into half the memory left.

    Left is the memory of the device, or of the machine, less 16 bytes a parameter. On a CPU a micro-batch has
    at most about 4,096 tokens: more was no faster there (measured), and only takes memory. The choice is
    written into the run's manifest and kept when the run continues.
    """
    left = total_memory(engine.device) - BYTES_PER_PARAMETER * num_parameters
    row = sum(
        activation_bytes(config, sequence_length, engine.precision, recomputes_layers=recomputes_layers)
        for config in configs
    )
    most = max(1, int(_USABLE_FRACTION * left / row))
    if engine.device.type == "cpu":
        most = min(most, max(1, _CPU_ROW_TOKENS // sequence_length))
    return max(divisor for divisor in range(1, rows + 1) if rows % divisor == 0 and divisor <= most)


def activation_bytes(
    config: EncoderConfig, sequence_length: int, precision: str, *, recomputes_layers: bool = False
) -> int:
    """Bytes that one row keeps for the backward pass.

    34·S·H + 5·A·S² a layer for 16-bit values (Korthikanti et al. 2022, eq. 1), or its input of 2·S·H and all
    of one layer where they are computed again; float32 keeps twice as much.
    """
    layer = 34 * sequence_length * config.hidden_size + 5 * config.num_heads * sequence_length**2
    kept = config.num_layers * layer
    if recomputes_layers:
        kept = layer + config.num_layers * 2 * sequence_length * config.hidden_size
    return kept * (2 if precision == "fp32" else 1)


def total_memory(device: torch.device) -> int:
    """Bytes of the device, or of the machine or its control group."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file():
        text = limit.read_text(encoding="ascii").strip()
        if text.isdigit():
            return min(physical, int(text))
    return physical


def common_micro_batch(micro_batch_size: int, rows: int) -> int:
    """The run's micro-batch, or the largest part of it that divides this process's `rows`."""
    return gcd(micro_batch_size, rows)


def naming_memory_shortage(micro_batch_size: int) -> AbstractContextManager[None]:
    """Turn an allocation that failed into a MemoryShortError that names the setting to change."""
    if micro_batch_size > 1:
        hint = (
            f"micro_batch_size = {micro_batch_size // 2} needs about half the memory, for the same batch; "
            "activation_checkpointing = true needs less of it, for the same run"
        )
    else:
        hint = (
            "a row alone does not fit: pretrain.activation_checkpointing = true keeps less of it; "
            "beyond that a smaller model or sequence_length is needed"
        )
    what = f"pretrain.micro_batch_size = {micro_batch_size}"
    return memory.naming_memory_shortage(what, key="pretrain.micro_batch_size", hint=hint)
