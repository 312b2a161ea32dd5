"""The passes in compiled code, on a processor: float32, and bfloat16 under its autocast.

Products are torch's. What a pass leaves for the way back takes the place of the product, so that no more is
kept than in plain torch.

Letters: N rows, D width of the input, F width of the product, C chunks of rows; B batch, S sequence, H heads,
K width of a head, L = 3·D (query, key, value).
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra_cli.kernels.dropout import draw_pattern, keep_scale
from electra_cli.kernels.layer_passes import reference
from electra_cli.kernels.layer_passes.reference import Norm
from electra_cli.kernels.native_build import (
    FLOAT,
    INT,
    LONG,
    POINTER,
    BuildError,
    declared,
    function_for,
    pointers,
)

SOURCE = Path(__file__).with_name("passes.cpp")

CHUNK_ROWS = 64
"""Rows whose gradients of gain, shift and bias are added up in place before the chunks are."""

_KINDS = {
    "bias_gelu": (*[POINTER] * 3, LONG, LONG, INT),
    "gelu_back": (*[POINTER] * 4, LONG, LONG, LONG, INT),
    "gated_gelu": (POINTER, POINTER, FLOAT, POINTER, LONG, LONG, INT),
    "gated_gelu_back": (*[POINTER] * 3, LONG, LONG, INT),
    "drop": (POINTER, POINTER, FLOAT, POINTER, POINTER, LONG, INT),
    "add_norm": (
        *[POINTER] * 3,
        FLOAT,
        *[POINTER] * 3,
        FLOAT,
        *[POINTER] * 2,
        LONG,
        LONG,
        INT,
    ),
    "add_norm_back": (*[POINTER] * 5, FLOAT, *[POINTER] * 3, LONG, LONG, LONG, INT),
    "soften": (POINTER, POINTER, LONG, POINTER, POINTER, LONG, LONG, INT),
    "soften_back": (*[POINTER] * 4, LONG, LONG, INT),
    "rotate": (*[POINTER] * 3, FLOAT, POINTER, LONG, LONG, LONG, LONG, INT),
}


@cache
def load() -> ctypes.CDLL:
    """The library with its functions declared, built if need be; BuildError says why there is none."""
    return declared(SOURCE, _KINDS)


@cache
def why_not() -> str:
    """Why this process cannot use compiled passes, empty where it can. The first call builds and proves."""
    try:
        load()
    except BuildError as error:
        return str(error)
    wrong = _disagreement()
    return f"the build does not agree with the definition: {wrong}" if wrong else ""


def product_type(hidden: Tensor) -> torch.dtype:
    """The type of a product of these states: autocast's where it is on."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype


def linear_gelu(hidden: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """As in `reference`; needs `why_not()` to be empty."""
    value: Tensor = _LinearGelu.apply(hidden, weight_FD, bias_F)  # type: ignore[no-untyped-call]
    return value


def linear_gated_gelu(hidden: Tensor, weight_GD: Tensor, rate: float) -> Tensor:
    """As in `reference`; needs `why_not()` to be empty."""
    value: Tensor = _LinearGatedGelu.apply(hidden, weight_GD, rate)  # type: ignore[no-untyped-call]
    return value


def dropped(values: Tensor, rate: float) -> Tensor:
    """As in `reference`, for a rate above 0; needs `why_not()` to be empty."""
    result: Tensor = _Dropped.apply(None, values, rate)  # type: ignore[no-untyped-call]
    return result


def add_dropped(residual: Tensor, values: Tensor, rate: float) -> Tensor:
    """As in `reference`, for a rate above 0 and two of one type and shape; needs `why_not()` to be empty."""
    result: Tensor = _Dropped.apply(residual, values, rate)  # type: ignore[no-untyped-call]
    return result


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


def softened(score_BHSS: Tensor, mask_B1SS: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor]:
    """As in `reference`; needs `why_not()` to be empty."""
    batch, num_heads, sequence, _ = score_BHSS.shape
    used_BHSS = score_BHSS if pattern is None else torch.empty_like(score_BHSS)
    _call(
        "soften",
        score_BHSS.dtype,
        *pointers(score_BHSS, mask_B1SS),
        num_heads,
        *pointers(pattern, used_BHSS),
        batch * num_heads,
        sequence,
    )
    return score_BHSS, used_BHSS


def softened_back(of_used_BHSS: Tensor, weight_BHSS: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor]:
    """As in `reference`; needs `why_not()` to be empty."""
    used_BHSS = weight_BHSS if pattern is None else torch.empty_like(weight_BHSS)
    _call(
        "soften_back",
        weight_BHSS.dtype,
        *pointers(of_used_BHSS, weight_BHSS, pattern, used_BHSS),
        weight_BHSS.shape[:-1].numel(),
        weight_BHSS.shape[-1],
    )
    return used_BHSS, of_used_BHSS


class _LinearGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
        hidden_ND, narrow_FD = _operands(hidden, weight_FD)
        slope_NF = torch.mm(hidden_ND, narrow_FD.t())
        value_NF = torch.empty_like(slope_NF)
        _call("bias_gelu", slope_NF.dtype, *pointers(slope_NF, bias_F, value_NF), *slope_NF.shape)
        ctx.save_for_backward(hidden_ND, narrow_FD, slope_NF)
        ctx.remember = _Remembered(hidden, weight_FD)
        return value_NF.view(*hidden.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_FD, slope_NF = ctx.saved_tensors
        num_rows, width = slope_NF.shape
        gradient_NF = gradient.reshape(num_rows, width).contiguous()
        of_product_NF = torch.empty_like(slope_NF)
        sums_CF = slope_NF.new_empty(-(-num_rows // CHUNK_ROWS), width, dtype=torch.float32)
        _call(
            "gelu_back",
            slope_NF.dtype,
            *pointers(gradient_NF, slope_NF, of_product_NF, sums_CF),
            num_rows,
            width,
            CHUNK_ROWS,
        )
        return *_of_product(ctx, of_product_NF, hidden_ND, weight_FD), sums_CF.sum(0)


class _LinearGatedGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight_GD: Tensor, rate: float) -> Tensor:
        hidden_ND, narrow_GD = _operands(hidden, weight_GD)
        slopes_NG = torch.mm(hidden_ND, narrow_GD.t())
        value_NF = slopes_NG.new_empty(len(slopes_NG), slopes_NG.shape[1] // 2)
        pattern, scale = _pattern_and_scale(rate)
        _call(
            "gated_gelu",
            slopes_NG.dtype,
            *pointers(slopes_NG, pattern),
            scale,
            *pointers(value_NF),
            *value_NF.shape,
        )
        ctx.save_for_backward(hidden_ND, narrow_GD, slopes_NG)
        ctx.remember = _Remembered(hidden, weight_GD)
        return value_NF.view(*hidden.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_GD, slopes_NG = ctx.saved_tensors
        gradient_NF = _rows(gradient)
        of_product_NG = torch.empty_like(slopes_NG)
        _call(
            "gated_gelu_back",
            slopes_NG.dtype,
            *pointers(gradient_NF, slopes_NG, of_product_NG),
            *gradient_NF.shape,
        )
        return *_of_product(ctx, of_product_NG, hidden_ND, weight_GD), None


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, values: Tensor, rate: float) -> Tensor:
        pattern = draw_pattern(rate)
        ctx.save_for_backward(pattern)
        ctx.rate, ctx.has_residual = rate, residual is not None
        return _kept(values, pattern, rate, residual)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (pattern,) = ctx.saved_tensors
        return (gradient if ctx.has_residual else None), _kept(gradient, pattern, ctx.rate, None), None


def _kept(values: Tensor, pattern: Tensor, rate: float, residual: Tensor | None) -> Tensor:
    """What the pattern keeps, scaled, on top of `residual`."""
    values = values.contiguous()
    residual = None if residual is None else residual.contiguous()
    to = torch.empty_like(values)
    _call(
        "drop",
        values.dtype,
        *pointers(values, pattern),
        keep_scale(rate),
        *pointers(residual, to),
        values.numel(),
    )
    return to


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
        hidden_ND, narrow_FD = _operands(hidden, weight_FD)
        normal_NF, residual_NF = torch.mm(hidden_ND, narrow_FD.t()), _rows(residual)
        pattern, scale = _pattern_and_scale(rate)
        output_NF = torch.empty_like(normal_NF)
        inverse_N = normal_NF.new_empty(len(normal_NF), dtype=torch.float32)
        _call(
            "add_norm",
            normal_NF.dtype,
            *pointers(normal_NF, bias_F, pattern),
            scale,
            *pointers(residual_NF, gain_F, shift_F),
            eps,
            *pointers(output_NF, inverse_N),
            *normal_NF.shape,
        )
        ctx.save_for_backward(hidden_ND, narrow_FD, pattern, gain_F, normal_NF, inverse_N)
        ctx.scale, ctx.remember = scale, _Remembered(hidden, weight_FD)
        return output_NF.view(residual.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_FD, pattern, gain_F, normal_NF, inverse_N = ctx.saved_tensors
        num_rows, width = normal_NF.shape
        gradient_NF = gradient.reshape(num_rows, width).contiguous()
        of_residual_NF = torch.empty_like(normal_NF)
        of_product_NF = of_residual_NF if pattern is None else torch.empty_like(normal_NF)
        sums_C3F = normal_NF.new_empty(-(-num_rows // CHUNK_ROWS), 3, width, dtype=torch.float32)
        _call(
            "add_norm_back",
            normal_NF.dtype,
            *pointers(gradient_NF, normal_NF, inverse_N, gain_F, pattern),
            ctx.scale,
            *pointers(of_residual_NF, of_product_NF, sums_C3F),
            num_rows,
            width,
            CHUNK_ROWS,
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
    _call(
        "rotate",
        qkv_BSL.dtype,
        *pointers(qkv_BSL, cos_BSK, sin_BSK),
        sign,
        *pointers(to_BSL),
        batch * sequence,
        2 * width // 3 // head_width,
        head_width // 2,
        width,
    )
    return to_BSL


class _Remembered:
    """Shape and type that the gradients of a product's operands must have."""

    def __init__(self, hidden: Tensor, weight_FD: Tensor) -> None:
        self.shape, self.hidden, self.weight = hidden.shape, hidden.dtype, weight_FD.dtype


def _operands(hidden: Tensor, weight_FD: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and weight in the precision of the product."""
    dtype = product_type(hidden)
    return _rows(hidden.to(dtype)), weight_FD.to(dtype)


def _of_product(
    ctx: Any, of_product_NF: Tensor, hidden_ND: Tensor, weight_FD: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the input and of the weight, where they are wanted, as autograd expects them."""
    seen: _Remembered = ctx.remember
    of_hidden = of_weight_FD = None
    if ctx.needs_input_grad[0]:
        of_hidden = torch.mm(of_product_NF, weight_FD).view(seen.shape).to(seen.hidden)
    if ctx.needs_input_grad[1]:
        of_weight_FD = torch.mm(of_product_NF.t(), hidden_ND).to(seen.weight)
    return of_hidden, of_weight_FD


def _pattern_and_scale(rate: float) -> tuple[Tensor | None, float]:
    """A new pattern for dropout and what it scales by; none for rate 0."""
    return (draw_pattern(rate), keep_scale(rate)) if rate else (None, 1.0)


def _rows(values: Tensor) -> Tensor:
    """As a matrix without gaps."""
    return values.reshape(-1, values.shape[-1]).contiguous()


def _call(name: str, dtype: torch.dtype, *arguments: object) -> None:
    """A function of the library for activations of this type, in as many threads as torch uses."""
    function_for(load(), name, dtype)(*arguments, torch.get_num_threads())


def _disagreement() -> str:
    """What differs from the definition on one small case, in words; empty where nothing does."""
    # Whoever asks first may be in inference mode, where nothing has a gradient.
    with (
        torch.random.fork_rng(devices=[]),
        torch.autocast("cpu", enabled=False),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        truth = _run(reference)
        ours = _run(_Compiled)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            narrow = _run(_Compiled)
    for name, value in truth.items():
        # float32 sums of 24 products of size 1 round to about 1e-6; a wrong pass is wrong by far more.
        if not torch.allclose(ours[name], value, rtol=1e-4, atol=1e-4):
            return f"the {name} differs by up to {float((ours[name] - value).abs().max()):.2g}"
        # A few roundings to 8 bits, of values up to the largest.
        if (narrow[name].float() - value).abs().max() > 0.05 * value.abs().max():
            return f"the {name} in bfloat16 differs by up to {float((narrow[name] - value).abs().max()):.2g}"
    return ""


class _Compiled:
    """This file's functions under the names of `reference`."""

    linear_gelu = staticmethod(linear_gelu)
    linear_gated_gelu = staticmethod(linear_gated_gelu)
    dropped = staticmethod(dropped)
    add_dropped = staticmethod(add_dropped)
    linear_add_norm = staticmethod(linear_add_norm)
    rotated = staticmethod(rotated)
    softened = staticmethod(softened)
    softened_back = staticmethod(softened_back)


def _run(passes: Any) -> dict[str, Tensor]:
    """Outputs and gradients by name, of 70 rows of width 24 with values out to ± 20; of two maps."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    hidden, inner, outer, residual = drawn(70, 24), drawn(40, 24), drawn(24, 40), drawn(70, 24)
    bias, shift, gain = drawn(40), drawn(24), drawn(24)
    is_narrow = torch.is_autocast_enabled("cpu")
    value = passes.linear_gelu(hidden, inner, bias)
    norm = Norm(gain_F=gain, shift_F=shift, eps=1e-12)
    torch.manual_seed(0)
    output = passes.linear_add_norm(value, outer, shift, 0.2, residual.to(value.dtype), norm)
    pattern = draw_pattern(0.3)
    output = passes.linear_add_norm(value, outer, shift, 0.0, output, norm)
    angle = torch.rand(7, 10, 2, generator=generator).repeat(1, 1, 2)
    output = passes.rotated(output.view(7, 10, 24), angle.cos(), angle.sin())
    gated = passes.linear_gated_gelu(output.view(70, 24), inner, 0.2)
    output = passes.add_dropped(passes.dropped(gated, 0.3), gated, 0.4)
    output = output + passes.linear_gated_gelu(hidden, inner, 0.0)
    trained = {"hidden": hidden, "inner": inner, "outer": outer, "residual": residual}
    trained |= {"bias": bias, "shift": shift, "gain": gain}
    weight = torch.randn(output.shape, generator=generator)
    gradients = torch.autograd.grad((output * weight).sum(), list(trained.values()))
    names = (f"gradient of {name}" for name in trained)
    found = {"value": value.detach(), "output": output.detach(), **dict(zip(names, gradients, strict=True))}

    dtype = torch.bfloat16 if is_narrow else torch.float32
    score, of_used = (torch.randn(2, 1, 9, 9, generator=generator).to(dtype).contiguous() for _ in range(2))
    mask = torch.zeros(2, 1, 9, 9, dtype=dtype)
    mask[1, :, :, 4:] = -torch.inf
    for name, dropping in (("attention", None), ("attention with dropout", pattern)):
        soft, used = passes.softened(score.clone(), mask, dropping)
        again, of_score = passes.softened_back(of_used.clone(), soft, dropping)
        found |= {name: used, f"{name}, again": again, f"gradient of {name}": of_score}
    return found
