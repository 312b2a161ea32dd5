"""Building `native`: once a machine, never trusted unproven, and never missed where it cannot be built."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel_cases import NATIVE, random_case, run

from electra_cli.kernels import native_build
from electra_cli.kernels.masked_sampling import choose_implementation, native, native_rows
from electra_cli.kernels.masked_sampling.native_rows import SOURCE
from electra_cli.kernels.masked_sampling.passes import TorchPasses
from electra_cli.kernels.native_build import BuildError

CPU = torch.device("cpu")
WITH_NATIVE = NATIVE.marks[0]


@pytest.fixture
def fresh(tmp_path, monkeypatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "electra-cli" / "kernels"


def script(folder: Path, text: str) -> Path:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("wanted", ["auto", "native"])
def test_without_a_compiler_cpu_serves_and_the_reason_is_said(wanted, fresh, monkeypatch):
    monkeypatch.setattr(native, "_why_not", native._why_not.__wrapped__)
    monkeypatch.setattr(native, "load", native.load.__wrapped__)
    monkeypatch.setenv("CXX", "no-such-compiler")
    name, reason = choose_implementation(wanted, CPU)
    assert name == "cpu"
    assert reason.endswith("native cannot serve: no C++ compiler (no-such-compiler) is installed")
    assert not fresh.exists()


def test_without_any_name_of_a_compiler_the_usual_ones_are_looked_for(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=r"no C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\) is installed"):
        native_build.library(SOURCE)


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(script(tmp_path, "echo 'error: no such option' >&2; exit 3")))
    with pytest.raises(BuildError, match="compiler failed: error: no such option"):
        native_build.library(SOURCE)
    assert [path.name for path in fresh.iterdir()] == ["lock"]


def test_a_build_that_cannot_be_loaded_is_no_build(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(native, "load", native.load.__wrapped__)
    # The last argument names the output: an empty file is no library.
    monkeypatch.setenv("CXX", str(script(tmp_path, 'for last; do :; done; : > "$last"')))
    assert "cannot be loaded" in native._why_not.__wrapped__()


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "electra-cli").write_text("a file", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(script(tmp_path, "exit 0")))
    with pytest.raises(BuildError, match="kernels cannot hold the build: Not a directory"):
        native_build.library(SOURCE)


@WITH_NATIVE
def test_a_build_is_used_again_until_the_compiler_changes(fresh, tmp_path, monkeypatch):
    log, compiler = tmp_path / "calls", native_build.find_compiler()
    monkeypatch.setenv("CXX", str(script(tmp_path, f'echo x >> "{log}"; exec "{compiler}" "$@"')))
    first, second = native_build.library(SOURCE), native_build.library(SOURCE)
    assert first == second
    assert log.read_text().split() == ["x"]
    script(tmp_path, f'echo yy >> "{log}"; exec "{compiler}" "$@"')
    assert native_build.library(SOURCE) != first
    assert log.read_text().split() == ["x", "yy"]


@WITH_NATIVE
def test_processes_that_start_together_build_once(fresh, tmp_path, monkeypatch):
    log, compiler = tmp_path / "calls", native_build.find_compiler()
    slow = script(tmp_path, f'echo x >> "{log}"; sleep 0.5; exec "{compiler}" "$@"')
    command = [
        sys.executable,
        "-c",
        "from electra_cli.kernels.masked_sampling.native_rows import SOURCE;"
        "from electra_cli.kernels.native_build import library; print(library(SOURCE))",
    ]
    environment = {**os.environ, "CXX": str(slow), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    paths = [process.communicate(timeout=300)[0].strip() for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert paths[0] == paths[1]
    assert Path(paths[0]).is_file()
    assert log.read_text().split() == ["x"]


@WITH_NATIVE
@pytest.mark.parametrize(
    ("file", "right", "wrong", "word"),
    [
        (
            native_build.HEADER,
            "value * power : 0.0f;",
            "value * power * (n < -2.0f ? 1.01f : 1.0f) : 0.0f;",
            "the loss differs by up to",
        ),
        (
            SOURCE,
            "sum += static_cast<double>(weight[i]);",
            "sum += static_cast<double>(weight[i]) * (1.0 + i);",
            "other ids are drawn",
        ),
        (SOURCE, "widen(weights[id]) + bias[id];", "widen(weights[id]);", "other ids are drawn"),
    ],
)
def test_a_build_that_computes_something_else_is_not_trusted(
    file, right, wrong, word, fresh, tmp_path, monkeypatch
):
    assert file.read_text(encoding="utf-8").count(right) == 1
    for one in (SOURCE, native_build.HEADER):
        shutil.copy(one, tmp_path)
    spoiled = tmp_path / file.name
    spoiled.write_text(file.read_text(encoding="utf-8").replace(right, wrong), encoding="utf-8")
    monkeypatch.setattr(native_rows, "SOURCE", tmp_path / SOURCE.name)
    monkeypatch.setattr(native_build, "HEADER", tmp_path / native_build.HEADER.name)
    for module in (native, native_rows):
        monkeypatch.setattr(module, "load", native_rows.load.__wrapped__)
    reason = native._why_not.__wrapped__()
    assert reason.startswith(f"the build does not agree with the definition: {word}")


@WITH_NATIVE
def test_native_uses_no_pass_of_plain_torch(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a pass of plain torch")

    monkeypatch.setattr(TorchPasses, "weigh", refuse)
    monkeypatch.setattr(TorchPasses, "add_columns", refuse)
    run(random_case(7, 5, 300), "native")
    with pytest.raises(AssertionError, match="a pass of plain torch"):
        run(random_case(7, 5, 300), "cpu")
