"""The passes in compiled code: float32 on a processor, under no autocast.

Products are torch's. What a pass leaves for the way back takes the place of the product, so that no more is
kept than in plain torch.

Letters: N rows, D width of the input, F width of the product, C chunks of rows; B batch, S sequence, K width
of a head, L = 3·D (query, key, value).
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra_cli.kernels.dropout import draw_kept, keep_scale
from electra_cli.kernels.layer_passes import reference
from electra_cli.kernels.layer_passes.reference import Norm
from electra_cli.kernels.native_build import BuildError, declared

SOURCE = Path(__file__).with_name("passes.cpp")

CHUNK_ROWS = 64
"""Rows whose gradients of gain, shift and bias are added up in place before the chunks are."""

_POINTER, _LONG, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
_SIGNATURES = {
    "electra_bias_gelu": (*[_POINTER] * 3, _LONG, _LONG, _INT),
    "electra_add_norm": (
        *[_POINTER] * 3,
        _FLOAT,
        *[_POINTER] * 3,
        _FLOAT,
        *[_POINTER] * 2,
        _LONG,
        _LONG,
        _INT,
    ),
    "electra_rotate": (*[_POINTER] * 3, _FLOAT, _POINTER, _LONG, _LONG, _LONG, _LONG, _INT),
    "electra_add_norm_back": (*[_POINTER] * 5, _FLOAT, *[_POINTER] * 3, _LONG, _LONG, _LONG, _INT),
}


@cache
def load() -> ctypes.CDLL:
    """The library with its functions declared, built if need be; BuildError says why there is none."""
    return declared(SOURCE, _SIGNATURES)


@cache
def why_not() -> str:
    """Why this process cannot use compiled passes, empty where it can. The first call builds and proves."""
    try:
        load()
    except BuildError as error:
        return str(error)
    wrong = _disagreement()
    return f"the build does not agree with the definition: {wrong}" if wrong else ""


def linear_gelu(hidden: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """As in `reference`; needs `why_not()` to be empty."""
    value: Tensor = _LinearGelu.apply(hidden, weight_FD, bias_F)  # type: ignore[no-untyped-call]
    return value


def linear_add_norm(
    hidden: Tensor, weight_FD: Tensor, bias_F: Tensor, rate: float, residual: Tensor, norm: Norm
) -> Tensor:
    """As in `reference`; needs `why_not()` to be empty."""
    output: Tensor = _LinearAddNorm.apply(  # type: ignore[no-untyped-call]
        hidden, weight_FD, bias_F, rate, residual, norm.gain_F, norm.shift_F, norm.eps
    )
    return output


def rotated(qkv_BSL: Tensor, cos_BSK: Tensor, sin_BSK: Tensor) -> Tensor:
    """As in `reference`; needs `why_not()` to be empty."""
    turned: Tensor = _Rotated.apply(qkv_BSL, cos_BSK, sin_BSK)  # type: ignore[no-untyped-call]
    return turned


class _LinearGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
        hidden_ND = _rows(hidden)
        slope_NF = torch.mm(hidden_ND, weight_FD.t())
        value_NF = torch.empty_like(slope_NF)
        load().electra_bias_gelu(*_pointers(slope_NF, bias_F, value_NF), *slope_NF.shape, _threads())
        ctx.save_for_backward(hidden_ND, weight_FD, slope_NF)
        ctx.shape = hidden.shape
        return value_NF.view(*hidden.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_FD, slope_NF = ctx.saved_tensors
        of_product_NF = torch.mul(gradient.reshape(slope_NF.shape), slope_NF)
        of_hidden, of_weight_FD = _of_product(ctx, of_product_NF, hidden_ND, weight_FD)
        return of_hidden, of_weight_FD, of_product_NF.sum(0) if ctx.needs_input_grad[2] else None


class _LinearAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight_FD: Tensor,
        bias_F: Tensor,
        rate: float,
        residual: Tensor,
        gain_F: Tensor,
        shift_F: Tensor,
        eps: float,
    ) -> Tensor:
        hidden_ND, residual_NF = _rows(hidden), _rows(residual)
        normal_NF = torch.mm(hidden_ND, weight_FD.t())
        kept, scale = (draw_kept(normal_NF.shape, rate), keep_scale(rate)) if rate else (None, 1.0)
        output_NF, inverse_N = torch.empty_like(normal_NF), normal_NF.new_empty(len(normal_NF))
        load().electra_add_norm(
            *_pointers(normal_NF, bias_F, kept),
            scale,
            *_pointers(residual_NF, gain_F, shift_F),
            eps,
            *_pointers(output_NF, inverse_N),
            *normal_NF.shape,
            _threads(),
        )
        ctx.save_for_backward(hidden_ND, weight_FD, kept, gain_F, normal_NF, inverse_N)
        ctx.scale, ctx.shape = scale, hidden.shape
        return output_NF.view(residual.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_FD, kept, gain_F, normal_NF, inverse_N = ctx.saved_tensors
        num_rows, width = normal_NF.shape
        gradient_NF = gradient.reshape(num_rows, width).contiguous()
        of_residual_NF = torch.empty_like(normal_NF)
        of_product_NF = of_residual_NF if kept is None else torch.empty_like(normal_NF)
        sums_C3F = normal_NF.new_empty(-(-num_rows // CHUNK_ROWS), 3, width)
        load().electra_add_norm_back(
            *_pointers(gradient_NF, normal_NF, inverse_N, gain_F, kept),
            ctx.scale,
            *_pointers(of_residual_NF, of_product_NF, sums_C3F),
            num_rows,
            width,
            CHUNK_ROWS,
            _threads(),
        )
        of_gain_F, of_shift_F, of_bias_F = sums_C3F.sum(0).unbind(0)
        of_hidden, of_weight_FD = _of_product(ctx, of_product_NF, hidden_ND, weight_FD)
        of_residual = of_residual_NF.view(gradient.shape)
        return of_hidden, of_weight_FD, of_bias_F, None, of_residual, of_gain_F, of_shift_F, None


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_BSL: Tensor, cos_BSK: Tensor, sin_BSK: Tensor) -> Tensor:
        cos_BSK, sin_BSK = cos_BSK.contiguous(), sin_BSK.contiguous()
        ctx.save_for_backward(cos_BSK, sin_BSK)
        return _turned(qkv_BSL, cos_BSK, sin_BSK, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BSL: Tensor) -> tuple[Tensor, None, None]:
        cos_BSK, sin_BSK = ctx.saved_tensors
        return _turned(gradient_BSL, cos_BSK, sin_BSK, -1.0), None, None


def _turned(qkv_BSL: Tensor, cos_BSK: Tensor, sin_BSK: Tensor, sign: float) -> Tensor:
    batch, sequence, width = qkv_BSL.shape
    head_width = cos_BSK.shape[-1]
    qkv_BSL = qkv_BSL.contiguous()
    to_BSL = torch.empty_like(qkv_BSL)
    load().electra_rotate(
        *_pointers(qkv_BSL, cos_BSK, sin_BSK),
        sign,
        *_pointers(to_BSL),
        batch * sequence,
        2 * width // 3 // head_width,
        head_width // 2,
        width,
        _threads(),
    )
    return to_BSL


def _of_product(
    ctx: Any, of_product_NF: Tensor, hidden_ND: Tensor, weight_FD: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the input, in its own shape, and of the weight, where they are wanted."""
    of_hidden = torch.mm(of_product_NF, weight_FD).view(ctx.shape) if ctx.needs_input_grad[0] else None
    of_weight_FD = torch.mm(of_product_NF.t(), hidden_ND) if ctx.needs_input_grad[1] else None
    return of_hidden, of_weight_FD


def _rows(values: Tensor) -> Tensor:
    """As a matrix without gaps."""
    return values.reshape(-1, values.shape[-1]).contiguous()


def _pointers(*tensors: Tensor | None) -> list[int | None]:
    """Addresses; the compiled code takes every tensor to be without gaps."""
    assert all(tensor is None or tensor.is_contiguous() for tensor in tensors)
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _threads() -> int:
    return torch.get_num_threads()


def _disagreement() -> str:
    """What differs from the definition on one small case, in words; empty where nothing does."""
    # Whoever asks first may be in inference mode, where nothing has a gradient.
    with torch.autocast("cpu", enabled=False), torch.inference_mode(False), torch.enable_grad():
        ours = _run(linear_gelu, linear_add_norm, rotated)
        truth = _run(reference.linear_gelu, reference.linear_add_norm, reference.rotated)
    for name, value in truth.items():
        # float32 sums of 24 products of size 1 round to about 1e-6; a wrong pass is wrong by far more.
        if not torch.allclose(ours[name], value, rtol=1e-4, atol=1e-4):
            return f"the {name} differs by up to {float((ours[name] - value).abs().max()):.2g}"
    return ""


def _run(gelu: Any, add_norm: Any, rotate: Any) -> dict[str, Tensor]:
    """Outputs and gradients by name, of 70 rows of width 24 with values out to ± 20."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    hidden, inner, outer, residual = drawn(70, 24), drawn(40, 24), drawn(24, 40), drawn(70, 24)
    bias, shift, gain = drawn(40), drawn(24), drawn(24)
    value = gelu(hidden, inner, bias)
    norm = Norm(gain_F=gain, shift_F=shift, eps=1e-12)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        output = add_norm(value, outer, shift, 0.2, residual, norm)
    output = add_norm(value, outer, shift, 0.0, output, norm)
    angle = torch.rand(7, 10, 2, generator=generator).repeat(1, 1, 2)
    output = rotate(output.view(7, 10, 24), angle.cos(), angle.sin())
    trained = {"hidden": hidden, "inner": inner, "outer": outer, "residual": residual}
    trained |= {"bias": bias, "shift": shift, "gain": gain}
    weight = torch.randn(output.shape, generator=generator)
    gradients = torch.autograd.grad((output * weight).sum(), list(trained.values()))
    names = (f"gradient of {name}" for name in trained)
    return {"value": value.detach(), "output": output.detach(), **dict(zip(names, gradients, strict=True))}
