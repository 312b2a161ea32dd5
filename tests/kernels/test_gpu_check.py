"""`make gpu-check` where there is no GPU: its sentence, and a rehearsal of every check."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "gpu_check.py"
HAS_TRITON = importlib.util.find_spec("triton") is not None


def gpu_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_a_sentence():
    done = gpu_check()
    assert done.returncode == 1
    assert done.stdout == ""
    wanted = "a CUDA device, and torch" if HAS_TRITON else "triton, which is not installed"
    assert done.stderr.startswith(f"gpu-check needs {wanted}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.long
@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
def test_every_check_passes_in_a_rehearsal(tmp_path):
    file = tmp_path / "result.json"
    done = gpu_check("--rehearse", "--out", str(file))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report == json.loads(file.read_text(encoding="utf-8"))
    outcomes = {one["name"]: one["outcome"] for one in report["findings"]}
    assert set(outcomes.values()) <= {"passed", "measured"}
    for name in ("choice", "tail", "wide addresses", "same call, same bits", "ceilings", "ELECTRA-toy"):
        assert name in outcomes
    assert sum(name.startswith(("accuracy", "distribution")) for name in outcomes) == 4
    assert sum(name.startswith("attention, ") for name in outcomes) == 3
