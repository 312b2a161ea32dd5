"""`triton` where there is no GPU: its kernels in the interpreter, and what is said where it cannot serve."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from electra_cli.kernels.masked_sampling import choose_implementation
from electra_cli.kernels.masked_sampling import triton as triton_sampling

HERE = Path(__file__).parent
HAS_TRITON = importlib.util.find_spec("triton") is not None
NEEDS_TRITON = pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")


def interpret(marker: str) -> None:
    """Run interpreted_triton.py in a process whose triton interprets; every test of it must pass."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    # NumPy stands in for the GPU: it warns where inf and NaN are made on purpose.
    arguments = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-W",
        "ignore::RuntimeWarning",
        "-m",
        marker,
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, str(HERE / "interpreted_triton.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert re.search(r"[1-9]\d* passed", done.stdout), done.stdout
    assert "skipped" not in done.stdout.replace("0 tests skipped", "")


@NEEDS_TRITON
def test_the_kernels_hold_in_the_interpreter():
    interpret("not long")


@NEEDS_TRITON
@pytest.mark.long
def test_the_kernels_hold_on_a_whole_vocabulary_in_the_interpreter():
    interpret("long")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_definition_serves_and_the_reason_is_said():
    name, reason = choose_implementation("auto", torch.device("cuda"))
    assert name == "reference"
    assert reason.startswith("plain torch; triton cannot serve: t")


@NEEDS_TRITON
def test_asked_for_on_a_cpu_it_is_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(triton_sampling, "_why_not", triton_sampling._why_not.__wrapped__)
    with pytest.raises(
        ValueError, match='sampler "triton" cannot serve: triton runs on a CPU in its interpr'
    ):
        choose_implementation("triton", torch.device("cpu"))


def test_without_triton_that_is_the_reason(monkeypatch):
    monkeypatch.setattr(triton_sampling, "_why_not", triton_sampling._why_not.__wrapped__)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ValueError, match='sampler "triton" cannot serve: triton is not installed'):
        choose_implementation("triton", torch.device("cpu"))
    assert choose_implementation("auto", torch.device("cuda"))[0] == "reference"
