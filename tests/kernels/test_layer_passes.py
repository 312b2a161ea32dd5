"""Linear layers with what follows them: the compiled passes against the definition and float64."""

# N rows, D width of the input, F width of the product

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from electra_cli.kernels import layer_passes
from electra_cli.kernels.dropout import draw_pattern
from electra_cli.kernels.layer_passes import Norm, native, reference
from electra_cli.kernels.native_build import BuildError

WITH_NATIVE = pytest.mark.skipif(bool(native.why_not()), reason=f"no native: {native.why_not()}")
SHAPES = [(1, 1, 3), (3, 5, 7), (63, 33, 65), (130, 64, 256)]


def drawn(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).to(dtype).requires_grad_()


def gelu_case(rows: int, width: int, inner: int, dtype: torch.dtype) -> list[Tensor]:
    return [drawn(*shape, dtype=dtype) for shape in ((rows, width), (inner, width), (inner,))]


def norm_case(rows: int, width: int, inner: int, dtype: torch.dtype) -> list[Tensor]:
    shapes = ((rows, width), (inner, width), (inner,), (rows, inner), (inner,), (inner,))
    return [drawn(*shape, dtype=dtype) for shape in shapes]


def run_gelu(module: Any, tensors: list[Tensor]) -> Tensor:
    return module.linear_gelu(*tensors)


def run_norm(module: Any, tensors: list[Tensor], rate: float = 0.0) -> Tensor:
    hidden, weight, bias, residual, gain, shift = tensors
    torch.manual_seed(7)
    norm = Norm(gain_F=gain, shift_F=shift, eps=1e-5)
    return module.linear_add_norm(hidden, weight, bias, rate, residual, norm)


def run_dropped_norm(module: Any, tensors: list[Tensor]) -> Tensor:
    return run_norm(module, tensors, rate=0.3)


def gated_case(rows: int, width: int, inner: int, dtype: torch.dtype) -> list[Tensor]:
    return [drawn(*shape, dtype=dtype) for shape in ((rows, width), (2 * inner, width))]


def run_gated(module: Any, tensors: list[Tensor], rate: float = 0.0) -> Tensor:
    torch.manual_seed(7)
    return module.linear_gated_gelu(*tensors, rate)


def run_dropped_gated(module: Any, tensors: list[Tensor]) -> Tensor:
    return run_gated(module, tensors, rate=0.3)


LINEAR_PASSES = [
    (gelu_case, run_gelu),
    (norm_case, run_norm),
    (norm_case, run_dropped_norm),
    (gated_case, run_gated),
    (gated_case, run_dropped_gated),
]


def output_and_gradients(run: Callable[..., Tensor], module: Any, tensors: list[Tensor]) -> list[Tensor]:
    output = run(module, tensors)
    weight = drawn(*output.shape, dtype=output.dtype).detach()
    return [output.detach(), *torch.autograd.grad((output * weight).sum(), tensors)]


@WITH_NATIVE
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("make", "run"), LINEAR_PASSES)
def test_compiled_passes_are_no_worse_than_plain_torch(make, run, shape):
    narrow, wide = make(*shape, torch.float32), make(*shape, torch.float64)
    truth = output_and_gradients(run, reference, wide)
    plain = output_and_gradients(run, reference, narrow)
    fused = output_and_gradients(run, native, narrow)
    for true, theirs, ours in zip(truth, plain, fused, strict=True):
        # Sums in another order: float32 rounding of sums of up to 256 terms, of the size of the largest.
        allowed = (theirs - true).abs() + 2e-6 * (1 + true.abs().max())
        assert ((ours - true).abs() <= allowed).all()


@WITH_NATIVE
def test_compiled_gelu_is_as_near_to_the_truth_as_torchs_own():
    x_N1 = torch.linspace(-14, 14, 100_001).unsqueeze(1)
    ours = native.linear_gelu(x_N1, torch.ones(1, 1), torch.zeros(1))
    truth = torch.nn.functional.gelu(x_N1.double())
    # The approximation of the distribution is within 1.5e-7, times |x|, and exact beyond |x| of 7.
    assert (ours - truth).abs().max() < 1e-6
    assert (ours - truth).abs().max() <= (torch.nn.functional.gelu(x_N1) - truth).abs().max()


@WITH_NATIVE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (2_047,), (2_048,), (3, 5, 683), (130, 64)])
def test_compiled_dropout_is_that_of_the_definition(shape, dtype):
    values, residual = (drawn(*shape, dtype=dtype, scale=scale) for scale in (1.0, 2.0))
    weight = drawn(*shape, 2, dtype=dtype).detach()[..., 0]
    found = []
    for module in (native, reference):
        torch.manual_seed(11)
        alone, added = module.dropped(values, 0.3), module.add_dropped(residual, values, 0.6)
        of_alone, of_added = (
            torch.autograd.grad(output, tensors, weight)
            for output, tensors in ((alone, [values]), (added, [values, residual]))
        )
        found.append((alone.detach(), added.detach(), *of_alone, *of_added))
    for ours, theirs in zip(*found, strict=True):
        # The compiled pass rounds once, plain torch after each of two operations.
        one_rounding = 2**-8 if dtype == torch.bfloat16 else 2**-23
        torch.testing.assert_close(ours, theirs, rtol=2 * one_rounding, atol=2 * one_rounding)
        assert torch.equal(ours == 0, theirs == 0)


@WITH_NATIVE
@pytest.mark.parametrize("module", [native, reference])
def test_a_dropped_value_that_is_not_finite_stays_visible(module):
    assert module.dropped(torch.full((64,), torch.nan), 0.9).isnan().all()


@WITH_NATIVE
@pytest.mark.parametrize(("heads", "width"), [(1, 2), (3, 6), (2, 64)])
def test_compiled_rotary_positions_are_those_of_the_definition(heads, width):
    qkv_BSL = drawn(2, 9, 3 * heads * width, dtype=torch.float32)
    angle = drawn(2, 9, width // 2, dtype=torch.float32).detach().repeat(1, 1, 2)
    weight = drawn(2, 9, 3 * heads * width, dtype=torch.float32).detach().flip(0)
    found = []
    for module in (native, reference):
        turned = module.rotated(qkv_BSL, angle.cos(), angle.sin())
        found.append((turned.detach(), *torch.autograd.grad((turned * weight).sum(), qkv_BSL)))
    for ours, theirs in zip(*found, strict=True):
        # Two products and a sum.
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    value = slice(2 * heads * width, None)
    assert torch.equal(found[0][0][..., value], qkv_BSL[..., value])


@WITH_NATIVE
def test_what_is_not_finite_stays_visible():
    value = torch.tensor([[float("nan")], [float("inf")], [1.0]])
    gelu = native.linear_gelu(value, torch.ones(1, 1), torch.zeros(1)).squeeze(1)
    assert gelu.isnan().tolist() == [True, False, False]
    assert gelu[1] == float("inf")
    norm = Norm(gain_F=torch.ones(2), shift_F=torch.zeros(2), eps=1e-5)
    output = native.linear_add_norm(value, torch.ones(2, 1), torch.zeros(2), 0.0, torch.zeros(3, 2), norm)
    assert output.isnan().any(1).tolist() == [True, True, False]


@WITH_NATIVE
def test_threads_change_no_bit():
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            narrow = norm_case(300, 8, 16, torch.float32)
            norm = Norm(gain_F=narrow[4], shift_F=narrow[5], eps=1e-5)
            # A product of one column: what torch's own product rounds does not depend on the threads.
            output = native.linear_add_norm(
                narrow[0][:, :1], narrow[1][:, :1], narrow[2], 0.0, narrow[3], norm
            )
            found.append([output, *torch.autograd.grad(output.square().sum(), narrow[2:])])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@WITH_NATIVE
def test_dropout_draws_the_same_numbers_compiled_or_not():
    for make, with_dropout, without in (
        (norm_case, run_dropped_norm, run_norm),
        (gated_case, run_dropped_gated, run_gated),
    ):
        tensors = make(40, 8, 16, torch.float32)
        ours, theirs = (with_dropout(module, tensors) for module in (native, reference))
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(ours, without(native, tensors), atol=1e-2)


@WITH_NATIVE
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("make", "run"), LINEAR_PASSES)
def test_compiled_passes_under_autocast_are_no_worse_than_plain_torch(make, run, shape):
    """Residuals arrive as products leave: in bfloat16."""
    tensors = make(*shape, torch.float32)
    truth = output_and_gradients(run, reference, [one.detach().double().requires_grad_() for one in tensors])
    if make is norm_case:
        tensors[3] = tensors[3].detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = output_and_gradients(run, reference, tensors)
        fused = output_and_gradients(run, native, tensors)
        assert fused[0].dtype == torch.bfloat16
    for true, theirs, ours in zip(truth, plain, fused, strict=True):
        assert ours.dtype == theirs.dtype
        # Ours round in other places: as far off as plain torch, or by two roundings of the largest.
        worst, size = (theirs.double() - true).abs().max(), true.abs().max()
        assert (ours.double() - true).abs().max() <= worst + 2**-7 * (1 + size)


@WITH_NATIVE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize(("batch", "heads", "sequence"), [(1, 1, 1), (2, 3, 7), (3, 2, 33), (1, 4, 128)])
def test_compiled_attention_weights_are_those_of_the_definition(batch, heads, sequence, rate, dtype):
    score, of_used = (
        drawn(batch, heads, sequence, sequence + shift, dtype=dtype).detach()[..., :sequence].contiguous()
        for shift in (0, 1)
    )
    mask = torch.zeros(batch, 1, sequence, sequence, dtype=dtype)
    mask[..., sequence // 2 :, : sequence // 2] = -torch.inf
    pattern = draw_pattern(rate) if rate else None
    found = []
    for module in (native, reference):
        weight, used = module.softened(score.clone(), mask, pattern)
        again, of_score = module.softened_back(of_used.clone(), weight, pattern)
        assert torch.equal(used, again)
        assert (pattern is None) == (used is weight)
        found.append((weight, used, of_score))
    for ours, theirs in zip(*found, strict=True):
        one_rounding = 2**-8 if dtype == torch.bfloat16 else 1e-6
        torch.testing.assert_close(ours, theirs, rtol=2 * one_rounding, atol=one_rounding)


@WITH_NATIVE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_weights_that_are_not_finite_stay_visible(dtype):
    score = torch.zeros(1, 1, 3, 3, dtype=dtype)
    score[0, 0, 1, 2], score[0, 0, 2, 0] = torch.nan, torch.inf
    weight, _ = native.softened(score, torch.zeros(1, 1, 3, 3, dtype=dtype), None)
    assert weight.isnan().any(-1).flatten().tolist() == [False, True, True]


def test_what_the_compiled_passes_do_not_know_is_left_to_plain_torch(monkeypatch):
    def refuse(*_tensors: object) -> Tensor:
        raise AssertionError("compiled passes know float32, and bfloat16 under its autocast")

    monkeypatch.setattr(native, "linear_gelu", refuse)
    monkeypatch.setattr(native, "linear_add_norm", refuse)
    for dtype in (torch.float64, torch.bfloat16):
        assert layer_passes.linear_gelu(*gelu_case(3, 4, 5, dtype)).dtype == dtype
    tensors = gelu_case(3, 4, 5, torch.float32)
    with torch.autocast("cpu", dtype=torch.float16):
        assert layer_passes.linear_gelu(*tensors).dtype == torch.float16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = gelu_case(3, 4, 5, torch.bfloat16)
        assert torch.equal(layer_passes.linear_gelu(*narrow), reference.linear_gelu(*narrow))
        assert run_norm(layer_passes, norm_case(3, 4, 5, torch.bfloat16)).dtype == torch.bfloat16
    if not native.why_not():
        with pytest.raises(AssertionError, match="compiled passes know"):
            layer_passes.linear_gelu(*tensors)


@WITH_NATIVE
def test_the_proof_draws_nothing_that_a_run_would_draw():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    assert native.why_not.__wrapped__() == ""
    assert torch.equal(torch.rand(1), expected)


def test_without_a_compiler_plain_torch_serves(monkeypatch):
    monkeypatch.setattr(native, "why_not", native.why_not.__wrapped__)

    def missing() -> None:
        raise BuildError("no C++ compiler is installed")

    monkeypatch.setattr(native, "load", missing)
    assert native.why_not() == "no C++ compiler is installed"
    tensors = gelu_case(3, 4, 5, torch.float32)
    assert torch.equal(layer_passes.linear_gelu(*tensors), reference.linear_gelu(*tensors))


@WITH_NATIVE
@pytest.mark.parametrize(
    ("right", "wrong", "word"),
    [
        ("0.5f * sum * t * power", "0.49f * sum * t * power", "the value differs"),
        ("x * (0.39894228f * power)", "x * (0.38f * power)", "gradient of hidden differs"),
        ("gelu * passed, to + i", "gelu, to + i", "output"),
        ("normal.slope * factor[i] * passed", "normal.slope * factor[i]", "gradient"),
        ("factor[width + i]", "factor[i]", "gradient"),
        ("widen(beside[i]) + widen(from[i])", "widen(from[i])", "output"),
        ("squares / static_cast<float>(width) + eps", "squares / static_cast<float>(width) + 0.5f", "output"),
        ("widen(b[i]) * cos[i] + widen", "widen(b[i]) * cos[i] - widen", "the output differs"),
        (
            "- sum - widen(x[i]) * along);\n          const float of_value",
            "- sum + widen(x[i]) * along);\n          const float of_value",
            "gradient",
        ),
        ("* (widen(of_score[i]) - along)", "* widen(of_score[i])", "gradient of attention differs"),
        ("value * (level[i] >= least ? 1.0f : 0.0f), to + i)", "value, to + i)", "with dropout"),
        ("map / num_heads * sequence", "0 * num_heads", "the attention differs"),
    ],
)
def test_a_build_that_computes_something_else_is_not_trusted(right, wrong, word, tmp_path, monkeypatch):
    text = native.SOURCE.read_text(encoding="utf-8")
    assert text.count(right) == 1
    source = tmp_path / "passes.cpp"
    source.write_text(text.replace(right, wrong), encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "SOURCE", source)
    monkeypatch.setattr(native, "load", native.load.__wrapped__)
    reason = native.why_not.__wrapped__()
    assert reason.startswith("the build does not agree with the definition:") and word in reason
