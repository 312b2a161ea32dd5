"""The GPU kernels in Triton's interpreter; `test_triton.py` runs this file in a process of its own.

The interpreter must be chosen before triton is imported, by TRITON_INTERPRET=1. It takes milliseconds an
operation, so the shapes are the smallest that have more than one tile of rows, block of ids and part of the
width, each with a ragged end.
"""

# M rows, D width, V vocabulary

from collections.abc import Iterator

import pytest
import torch
from kernel_cases import (
    assert_within_budget,
    cumulative_share,
    in_float64,
    logits_only,
    prepared,
    random_case,
    rounding_of,
    run,
)

from electra_cli.kernels.masked_sampling import choose_implementation, masked_sample, token_log_prob
from electra_cli.kernels.masked_sampling import triton as triton_sampling
from electra_cli.kernels.masked_sampling.triton_launch import (
    FLOAT_BLOCKS,
    IS_INTERPRETED,
    BlockSizes,
    Layer,
    forward,
)

CPU = torch.device("cpu")
SHAPES = [(1, 5, 130), (5, 70, 257), (33, 16, 128)]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    assert IS_INTERPRETED
    torch.set_num_threads(1)
    yield


def test_the_choice_is_triton():
    assert choose_implementation("triton", CPU) == ("triton", "asked for")


@pytest.mark.parametrize(
    ("shape", "name"), [(SHAPES[0], "plain"), (SHAPES[1], "all"), (SHAPES[2], "forbidden")]
)
def test_error_is_no_more_than_plain_torchs_and_rounding(shape, name):
    case, options = prepared(shape, name)
    truth, plain = run(in_float64(case), "reference", **options), run(case, "reference", **options)
    fused = run(case, "triton", **options)
    for field, rounding in rounding_of(case, torch.float32, **options).items():
        assert getattr(fused, field).dtype == torch.float32
        assert_within_budget(getattr(truth, field), getattr(plain, field), getattr(fused, field), rounding)
    assert torch.equal(fused.sampled_M, plain.sampled_M)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_products_stay_within_their_rounding(dtype):
    case, options = prepared((5, 70, 257), "all")
    truth = run(in_float64(case), "reference", **options)
    with torch.autocast("cpu", dtype=dtype):
        plain, fused = run(case, "reference", **options), run(case, "triton", **options)
    for field, rounding in rounding_of(case, dtype, **options).items():
        assert getattr(fused, field).dtype == torch.float32
        assert_within_budget(getattr(truth, field), getattr(plain, field), getattr(fused, field), rounding)


def test_a_loss_scale_does_not_overflow_half_precision_gradients():
    case = random_case(3, 16, 130)
    trained = [t.half().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
    rest = (case.target_M, case.weight_M, case.uniform_M)
    loss = masked_sample(*trained, *rest, implementation="triton").loss_sum
    plain = torch.autograd.grad(loss, trained, retain_graph=True)
    # 2^17 itself is no float16; what it scales is, after the division by the count.
    scaled = torch.autograd.grad(loss * 2.0**17 * 2.0**-12, trained)
    for one, other in zip(scaled, plain, strict=True):
        torch.testing.assert_close(one.float() / 32, other.float(), rtol=2e-3, atol=1e-5)


def test_ids_equal_the_definitions_but_at_counted_boundaries():
    case = random_case(32, 16, 300)
    forbidden_M = torch.arange(32)
    options = {"temperature": 0.8, "forbidden_M": forbidden_M}
    values = vars(case).values()
    fused_M = masked_sample(*values, implementation="triton", **options).sampled_M
    plain_M = masked_sample(*values, implementation="reference", **options).sampled_M
    differs_M = fused_M != plain_M
    # 32 rows of 300 boundaries, each moved by about 1e-7: none is expected.
    assert differs_M.sum() <= 1
    distance_M = (cumulative_share(case, **options) - case.uniform_M[:, None]).abs().amin(1)
    assert (distance_M[differs_M] < 1e-5).all()


def test_other_block_sizes_give_the_same_results_but_for_rounding():
    case = random_case(17, 40, 257)
    found = []
    for blocks in (FLOAT_BLOCKS, BlockSizes(rows=16, part=16, out=16, num_warps=1, num_stages=1)):
        layer = Layer.prepare(case.hidden_MD, case.table_VD, case.bias_V, 2, torch.float32, blocks)
        found.append(forward(layer, case.target_M.clamp(max=254), case.uniform_M, None, 1.0))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-5)
    assert torch.equal(found[0][3], found[1][3])


def test_log_prob_and_its_gradients_equal_the_definition():
    case, options = prepared((5, 33, 257), "padding")
    upstream_M = torch.randn(5, generator=torch.Generator().manual_seed(1))
    upstream_M[::4] = 0.0
    found = {}
    for name in ("triton", "reference"):
        trained = [t.clone().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
        log_prob_M = token_log_prob(*trained, case.target_M, implementation=name, **options)
        found[name] = (log_prob_M, *torch.autograd.grad(log_prob_M, trained, upstream_M))
    for fused, plain in zip(found["triton"], found["reference"], strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)
    # Padding ids take no part.
    assert (found["triton"][2][-3:] == 0).all()
    assert (found["triton"][3][-3:] == 0).all()


@pytest.mark.parametrize("scale", [30_000.0, 1e30, 3e38])
def test_huge_finite_logits_give_an_id_of_the_largest(scale):
    sign_MV = torch.randn(3, 150, generator=torch.Generator().manual_seed(0)).sign()
    result = logits_only(sign_MV * scale, "triton", uniform=0.37)
    assert (sign_MV.gather(1, result.sampled_M[:, None]) == 1).all()
    is_top_M = sign_MV[:, 0] == 1
    torch.testing.assert_close(result.loss_M[is_top_M], (sign_MV[is_top_M] == 1).sum(1).float().log())


def test_a_forbidden_id_counts_in_the_loss_even_if_it_dwarfs_all_others():
    logits_1V = torch.zeros(1, 140)
    logits_1V[0, 1] = 1000.0
    result = logits_only(logits_1V, "triton", target=1, uniform=0.6, forbidden_M=torch.tensor([1]))
    assert result.loss_sum.item() == 0.0
    assert result.sampled_M.item() not in (0, 1)


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_a_row_with_a_logit_that_is_not_finite_has_a_nan_loss_and_an_id_in_range(bad):
    case = random_case(4, 1, 140)
    case.hidden_MD.fill_(0.0)
    case.hidden_MD[3] = bad
    case.table_VD.fill_(1.0)
    trained = [t.clone().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
    rest = (case.target_M.clamp(max=132), case.weight_M, case.uniform_M)
    result = masked_sample(
        *trained, *rest, forbidden_M=torch.zeros(4).long(), num_padding_ids=7, implementation="triton"
    )
    assert result.loss_M.isnan().nonzero().flatten().tolist() == [3]
    assert ((result.sampled_M > 0) & (result.sampled_M < 133)).all()
    assert all(gradient.isnan().any() for gradient in torch.autograd.grad(result.loss_sum, trained))


def test_unused_slots_change_nothing_whatever_they_hold():
    case = random_case(6, 16, 130)
    case.weight_M[4:] = 0.0
    clean = run(case, "triton")
    case.hidden_MD[4:] = torch.nan
    padded = run(case, "triton")
    for field, value in vars(clean).items():
        assert torch.equal(value, getattr(padded, field)), field
    assert (padded.loss_M[4:] == 0).all()
    assert (padded.grad_hidden_MD[4:] == 0).all()
    assert (padded.sampled_M[4:] == case.target_M[4:]).all()


@pytest.mark.parametrize("rows", [0, 3])
def test_a_batch_without_a_single_used_row_has_loss_and_gradients_zero(rows):
    case = random_case(rows, 5, 130)
    case.weight_M.zero_()
    outcome = run(case, "triton")
    assert outcome.loss_sum == 0
    for gradient in (outcome.grad_hidden_MD, outcome.grad_table_VD, outcome.grad_bias_V):
        assert (gradient == 0).all()


def test_operators_keep_torchs_contract():
    case = random_case(2, 5, 40)
    trained = [t.clone().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
    how = (case.uniform_M, torch.full((2,), 3), 0.9, 0, torch.float32)
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(triton_sampling._token_loss, (*trained, case.target_M, *how), test_utils=utilities)
    row_M = torch.ones(2)
    plain = [t.detach() for t in trained]
    torch.library.opcheck(
        triton_sampling._token_loss_backward,
        (row_M, *plain, case.target_M, row_M, row_M, 0, torch.float32, True, True),
        test_utils=utilities,
    )


@pytest.mark.long
def test_case_c09_the_tail_of_a_whole_vocabulary_is_drawn_evenly():
    """u in the upper tail inverts to id 1 + k, as for the other implementations."""
    vocabulary = 30_522
    logits_MV = torch.full((16, vocabulary), -18.0)
    logits_MV[:, 0] = 0.0
    wanted_M = torch.randint(1, vocabulary, (16,), generator=torch.Generator().manual_seed(0))
    weight = float(torch.tensor(-18.0).exp())
    uniform_M = (1 + (wanted_M.double() - 0.5) * weight) / (1 + (vocabulary - 1) * weight)
    sampled_M = masked_sample(
        torch.eye(16),
        logits_MV.T,
        torch.zeros(vocabulary),
        torch.zeros(16, dtype=torch.int64),
        torch.ones(16),
        uniform_M,
        implementation="triton",
    ).sampled_M
    # The blocks' float32 sums are right to 1e-7 each: 0.01 of a weight at the most.
    assert sampled_M.tolist() == wanted_M.tolist()
