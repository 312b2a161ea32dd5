"""The kernel on CPU with its passes compiled: the tiles, products and operators of `cpu`.

Letters: M masked positions of the whole batch, D width, V vocabulary.
"""

from functools import cache

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling import cpu, cpu_log_prob
from electra_cli.kernels.masked_sampling.native_rows import load
from electra_cli.kernels.masked_sampling.proof import disagreement
from electra_cli.kernels.masked_sampling.reference import MaskedSample
from electra_cli.kernels.native_build import BuildError


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def why_not() -> str:
    """Why this process cannot use compiled passes, empty where it can. The first call builds and proves."""
    return _why_not()


@cache
def _why_not() -> str:
    try:
        load()
    except BuildError as error:
        return str(error)
    wrong = disagreement(masked_sample, token_log_prob, torch.device("cpu"))
    return f"the build does not agree with the definition: {wrong}" if wrong else ""


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
) -> MaskedSample:
    """As in `reference`; needs `why_not()` to be empty."""
    return cpu.sample_in_tiles(
        hidden_MD,
        table_VD,
        bias_V,
        target_M,
        weight_M,
        uniform_M,
        temperature=temperature,
        forbidden_M=forbidden_M,
        num_padding_ids=num_padding_ids,
        is_native=True,
    )


def token_log_prob(
    hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor, target_M: Tensor, *, num_padding_ids: int = 0
) -> Tensor:
    """As in `reference`; needs `why_not()` to be empty."""
    return cpu_log_prob.log_prob_in_tiles(
        hidden_MD, table_VD, bias_V, target_M, num_padding_ids=num_padding_ids, is_native=True
    )
