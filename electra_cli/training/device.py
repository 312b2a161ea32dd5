"""Where and how a run computes: device, precision, threads, determinism; each choice with its reason."""

import os
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from electra_cli.errors import InputError
from electra_cli.optimization.device import Precision, natural_precision, resolve_device
from electra_cli.settings import Pretrain

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The resolved choices of one process."""

    device: torch.device
    precision: Precision
    reason: str
    """Why this precision, in words."""
    is_compiled: bool
    num_threads: int

    def autocast(self) -> AbstractContextManager[None]:
        """The context of a forward pass; float32 needs none."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=_DTYPES[self.precision])

    @property
    def sum_dtype(self) -> torch.dtype:
        """What figures are added up in: float64 where the device has it."""
        return torch.float32 if self.device.type == "mps" else torch.float64

    def peak_bytes(self) -> int:
        """Most memory held so far: of the device, or of this process on a CPU."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return int(peak) if platform.system() == "Darwin" else int(peak) * 1024

    def describe(self) -> str:
        """`cpu, 2 threads, fp32 (…)`."""
        threads = ""
        if self.device.type == "cpu":
            threads = f", {self.num_threads} thread{'s' if self.num_threads > 1 else ''}"
        compiled = ", compiled" if self.is_compiled else ""
        return f"{self.device}{threads}, {self.precision} ({self.reason}){compiled}"


def resolve_engine(settings: Pretrain, *, local_rank: int = 0, precision: Precision | None = None) -> Engine:
    """Choose what the settings leave open; `precision` is that of the run which continues, where one does.

    Raises InputError for a device that is not there, for float16 on a CPU, which has no loss scaling, and for
    parameters spread over processes, which this version does not do.
    """
    if settings.shard_parameters:
        raise InputError(
            "pretrain.shard_parameters = true: this version keeps all parameters in every process",
            key="pretrain.shard_parameters",
            hint="set it to false; a smaller pretrain.micro_batch_size needs less memory",
        )
    device = resolve_device(settings.device, local_rank)
    wanted = precision if precision is not None and settings.precision == "auto" else settings.precision
    if wanted == "auto":
        chosen, reason = natural_precision(device)
    else:
        chosen, reason = wanted, "as the run began" if settings.precision == "auto" else "as set"
    if chosen == "fp16" and device.type != "cuda":
        raise InputError(
            f'pretrain.precision = "fp16" needs a CUDA device for its loss scaling; this is {device}',
            key="pretrain.precision",
            hint='precision = "bf16" or "fp32" work everywhere',
        )
    is_compiled = settings.compile == "on" or (settings.compile == "auto" and device.type == "cuda")
    return Engine(
        device=device,
        precision=chosen,
        reason=reason,
        is_compiled=is_compiled,
        num_threads=torch.get_num_threads(),
    )


@contextmanager
def computing(engine: Engine) -> Iterator[None]:
    """Fix threads and deterministic algorithms while the block runs; the caller's settings come back."""
    # cuBLAS reads this once, when its first handle is made.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    threads = torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    was_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fills_memory = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_num_threads(engine.num_threads)
    # On a GPU a few operations (float64 cumsum) have no deterministic form: they may run, with a warning.
    torch.use_deterministic_algorithms(True, warn_only=engine.device.type != "cpu")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_deterministic, warn_only=was_warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fills_memory  # type: ignore[attr-defined]
