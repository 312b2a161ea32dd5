"""What is drawn: the distribution, its tail, what is never drawn, and equality across implementations."""

# M rows, D width, V vocabulary

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import EVERY, FAST, Case, cumulative_share, logits_only, random_case
from scipy import stats

from electra_cli.kernels.masked_sampling import masked_sample


def draw(case: Case, implementation: str, **options) -> torch.Tensor:
    return masked_sample(*vars(case).values(), implementation=implementation, **options).sampled_M


def same_row_often(times: int, vocabulary: int, *, seed: int) -> Case:
    """One row repeated, each time with a uniform of its own."""
    case = random_case(1, 5, vocabulary, seed=seed)
    uniform_M = torch.rand(times, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Case(
        hidden_MD=case.hidden_MD.expand(times, -1),
        table_VD=case.table_VD,
        bias_V=case.bias_V,
        target_M=case.target_M.expand(times),
        weight_M=torch.ones(times),
        uniform_M=uniform_M,
    )


@pytest.mark.parametrize("implementation", FAST)
def test_a_million_draws_follow_the_softmax(implementation):
    assert_draws_follow_the_softmax(implementation, 130, 1.0, 1_000_000)


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize(("vocabulary", "temperature"), [(130, 1.0), (300, 0.6)])
def test_draws_at_a_temperature_follow_its_softmax(implementation, vocabulary, temperature):
    assert_draws_follow_the_softmax(implementation, vocabulary, temperature, 50_000)


def assert_draws_follow_the_softmax(
    implementation: str, vocabulary: int, temperature: float, times: int
) -> None:
    """Nothing is left to chance: fixed uniforms, so the statistic is a constant of the code."""
    forbidden, padding = 3, 2
    case = same_row_often(times, vocabulary, seed=5)
    case = Case(**{**vars(case), "target_M": case.target_M.clamp(max=vocabulary - padding - 1)})
    sampled_M = draw(
        case,
        implementation,
        temperature=temperature,
        num_padding_ids=padding,
        forbidden_M=torch.full((times,), forbidden),
    )
    logits_V = (case.hidden_MD[0].double() @ case.table_VD.double().T + case.bias_V.double()) / temperature
    logits_V[forbidden] = -torch.inf
    share_V = logits_V[: vocabulary - padding].softmax(0)
    count_V = sampled_M.bincount(minlength=vocabulary)
    assert count_V[forbidden] == 0
    assert (count_V[vocabulary - padding :] == 0).all()
    # The usual rule: cells with at least 5 expected draws, the others together.
    is_large_V = share_V * times >= 5
    count_V = count_V[: vocabulary - padding]
    observed = [*count_V[is_large_V].tolist(), int(count_V[~is_large_V].sum())]
    expected = [*(share_V[is_large_V] * times).tolist(), float(share_V[~is_large_V].sum() * times)]
    cells = [(o, e) for o, e in zip(observed, expected, strict=True) if e > 0]
    statistic = sum((o - e) ** 2 / e for o, e in cells)
    assert stats.chi2.sf(statistic, len(cells) - 1) > 1e-3


@pytest.mark.parametrize("implementation", EVERY)
def test_pairs_of_equal_rows_with_different_uniforms_are_independent(implementation):
    pairs = draw(same_row_often(60_000, 8, seed=11), implementation).view(-1, 2)
    table = torch.zeros(8, 8).index_put_((pairs[:, 0], pairs[:, 1]), torch.ones(len(pairs)), accumulate=True)
    assert stats.chi2_contingency(table.numpy() + 1e-9).pvalue > 1e-3


@pytest.mark.parametrize("implementation", EVERY)
def test_case_c09_a_tail_of_30521_ids_18_nats_below_has_its_exact_mass(implementation):
    """The edges of the top id's interval are found by bisection: the mass on either side is the tail's."""
    vocabulary, top = 30_522, 20_000
    logits_MV = torch.full((64, vocabulary), -18.0)
    logits_MV[:, top] = 0.0
    weight = math.exp(-18.0)
    total = 1 + (vocabulary - 1) * weight
    for edge, lowest in ((top * weight / total, 0.0), (1 - (vocabulary - 1 - top) * weight / total, 0.9)):
        low, high = lowest, lowest + 0.1
        for _ in range(4):
            uniform_M = torch.linspace(low, high, 64, dtype=torch.float64)
            sampled_M = masked_sample(
                torch.eye(64),
                logits_MV.T,
                torch.zeros(vocabulary),
                torch.zeros(64, dtype=torch.int64),
                torch.ones(64),
                uniform_M,
                implementation=implementation,
            ).sampled_M
            is_before_M = sampled_M < top if lowest == 0.0 else sampled_M <= top
            index = int(is_before_M.sum())
            low, high = uniform_M[index - 1].item(), uniform_M[index].item()
        # exp in float32 is right to 1e-7 of each weight; so is then the mass of the tail.
        tail = edge if lowest == 0.0 else 1 - edge
        assert abs((low + high) / 2 - edge) < 3e-7 * tail + (high - low)


@pytest.mark.parametrize("implementation", EVERY)
def test_ids_of_the_tail_are_drawn_evenly(implementation):
    """u in the upper tail of C09 inverts to id top + 1 + k, exactly up to one rounded boundary."""
    vocabulary = 30_522
    logits_MV = torch.full((200, vocabulary), -18.0)
    logits_MV[:, 0] = 0.0
    wanted_M = torch.randint(1, vocabulary, (200,), generator=torch.Generator().manual_seed(0))
    weight = math.exp(-18.0)
    uniform_M = (1 + (wanted_M.double() - 0.5) * weight) / (1 + (vocabulary - 1) * weight)
    sampled_M = masked_sample(
        torch.eye(200),
        logits_MV.T,
        torch.zeros(vocabulary),
        torch.zeros(200, dtype=torch.int64),
        torch.ones(200),
        uniform_M,
        implementation=implementation,
    ).sampled_M
    # The middle of an id's interval lies half a weight from the edge; float32 rounding of the weights moves
    # an edge by at most 30,521 · 6e-8 = 0.002 of a weight.
    assert sampled_M.tolist() == wanted_M.tolist()


@pytest.mark.parametrize("implementation", FAST)
@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_ids_equal_the_definitions_but_at_counted_boundaries(implementation, temperature):
    case = random_case(3000, 16, 1000)
    forbidden_M = torch.arange(3000) % 1000
    options = {"temperature": temperature, "forbidden_M": forbidden_M}
    fused_M, plain_M = draw(case, implementation, **options), draw(case, "reference", **options)
    differs_M = fused_M != plain_M
    # Logits below 20 rounded in another order move a boundary by about 1e-7 (errors average out over ids);
    # with 1,000 boundaries a row and 3,000 rows about 0.3 cases are expected.
    assert differs_M.sum() <= 3
    share_MV = cumulative_share(case, **options)
    distance_M = (share_MV - case.uniform_M[:, None]).abs().amin(1)
    assert (distance_M[differs_M] < 1e-5).all()
    exact_M = (share_MV <= case.uniform_M[:, None]).sum(1)
    assert (distance_M[fused_M != exact_M] < 1e-5).all()


@pytest.mark.parametrize("implementation", FAST)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pitfall_k12_half_precision_products_of_30000_draw_only_what_has_weight(implementation, dtype):
    case = random_case(70, 16, 1000)
    case = Case(**{**vars(case), "hidden_MD": case.hidden_MD.sign() * 3000, "table_VD": case.table_VD.sign()})
    with torch.autocast("cpu", dtype=dtype):
        sampled_M = draw(case, implementation)
    logits_MV = case.hidden_MD @ case.table_VD.T + case.bias_V
    # The product is rounded to `dtype` before the float32 bias is added.
    slack = 48_000 * torch.finfo(dtype).eps + 20
    assert (logits_MV.gather(1, sampled_M[:, None]).squeeze(1) > logits_MV.amax(1) - slack).all()


@pytest.mark.parametrize("implementation", FAST)
def test_pitfall_k12_the_number_of_threads_changes_no_sample(implementation):
    case = random_case(300, 16, 1000)
    before = torch.get_num_threads()
    drawn = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        drawn.append(draw(case, implementation))
    torch.set_num_threads(before)
    # 300 rows: the chance that one lies within rounding of a boundary is below 1e-3, and the case is fixed.
    assert torch.equal(*drawn)


LOGITS = st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=300)
UNIFORM = st.integers(0, 2**53 - 1).map(lambda k: k * 2.0**-53)
PROFILE = settings(max_examples=40, derandomize=True, deadline=None)


@pytest.mark.parametrize("implementation", EVERY)
@PROFILE
@given(logits=LOGITS, uniform=UNIFORM, forbidden=st.integers(0, 1), padding=st.integers(0, 1))
def test_property_p17_what_is_drawn_is_allowed_and_has_weight(
    implementation, logits, uniform, forbidden, padding
):
    logits_1V = torch.tensor(
        [
            logits,
        ]
    )
    options = {"forbidden_M": torch.tensor([forbidden]), "num_padding_ids": padding if len(logits) > 2 else 0}
    sampled = logits_only(logits_1V, implementation, uniform=uniform, **options).sampled_M.item()
    allowed = len(logits) - options["num_padding_ids"]
    assert 0 <= sampled < allowed
    assert sampled != forbidden
    best = max(logit for place, logit in enumerate(logits[:allowed]) if place != forbidden)
    # exp underflows to zero in float32 below -104.
    assert logits_1V[0, sampled].item() >= torch.tensor(best).item() - 104


@pytest.mark.parametrize("implementation", EVERY)
@PROFILE
@given(logits=LOGITS, uniform=UNIFORM)
def test_property_p17_a_temperature_near_zero_gives_the_largest(implementation, logits, uniform):
    logits_1V = torch.tensor([logits])
    sampled = logits_only(logits_1V, implementation, uniform=uniform, temperature=1e-30).sampled_M
    assert logits_1V[0, sampled] == logits_1V.max()


@pytest.mark.parametrize("implementation", EVERY)
@PROFILE
@given(
    logits=st.lists(st.integers(-1000, 1000), min_size=2, max_size=300),
    uniform=UNIFORM,
    constant=st.integers(-1000, 1000),
)
def test_property_p17_adding_a_constant_changes_nothing(implementation, logits, uniform, constant):
    """Multiples of 1/64 add without rounding, so the ids are equal and not only alike."""
    logits_1V = torch.tensor([logits]) / 64
    shifted = logits_only(logits_1V + constant / 64, implementation, uniform=uniform)
    plain = logits_only(logits_1V, implementation, uniform=uniform)
    assert shifted.sampled_M == plain.sampled_M
    assert shifted.loss_sum == pytest.approx(plain.loss_sum.item(), rel=1e-6, abs=1e-6)
