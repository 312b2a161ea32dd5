"""Linear layer to the vocabulary, cross entropy, its gradient and one sample a row, in one call.

`reference.py` is the definition; the files beside it compute the same without keeping [M, V]. The derivation
and the measured numbers are in this folder's README.

Letters: M masked positions of the whole batch, D width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling import cpu, cpu_log_prob, native, reference, triton
from electra_cli.kernels.masked_sampling.reference import NOT_FORBIDDEN, MaskedSample

__all__ = [
    "IMPLEMENTATIONS",
    "NOT_FORBIDDEN",
    "MaskedSample",
    "choose_implementation",
    "masked_sample",
    "token_log_prob",
]


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One way to compute the kernel; both functions have the reference's signatures."""

    masked_sample: Callable[..., MaskedSample]
    token_log_prob: Callable[..., Tensor]


IMPLEMENTATIONS = {
    "native": Implementation(masked_sample=native.masked_sample, token_log_prob=native.token_log_prob),
    "cpu": Implementation(masked_sample=cpu.masked_sample, token_log_prob=cpu_log_prob.token_log_prob),
    "triton": Implementation(masked_sample=triton.masked_sample, token_log_prob=triton.token_log_prob),
    "reference": Implementation(
        masked_sample=reference.masked_sample, token_log_prob=reference.token_log_prob
    ),
}


def choose_implementation(wanted: str, device: torch.device) -> tuple[str, str]:
    """The implementation to use on a device and, in words, why; "auto" takes the fastest that can serve.

    Where nothing can be compiled "cpu" serves in "native"'s place, and the reason says so. The first call
    that may choose "native" builds it. ValueError if the wanted one does not exist or cannot run there; its
    text is fit for a person.
    """
    if wanted not in ("auto", *IMPLEMENTATIONS):
        offered = ", ".join(["auto", *IMPLEMENTATIONS])
        raise ValueError(f'sampler "{wanted}" is not in this version; it has {offered}')
    if wanted in ("cpu", "native") and device.type != "cpu":
        raise ValueError(f'sampler "{wanted}" cannot run on {device.type}; "reference" can')
    if wanted == "native" or (wanted == "auto" and device.type == "cpu"):
        missing = native.why_not()
        if missing:
            return "cpu", f"plain torch in tiles that fit the cache; native cannot serve: {missing}"
        return "native", "asked for" if wanted == "native" else "compiled, the fastest on a processor"
    if wanted == "triton" or (wanted == "auto" and device.type == "cuda"):
        missing = triton.why_not(device.type)
        if not missing:
            return "triton", "asked for" if wanted == "triton" else "the fastest on a GPU"
        if wanted == "triton":
            raise ValueError(f'sampler "triton" cannot serve: {missing}')
        return "reference", f"plain torch; triton cannot serve: {missing}"
    if wanted != "auto":
        return wanted, "asked for"
    return "reference", f"plain torch, the only one that runs on {device.type}"


def masked_sample(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    weight_M: Tensor,
    uniform_M: Tensor,
    *,
    temperature: float = 1.0,
    forbidden_M: Tensor | None = None,
    num_padding_ids: int = 0,
    implementation: str = "auto",
) -> MaskedSample:
    """Cross entropy of each row against its target, and one id a row from softmax(logits / temperature).

    `hidden_MD`, `table_VD`, `bias_V`: floating point; the products run in autocast's precision where it is
    on, else in the wider of the two inputs'; all after them in float32 (float64 for float64 inputs).
    `target_M`, `forbidden_M`: int64 ids; `NOT_FORBIDDEN` (-1) forbids nothing in that row. A forbidden id is
    never sampled, but counts in the loss. `weight_M`: ≥ 0; 0 marks an unused slot, which gets loss 0 and
    its own target as the sample. `uniform_M`: float64 in [0, 1). The last `num_padding_ids` rows of the
    table stand for no id: they are neither sampled nor part of the softmax, and get the gradient 0.

    A row with a non-finite logit gives a NaN loss and gradient, and an id in range. ValueError says which
    input is wrong; ranges are checked on CPU only, where looking costs no synchronisation.
    """
    _check_product(hidden_MD, table_VD, bias_V, num_padding_ids)
    num_ids = table_VD.shape[0] - num_padding_ids
    _check_rows(hidden_MD, target_M=target_M, weight_M=weight_M, uniform_M=uniform_M, forbidden_M=forbidden_M)
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}, not a finite number above 0")
    if forbidden_M is not None and num_ids < 2:
        raise ValueError("with a single id none can be forbidden")
    if _may_look(hidden_MD):
        _check_ids("target_M", target_M, 0, num_ids)
        if forbidden_M is not None:
            _check_ids("forbidden_M", forbidden_M, NOT_FORBIDDEN, num_ids)
    name, _ = choose_implementation(implementation, hidden_MD.device)
    return IMPLEMENTATIONS[name].masked_sample(
        hidden_MD,
        table_VD,
        bias_V,
        target_M,
        weight_M,
        uniform_M,
        temperature=temperature,
        forbidden_M=forbidden_M,
        num_padding_ids=num_padding_ids,
    )


def token_log_prob(
    hidden_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    target_M: Tensor,
    *,
    num_padding_ids: int = 0,
    implementation: str = "auto",
) -> Tensor:
    """log softmax(logits)[target] of each row, differentiable row by row; inputs as in `masked_sample`."""
    _check_product(hidden_MD, table_VD, bias_V, num_padding_ids)
    _check_rows(hidden_MD, target_M=target_M)
    if _may_look(hidden_MD):
        _check_ids("target_M", target_M, 0, table_VD.shape[0] - num_padding_ids)
    name, _ = choose_implementation(implementation, hidden_MD.device)
    return IMPLEMENTATIONS[name].token_log_prob(
        hidden_MD, table_VD, bias_V, target_M, num_padding_ids=num_padding_ids
    )


def _check_product(hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor, num_padding_ids: int) -> None:
    """Shapes and kinds of what makes the logits."""
    if hidden_MD.ndim != 2 or table_VD.ndim != 2 or hidden_MD.shape[1] != table_VD.shape[1]:
        raise ValueError(
            f"hidden_MD {list(hidden_MD.shape)} and table_VD {list(table_VD.shape)} do not share a width"
        )
    if bias_V.shape != table_VD.shape[:1]:
        raise ValueError(f"bias_V has shape {list(bias_V.shape)}, the table has {table_VD.shape[0]} rows")
    if not 0 <= num_padding_ids < table_VD.shape[0]:
        raise ValueError(f"num_padding_ids = {num_padding_ids} leaves no id of {table_VD.shape[0]}")
    for name, tensor in (("hidden_MD", hidden_MD), ("table_VD", table_VD), ("bias_V", bias_V)):
        if not tensor.is_floating_point():
            raise ValueError(f"{name} is {tensor.dtype}, not floating point")


def _check_rows(
    hidden_MD: Tensor,
    *,
    target_M: Tensor,
    weight_M: Tensor | None = None,
    uniform_M: Tensor | None = None,
    forbidden_M: Tensor | None = None,
) -> None:
    """Shapes and types of what there is one of a row."""
    for name, tensor, dtype in (
        ("target_M", target_M, torch.int64),
        ("weight_M", weight_M, None),
        ("uniform_M", uniform_M, torch.float64),
        ("forbidden_M", forbidden_M, torch.int64),
    ):
        if tensor is None:
            continue
        if tensor.shape != hidden_MD.shape[:1]:
            raise ValueError(f"{name} has shape {list(tensor.shape)} for {hidden_MD.shape[0]} rows")
        if dtype is not None and tensor.dtype != dtype:
            raise ValueError(f"{name} is {tensor.dtype}, not {dtype}")


def _may_look(hidden_MD: Tensor) -> bool:
    """Whether values can be read without waiting for a device or breaking a graph."""
    return hidden_MD.device.type == "cpu" and hidden_MD.numel() > 0 and not torch.compiler.is_compiling()


def _check_ids(name: str, id_M: Tensor, low: int, high: int) -> None:
    """Every id lies in [low, high)."""
    if bool(((id_M < low) | (id_M >= high)).any()):
        raise ValueError(f"{name} holds ids outside [{low}, {high}): {int(id_M.min())} … {int(id_M.max())}")
