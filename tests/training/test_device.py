"""Device, precision, threads, memory: what is chosen, and why."""

import pytest
import torch

from electra_cli.errors import ExitCode, InputError, MemoryShortError, ProjectError
from electra_cli.models.sizes import EncoderConfig
from electra_cli.optimization import device as device_module
from electra_cli.settings import Pretrain
from electra_cli.training.device import Engine, computing, resolve_engine
from electra_cli.training.memory import (
    activation_bytes,
    common_micro_batch,
    micro_batch_for,
    naming_memory_shortage,
)

SMALL = EncoderConfig(
    vocab_size=30_522,
    num_layers=12,
    hidden_size=256,
    feed_forward_size=1024,
    num_heads=4,
    embedding_size=128,
    max_positions=512,
)


def engine(precision="fp32"):
    return Engine(
        device=torch.device("cpu"), precision=precision, reason="", is_compiled=False, num_threads=1
    )


@pytest.mark.parametrize(
    ("flags", "precision"),
    [({"avx512_bf16"}, "bf16"), ({"amx_bf16", "avx512f"}, "bf16"), ({"bf16"}, "bf16"), ({"avx2"}, "fp32")],
)
def test_a_cpu_computes_bf16_where_it_has_the_instructions(monkeypatch, flags, precision):
    monkeypatch.setattr(device_module, "cpu_flags", lambda: frozenset(flags))
    chosen = resolve_engine(Pretrain(device="cpu"))
    assert chosen.precision == precision
    assert chosen.reason in chosen.describe()


def test_a_run_keeps_the_precision_it_began_with(monkeypatch):
    monkeypatch.setattr(device_module, "cpu_flags", lambda: frozenset())
    assert resolve_engine(Pretrain(device="cpu"), precision="bf16").precision == "bf16"
    assert resolve_engine(Pretrain(device="cpu", precision="fp32"), precision="bf16").precision == "fp32"


def test_float16_is_refused_on_a_cpu():
    with pytest.raises(InputError) as raised:
        resolve_engine(Pretrain(device="cpu", precision="fp16"))
    assert raised.value.key == "pretrain.precision"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("cuda:999", InputError),
        ("tpu-17", ProjectError),
        ("meta", ProjectError),
        ("cpu:7", ProjectError),
        ("cuda:-1", ProjectError),
    ],
)
def test_a_device_that_is_not_there_is_refused(name, error):
    with pytest.raises(error) as raised:
        resolve_engine(Pretrain(device=name))
    assert raised.value.key == "pretrain.device" and name in raised.value.message


def test_a_cpu_run_is_not_compiled_unless_asked():
    assert resolve_engine(Pretrain(device="cpu")).is_compiled is False
    assert resolve_engine(Pretrain(device="cpu", compile="on")).is_compiled is True


def test_deterministic_algorithms_are_on_inside_and_as_before_outside():
    threads = torch.get_num_threads()
    with computing(engine()):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == threads


def test_activations_of_a_row_are_those_of_the_formula():
    # 12 layers × (34 · 128 · 256 + 5 · 4 · 128²) bytes in 16 bits.
    assert activation_bytes(SMALL, 128, "bf16") == 12 * (34 * 128 * 256 + 5 * 4 * 128**2)
    assert activation_bytes(SMALL, 128, "fp32") == 2 * activation_bytes(SMALL, 128, "bf16")
    # Computed again: the inputs of 12 layers and all of one.
    again = activation_bytes(SMALL, 128, "bf16", recomputes_layers=True)
    assert again == 34 * 128 * 256 + 5 * 4 * 128**2 + 12 * 2 * 128 * 256


@pytest.mark.parametrize(
    ("memory", "rows", "expected"),
    [(2**40, 128, 32), (2**40, 24, 24), (2**30, 128, 8), (1, 128, 1), (2**40, 97, 1)],
)
def test_the_micro_batch_is_the_largest_divisor_that_fits(monkeypatch, memory, rows, expected):
    monkeypatch.setattr("electra_cli.training.memory.total_memory", lambda _: memory)
    chosen = micro_batch_for(
        rows, configs=[SMALL], sequence_length=128, num_parameters=14_000_000, engine=engine()
    )
    assert chosen == expected


def test_layers_computed_again_leave_room_for_more_rows(monkeypatch):
    monkeypatch.setattr("electra_cli.training.memory.total_memory", lambda _: 2**30)
    plain, again = (
        micro_batch_for(
            128,
            configs=[SMALL],
            sequence_length=128,
            num_parameters=14_000_000,
            engine=engine(),
            recomputes_layers=recomputes,
        )
        for recomputes in (False, True)
    )
    assert (plain, again) == (8, 32)


def test_more_processes_keep_the_micro_batch_where_they_can():
    assert common_micro_batch(32, 64) == 32
    assert common_micro_batch(128, 64) == 64
    assert common_micro_batch(48, 64) == 16


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
        MemoryError(),
    ],
)
def test_a_failed_allocation_names_the_setting(error):
    with pytest.raises(MemoryShortError) as raised, naming_memory_shortage(16):
        raise error
    assert raised.value.exit_code == ExitCode.MEMORY
    assert "micro_batch_size = 16" in raised.value.message and "micro_batch_size = 8" in raised.value.hint


def test_other_errors_pass_through():
    with pytest.raises(RuntimeError, match="shape"), naming_memory_shortage(16):
        raise RuntimeError("shape mismatch")
