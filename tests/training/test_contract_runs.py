"""Every pre-training system under the engine: stopped and continued, and in two processes."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from contract_cases import CASES
from toy_run import Notes, comparable_metrics, make_settings, train, weights_sha256

from electra_cli.errors import PreemptedError
from electra_cli.training.signals import StopRequest

STEPS = 6
BRIEF = {
    "pretrain__steps": STEPS,
    "pretrain__save_every": 4,
    "pretrain__heldout_every": 3,
    "pretrain__heldout_rows": 8,
    "pretrain__log_every": 2,
}


def settings_of(name: str):
    """A toy run of the system, dropout on, two micro-batches a step."""
    changes = {
        f"{table}__{key}": value
        for table, values in CASES[name].tables.items()
        for key, value in values.items()
    }
    return make_settings(**(changes | BRIEF))


def only_run(folder: Path) -> Path:
    (run,) = [one for one in (folder / "runs").iterdir() if one.is_dir() and not one.is_symlink()]
    return run


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each system."""
    runs = {}
    for name in CASES:
        folder = tmp_path_factory.mktemp("straight")
        runs[name] = train(folder, settings_of(name)).folder
    return runs


class _StopsAfter(Notes):
    def __init__(self, steps: int, stop: StopRequest) -> None:
        super().__init__()
        self._left, self._stop = steps, stop

    def advance(self, amount: int = 1, *, note: str = "") -> None:
        self._left -= amount
        if self._left == 0:
            self._stop.signal = signal.SIGTERM


@pytest.mark.parametrize("name", CASES)
def test_a_continued_run_equals_one_in_one_go(name, straight, tmp_path):
    stop = StopRequest()
    with pytest.raises(PreemptedError):
        train(tmp_path, settings_of(name), _StopsAfter(3, stop), stop=stop)
    assert train(tmp_path, settings_of(name)).state == "finished"
    assert comparable_metrics(only_run(tmp_path)) == comparable_metrics(straight[name])
    assert weights_sha256(only_run(tmp_path), STEPS) == weights_sha256(straight[name], STEPS)


def test_two_processes_are_one_with_two_micro_batches(straight, tmp_path):
    """gloo on CPUs; both processes train one system after the other."""
    ports = [str(port) for port in _free_ports(len(CASES))]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(tmp_path), *ports],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "0",
            },
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    for name in CASES:
        run = only_run(tmp_path / name)
        assert comparable_metrics(run) == comparable_metrics(straight[name]), name
        assert weights_sha256(run, STEPS) == weights_sha256(straight[name], STEPS), name


def _free_ports(number: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def main(folder: Path, ports: list[str]) -> None:
    """Train each system as one of two processes; a port each, for the old one may still be closing."""
    for name, port in zip(CASES, ports, strict=True):
        os.environ["MASTER_PORT"] = port
        (folder / name).mkdir(exist_ok=True)
        train(folder / name, settings_of(name))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
