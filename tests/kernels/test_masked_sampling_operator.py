"""The kernel as others meet it: its checks, the choice, its operators under autograd and torch.compile."""

# M rows, D width, V vocabulary

import pytest
import torch
from kernel_cases import EVERY, FAST, NATIVE, NO_NATIVE, Case, random_case, run
from torch.autograd.graph import saved_tensors_hooks

from electra_cli.kernels.masked_sampling import (
    choose_implementation,
    cpu,
    cpu_log_prob,
    gradients,
    masked_sample,
    token_log_prob,
)

CPU = torch.device("cpu")


def changed(case: Case, **fields) -> Case:
    return Case(**{**vars(case), **fields})


@pytest.mark.parametrize(
    ("fields", "options", "words"),
    [
        ({"table_VD": torch.zeros(507, 6)}, {}, r"\[7, 5\] and table_VD \[507, 6\]"),
        ({"bias_V": torch.zeros(508)}, {}, r"bias_V has shape \[508\], the table has 507 rows"),
        ({"hidden_MD": torch.zeros(7, 5, dtype=torch.int64)}, {}, "hidden_MD is torch.int64"),
        ({"target_M": torch.zeros(6, dtype=torch.int64)}, {}, r"target_M has shape \[6\] for 7 rows"),
        ({"target_M": torch.zeros(7, dtype=torch.int32)}, {}, "target_M is torch.int32, not torch.int64"),
        ({"target_M": torch.full((7,), 507)}, {}, r"target_M holds ids outside \[0, 507\): 507 … 507"),
        ({"uniform_M": torch.zeros(7)}, {}, "uniform_M is torch.float32, not torch.float64"),
        ({}, {"temperature": 0.0}, "temperature is 0.0, not a finite number above 0"),
        ({}, {"temperature": float("nan")}, "temperature is nan"),
        ({}, {"num_padding_ids": 507}, "num_padding_ids = 507 leaves no id of 507"),
        ({"target_M": torch.full((7,), 504)}, {"num_padding_ids": 3}, r"outside \[0, 504\)"),
        ({}, {"forbidden_M": torch.full((7,), -2)}, r"forbidden_M holds ids outside \[-1, 507\)"),
        (
            {"target_M": torch.zeros(7, dtype=torch.int64)},
            {"forbidden_M": torch.zeros(7, dtype=torch.int64), "num_padding_ids": 506},
            "none can be forbidden",
        ),
        ({}, {"implementation": "numba"}, 'sampler "numba" is not in this version; it has auto, native'),
    ],
)
def test_a_wrong_input_is_named(fields, options, words):
    with pytest.raises(ValueError, match=words):
        masked_sample(*vars(changed(random_case(7, 5, 507), **fields)).values(), **options)


def test_log_prob_checks_its_inputs_too():
    case = random_case(7, 5, 507)
    with pytest.raises(ValueError, match="target_M holds ids outside"):
        token_log_prob(case.hidden_MD, case.table_VD, case.bias_V, case.target_M + 600)


def test_auto_takes_the_fastest_and_says_why():
    name, reason = choose_implementation("auto", CPU)
    assert (name, NO_NATIVE or reason) == ("cpu" if NO_NATIVE else "native", NO_NATIVE or reason)
    assert NO_NATIVE in reason
    assert choose_implementation("reference", CPU) == ("reference", "asked for")


def test_an_implementation_that_cannot_run_on_a_device_is_refused():
    with pytest.raises(ValueError, match='sampler "cpu" cannot run on cuda'):
        choose_implementation("cpu", torch.device("cuda"))


@pytest.mark.parametrize("implementation", EVERY)
def test_the_same_call_gives_the_same_bits(implementation):
    case = random_case(130, 16, 1000)
    first, second = run(case, implementation), run(case, implementation)
    for field, value in vars(first).items():
        assert torch.equal(value, getattr(second, field)), field


@pytest.mark.parametrize("implementation", FAST)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_fresh_memory_is_never_read(implementation, temperature, monkeypatch):
    case = random_case(70, 16, 507)
    clean = run(case, implementation, temperature=temperature)

    def poisoned(make):
        def empty(*args, **kwargs):
            tensor = make(*args, **kwargs)
            return tensor.fill_(torch.nan if tensor.is_floating_point() else 2**31 - 1)

        return empty

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    # torch's own switch fills what its C++ code allocates as well.
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        found = run(case, implementation, temperature=temperature)
    finally:
        torch.use_deterministic_algorithms(False)
    for field, value in vars(clean).items():
        assert torch.equal(value, getattr(found, field)), field


@pytest.mark.parametrize("implementation", FAST)
def test_what_waits_for_backward_is_the_gradients_alone(implementation):
    case = random_case(70, 16, 1000)
    kept = []
    with saved_tensors_hooks(lambda tensor: kept.append(list(tensor.shape)) or tensor, lambda tensor: tensor):
        trained = [t.clone().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
        masked_sample(*trained, case.target_M, case.weight_M, case.uniform_M, implementation=implementation)
    assert sorted(kept) == [[70, 16], [1000], [1000, 16]]


def test_without_gradients_no_gradient_is_formed(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("gradient work")

    monkeypatch.setattr(gradients.Gradients, "add_tile", refuse)
    case = random_case(7, 5, 507)
    case.table_VD.requires_grad_()
    with torch.no_grad():
        result = masked_sample(*vars(case).values(), implementation="cpu")
    assert not result.loss_sum.requires_grad


def test_a_frozen_table_gets_no_gradient_memory():
    case = random_case(7, 5, 507)
    _, _, _, hidden, table, bias = cpu._masked_sample(
        *vars(case).values(), None, 1.0, 0, torch.float32, True, False, False
    )
    assert hidden.shape == (7, 5)
    assert (table.numel(), bias.numel()) == (0, 0)


@pytest.mark.parametrize("implementation", FAST)
def test_what_arrives_from_above_scales_the_gradients_each_time(implementation):
    case = random_case(7, 5, 507)
    once = run(case, implementation)
    hidden_MD = case.hidden_MD.clone().requires_grad_()
    loss_sum = masked_sample(
        hidden_MD, *list(vars(case).values())[1:], implementation=implementation
    ).loss_sum
    for factor in (3.0, -0.5):
        (grad_MD,) = torch.autograd.grad(loss_sum * factor, hidden_MD, retain_graph=True)
        torch.testing.assert_close(grad_MD, once.grad_hidden_MD * factor)


@pytest.mark.parametrize("is_native", [False, pytest.param(True, marks=NATIVE.marks)])
def test_operators_keep_torchs_contract(is_native):
    case = random_case(7, 5, 300)
    trained = [t.clone().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
    rest = (case.target_M, case.weight_M, case.uniform_M, torch.full((7,), 3), 0.9, 0, torch.float32)
    for wants in ((True, True), (True, False), (False, False)):
        args = [
            t.detach().requires_grad_(is_on)
            for t, is_on in zip(trained, (wants[0], wants[1], wants[1]), strict=True)
        ]
        torch.library.opcheck(cpu._masked_sample, (*args, *rest, *wants, is_native))
    how = (0, torch.float32, is_native)
    torch.library.opcheck(cpu_log_prob._token_log_prob, (*trained, case.target_M, *how))
    plain = [t.detach() for t in trained]
    torch.library.opcheck(
        cpu_log_prob._token_log_prob_backward,
        (torch.ones(7), *plain, case.target_M, *how, True, True),
    )


def test_a_compiled_step_is_one_graph_with_the_same_numbers():
    case = random_case(70, 16, 507)
    dense = torch.nn.Linear(16, 16)

    def step(hidden_MD, table_VD, bias_V):
        result = masked_sample(
            dense(hidden_MD), table_VD, bias_V, case.target_M, case.weight_M, case.uniform_M
        )
        log_prob_M = token_log_prob(dense(hidden_MD), table_VD, bias_V, case.target_M)
        return result.loss_sum - log_prob_M.sum(), result.sampled_M

    found = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        trained = [t.clone().requires_grad_() for t in (case.hidden_MD, case.table_VD, case.bias_V)]
        loss, sampled_M = function(*trained)
        found.append((loss.detach(), sampled_M, *torch.autograd.grad(loss, trained)))
    for eager, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, eager)
