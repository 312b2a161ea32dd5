"""Fixtures that every room's tests may use."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest


def pytest_configure() -> None:
    """Let Ctrl-C arrive: a shell starts its background jobs deaf to it, and their children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real corpora and tasks; a test that needs it is skipped where it is absent."""
    named = os.environ.get("ELECTRA_TEST_DATA", "")
    if not named:
        pytest.skip("ELECTRA_TEST_DATA is not set: no real data on this machine")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"ELECTRA_TEST_DATA names {folder}, which is no folder")
    return folder


class RunElectra(Protocol):
    """Runs one command in a process of its own."""

    def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        check: int | None = 0,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def electra() -> RunElectra:
    """`electra("build-vocab", "corpus/", cwd=…)`; `check` is the exit code that must come, `None` any."""

    def run(
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        check: int | None = 0,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ELECTRA_")}
        environment |= {"COLUMNS": "100", "HF_HUB_OFFLINE": "1", **(env or {})}
        done = subprocess.run(
            [sys.executable, "-m", "electra_cli", *map(str, arguments)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check is not None and done.returncode != check:
            pytest.fail(
                f"electra {' '.join(map(str, arguments))} gave exit code {done.returncode}, not {check}\n"
                f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
            )
        return done

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run for want of the real data."""
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "ELECTRA_TEST_DATA" in str(report.longrepr)
    ]
    terminalreporter.write_line(f"{len(skipped)} tests skipped for want of the real data (ELECTRA_TEST_DATA)")
