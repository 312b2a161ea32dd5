"""Every fast implementation against the definition: rounding, odd shapes, extremes, gradients."""

# M rows, D width, V vocabulary

import inspect

import pytest
import torch
from kernel_cases import (
    EVERY,
    FAST,
    OPTIONS,
    assert_within_budget,
    in_float64,
    logits_only,
    prepared,
    random_case,
    rounding_of,
    run,
)
from torch import Tensor

from electra_cli.kernels.masked_sampling import IMPLEMENTATIONS, masked_sample, token_log_prob

SHAPES = [(1, 5, 507), (7, 16, 512), (63, 33, 1000), (130, 16, 4223)]


@pytest.mark.parametrize("implementation", FAST)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_error_is_no_more_than_plain_torchs_and_rounding(implementation, name, shape):
    case, options = prepared(shape, name)
    truth, plain = run(in_float64(case), "reference", **options), run(case, "reference", **options)
    fused = run(case, implementation, **options)
    for field, rounding in rounding_of(case, torch.float32, **options).items():
        assert getattr(fused, field).dtype == torch.float32
        assert_within_budget(getattr(truth, field), getattr(plain, field), getattr(fused, field), rounding)


@pytest.mark.parametrize("implementation", FAST)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_sets_the_precision_of_the_products_alone(implementation, dtype):
    case, options = prepared((63, 33, 1000), "all")
    truth = run(in_float64(case), "reference", **options)
    with torch.autocast("cpu", dtype=dtype):
        plain, fused = run(case, "reference", **options), run(case, implementation, **options)
    for field, rounding in rounding_of(case, dtype, **options).items():
        assert getattr(fused, field).dtype == torch.float32
        assert_within_budget(getattr(truth, field), getattr(plain, field), getattr(fused, field), rounding)


@pytest.mark.parametrize("implementation", FAST)
def test_half_precision_hidden_states_meet_a_float32_table_in_float32(implementation):
    case, options = prepared((63, 33, 1000), "all")
    half = type(case)(**{**vars(case), "hidden_MD": case.hidden_MD.bfloat16()})
    fused, plain = run(half, implementation, **options), run(half, "reference", **options)
    assert fused.grad_hidden_MD.dtype == torch.bfloat16
    assert fused.grad_table_VD.dtype == torch.float32
    # Both see the same float32 products; only the order of adding differs.
    torch.testing.assert_close(fused.loss_M, plain.loss_M, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused.grad_table_VD, plain.grad_table_VD, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("implementation", FAST)
def test_float64_stays_float64(implementation):
    case, options = prepared((63, 33, 1000), "all")
    fused, plain = (run(in_float64(case), name, **options) for name in (implementation, "reference"))
    for field, value in vars(plain).items():
        torch.testing.assert_close(getattr(fused, field), value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("implementation", FAST)
@pytest.mark.parametrize("shape", SHAPES)
def test_log_prob_and_its_gradients_equal_the_definition(implementation, shape):
    case, options = prepared(shape, "padding")
    upstream_M = torch.randn(shape[0], generator=torch.Generator().manual_seed(1))
    upstream_M[::4] = 0.0
    found = {}
    for name in (implementation, "reference"):
        trained = [t.double().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
        log_prob_M = token_log_prob(*trained, case.target_M, implementation=name, **options)
        found[name] = (log_prob_M, *torch.autograd.grad(log_prob_M, trained, upstream_M.double()))
    for fused, plain in zip(found[implementation], found["reference"], strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("implementation", FAST)
def test_log_prob_in_float32_is_minus_the_loss(implementation):
    case = random_case(63, 16, 1000)
    loss_M = masked_sample(*vars(case).values(), implementation=implementation).loss_M
    log_prob_M = token_log_prob(*list(vars(case).values())[:4], implementation=implementation)
    # One float32 rounding of numbers near 10.
    torch.testing.assert_close(log_prob_M, -loss_M, rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize("scale", [30_000.0, 1e30, 3e38])
def test_huge_finite_logits_give_an_id_of_the_largest(implementation, scale):
    sign_MV = torch.randn(7, 507, generator=torch.Generator().manual_seed(0)).sign()
    result = logits_only(sign_MV * scale, implementation, uniform=0.37)
    assert (sign_MV.gather(1, result.sampled_M[:, None]) == 1).all()
    is_top_M = sign_MV[:, 0] == 1
    torch.testing.assert_close(result.loss_M[is_top_M], (sign_MV[is_top_M] == 1).sum(1).float().log())


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_row_with_a_logit_that_is_not_finite_has_a_nan_loss_and_an_id_in_range(
    implementation, bad, temperature
):
    case = random_case(70, 1, 507)
    case.hidden_MD.fill_(0.0)
    case.hidden_MD[3] = bad
    case.table_VD.fill_(1.0)
    result = masked_sample(
        *vars(case).values(),
        temperature=temperature,
        forbidden_M=torch.full((70,), 5),
        num_padding_ids=7,
        implementation=implementation,
    )
    assert result.loss_M.isnan().nonzero().flatten().tolist() == [3]
    assert result.loss_sum.isnan()
    assert ((result.sampled_M >= 0) & (result.sampled_M < 500) & (result.sampled_M != 5)).all()


@pytest.mark.parametrize("implementation", EVERY)
def test_a_loss_that_is_not_finite_has_a_gradient_that_is_not_finite(implementation):
    case = random_case(7, 5, 507)
    case.bias_V[9] = torch.nan
    outcome = run(case, implementation)
    for gradient in (outcome.grad_hidden_MD, outcome.grad_table_VD, outcome.grad_bias_V):
        assert gradient.isnan().any()


@pytest.mark.parametrize("implementation", EVERY)
def test_unused_slots_change_nothing_whatever_they_hold(implementation):
    case = random_case(40, 16, 507)
    case.weight_M[25:] = 0.0
    case.hidden_MD[25:] = torch.nan
    used = type(case)(
        **{
            name: value[:25] if name.endswith("_M") or name == "hidden_MD" else value
            for name, value in vars(case).items()
        }
    )
    padded, bare = run(case, implementation), run(used, implementation)
    # Adding zeros to a sum is exact; the products may be cut differently.
    torch.testing.assert_close(padded.loss_sum, bare.loss_sum, rtol=1e-6, atol=0)
    torch.testing.assert_close(padded.grad_table_VD, bare.grad_table_VD, rtol=1e-5, atol=1e-6)
    assert (padded.loss_M[25:] == 0).all()
    assert (padded.grad_hidden_MD[25:] == 0).all()
    assert (padded.sampled_M[25:] == case.target_M[25:]).all()


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize("rows", [0, 7])
def test_a_batch_without_a_single_used_row_has_loss_and_gradients_zero(implementation, rows):
    case = random_case(rows, 5, 507)
    case.weight_M.zero_()
    outcome = run(case, implementation)
    assert outcome.loss_sum == 0
    for gradient in (outcome.grad_hidden_MD, outcome.grad_table_VD, outcome.grad_bias_V):
        assert (gradient == 0).all()


@pytest.mark.parametrize("implementation", FAST)
def test_gradients_of_parts_add_up_to_the_gradient_of_the_whole(implementation):
    case = random_case(130, 16, 1000)
    halves = [
        type(case)(
            **{
                name: value[part] if name.endswith("_M") or name == "hidden_MD" else value
                for name, value in vars(case).items()
            }
        )
        for part in (slice(0, 47), slice(47, 130))
    ]
    whole, parts = run(case, implementation), [run(half, implementation) for half in halves]
    summed_VD = parts[0].grad_table_VD + parts[1].grad_table_VD
    assert (summed_VD - whole.grad_table_VD).norm() < 1e-6 * whole.grad_table_VD.norm()


@pytest.mark.parametrize("implementation", FAST)
def test_two_hundred_steps_of_learning_follow_the_definition(implementation):
    """Adam on head, table and bias, new uniforms every step, samples fed back into the input.

    Rounding alone differs, and a sample differs only at a boundary, so the curves stay together.
    """

    def losses(name: str) -> Tensor:
        case = random_case(63, 16, 507)
        trained = [t.clone().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
        optimizer = torch.optim.Adam(trained, lr=1e-2)
        generator = torch.Generator().manual_seed(0)
        curve = []
        for _ in range(200):
            uniform_M = torch.rand(63, generator=generator, dtype=torch.float64)
            result = masked_sample(*trained, case.target_M, case.weight_M, uniform_M, implementation=name)
            optimizer.zero_grad()
            (result.loss_sum / 63).backward()
            optimizer.step()
            curve.append(result.loss_sum.detach() / 63)
        return torch.stack(curve)

    fused, plain = losses(implementation), losses("reference")
    assert plain[-1] < 0.1 * plain[0]
    # float32 rounding (6e-8) times 200 steps, with a factor of 10 for Adam's division by small numbers.
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("function", ["masked_sample", "token_log_prob"])
def test_every_implementation_has_the_signature_of_the_definition(name, function):
    found, wanted = (getattr(IMPLEMENTATIONS[which], function) for which in (name, "reference"))
    assert inspect.signature(found) == inspect.signature(wanted)
