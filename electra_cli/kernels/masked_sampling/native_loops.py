"""The passes over a tile in compiled code; strides and pointers go straight to `native_loops.cpp`.

Letters: R rows of a tile, C ids of a chunk, N blocks of the chunk.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling.loops import Loops, TorchLoops
from electra_cli.kernels.native_build import declared

SOURCE = Path(__file__).with_name("native_loops.cpp")

_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_ADD_BIAS = (_POINTER, _LONG, _POINTER, _POINTER, _LONG, _POINTER, _LONG, _LONG, _INT)
_WEIGH = (_POINTER, _LONG, _POINTER, ctypes.c_float, _POINTER, _LONG, _LONG, _LONG, _INT, _INT)
_SIGNATURES = {
    "electra_add_bias_float32": _ADD_BIAS,
    "electra_add_bias_bfloat16": _ADD_BIAS,
    "electra_weigh": _WEIGH,
}


@cache
def load() -> ctypes.CDLL:
    """The library with its functions declared, built if need be; BuildError says why there is none."""
    return declared(SOURCE, _SIGNATURES)


def make_loops(work: torch.dtype, *, is_native: bool) -> Loops:
    """The passes for a work precision; the compiled ones know float32 alone."""
    return NativeLoops() if is_native and work == torch.float32 else TorchLoops()


class NativeLoops:
    """Each pass reads and writes its numbers once, in as many threads as torch uses."""

    def __init__(self) -> None:
        self._library = load()
        self._add_bias = {
            torch.float32: self._library.electra_add_bias_float32,
            torch.bfloat16: self._library.electra_add_bias_bfloat16,
        }

    def add_bias(self, product_RC: Tensor, bias_C: Tensor, logits_RC: Tensor, largest_R: Tensor) -> None:
        if product_RC.dtype not in self._add_bias:
            product_RC = product_RC.float()
        self._add_bias[product_RC.dtype](
            product_RC.data_ptr(),
            _row_stride(product_RC),
            bias_C.data_ptr(),
            logits_RC.data_ptr(),
            _row_stride(logits_RC),
            largest_R.data_ptr(),
            *product_RC.shape,
            torch.get_num_threads(),
        )

    def weigh(
        self, logits_RC: Tensor, largest_R: Tensor, temperature: float, block_sum_RN: Tensor, *, keep: bool
    ) -> None:
        self._library.electra_weigh(
            logits_RC.data_ptr(),
            _row_stride(logits_RC),
            largest_R.data_ptr(),
            temperature,
            block_sum_RN.data_ptr(),
            _row_stride(block_sum_RN),
            *block_sum_RN.shape,
            keep,
            torch.get_num_threads(),
        )


def _row_stride(matrix: Tensor) -> int:
    """Numbers from one row to the next; the compiled code takes a row to be without gaps."""
    assert matrix.stride(1) == 1 or matrix.shape[1] == 1
    return matrix.stride(0)
