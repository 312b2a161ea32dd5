"""Real processes: killed, interrupted, locked out; and what they leave."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_run
from toy_run import comparable_metrics, make_settings, train, weights_sha256

from electra_cli.errors import InputError
from electra_cli.training import checkpoint

KILLED = {"pretrain.save_every": "5", "pretrain.log_every": "2", "pretrain.heldout_rows": "8"}


def start(folder: Path, *arguments: str, rank: int | None = None, port: int = 0) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if rank is not None:
        environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(
        [sys.executable, toy_run.__file__, str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[2],
        env=environment,
    )


def read_until(process: "subprocess.Popen[str]", text: str) -> str:
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    pytest.fail(f"the process ended without {text!r}:\n{seen}")


def only_run(folder: Path) -> Path:
    (run,) = [one for one in (folder / "runs").iterdir() if one.is_dir() and not one.is_symlink()]
    return run


@pytest.mark.parametrize(("precision", "micro_batch"), [("fp32", 4), ("bf16", 8)])
def test_pitfall_K15_killed_after_step_20_and_run_again_equals_40_steps_in_one_go(
    tmp_path, precision, micro_batch
):
    """15 batches are an epoch: the edges at 15 and 30 lie before and after the kill. Dropout is on."""
    whole = tmp_path / "whole"
    whole.mkdir()
    settings = make_settings(
        pretrain__log_every=2,
        pretrain__heldout_rows=8,
        pretrain__precision=precision,
        pretrain__micro_batch_size=micro_batch,
    )
    straight = train(whole, settings).folder
    arguments = [*(f"{key}={value}" for key, value in KILLED.items()), f'pretrain.precision="{precision}"']
    arguments.append(f"pretrain.micro_batch_size={micro_batch}")
    killed = tmp_path / "killed"
    killed.mkdir()
    with start(killed, *arguments, "--slow=0.02") as process:
        read_until(process, "train 22")
        process.send_signal(signal.SIGKILL)
    with start(killed, *arguments) as again:
        output, _ = again.communicate(timeout=300)
    assert again.returncode == 0, output
    line = next(line for line in output.splitlines() if "from step" in line)
    assert 15 <= int(line.split()[-1]) < 40
    run = only_run(killed)
    assert comparable_metrics(run) == comparable_metrics(straight)
    assert weights_sha256(run, 40) == weights_sha256(straight, 40)


def test_sigterm_saves_and_exits_75_and_the_lock_holds_until_then(tmp_path):
    with start(tmp_path, "--slow=0.1", "pretrain.heldout_every=1000") as process:
        _terminate(tmp_path, process)
    run = only_run(tmp_path)
    found = checkpoint.newest_valid(run / "checkpoints")
    assert found.folder is not None and checkpoint.read_state(found.folder).step >= 4


def _terminate(tmp_path: Path, process: "subprocess.Popen[str]") -> None:
    read_until(process, "train 4")
    with pytest.raises(InputError, match=f"pid {process.pid}"):
        train(tmp_path, make_settings(pretrain__heldout_every=1000))
    # It was refused while the other ran, and did not wait for its end.
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert "SIGTERM: saved step-000000" in output


def test_a_second_ctrl_c_ends_at_once_and_harms_nothing(tmp_path):
    # A step takes 30 seconds: the first Ctrl-C waits for its end, the second does not.
    with start(tmp_path, "--slow=30", "pretrain.log_every=1", "pretrain.save_every=1") as process:
        read_until(process, "saved step-00000001")
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    run = only_run(tmp_path)
    # The end of the second step would have saved it.
    assert checkpoint.newest_valid(run / "checkpoints").folder == run / "checkpoints" / "step-00000001"


def test_pitfall_K20_two_processes_are_one_with_two_micro_batches(tmp_path):
    """gloo on CPUs, 1 × 2 micro-batches against 2 × 1: weights, optimizer and metrics equal to the bit."""
    changes = {"steps": 6, "log_every": 2, "save_every": 4, "heldout_every": 3, "heldout_rows": 8}
    together, alone = tmp_path / "together", tmp_path / "alone"
    for folder in (together, alone):
        folder.mkdir()
    arguments = [f"pretrain.{key}={value}" for key, value in changes.items()]
    port = _free_port()
    with (
        start(together, *arguments, rank=0, port=port) as first,
        start(together, *arguments, rank=1, port=port) as second,
    ):
        output, _ = first.communicate(timeout=300)
        other, _ = second.communicate(timeout=300)
    assert (first.returncode, second.returncode) == (0, 0), output + other
    single = train(
        alone, make_settings(**{f"pretrain__{key}": value for key, value in changes.items()})
    ).folder
    assert comparable_metrics(only_run(together)) == comparable_metrics(single)
    assert weights_sha256(only_run(together), 6) == weights_sha256(single, 6)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_killed_at_every_durable_call_of_a_save(tmp_path):
    """SIGKILL at the k-th fsync, rename or removal, in a forked child; the newest valid step is used then."""
    from test_checkpoint import write

    for step in (1, 2, 3):
        write(tmp_path, step, keep=3)
    reached = 0
    for k in range(1, 200):
        child = os.fork()
        if child == 0:
            try:
                _kill_at(k)
                write(tmp_path, 4, keep=2)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        found = checkpoint.newest_valid(tmp_path)
        assert found.folder is not None and found.damaged == ()
        assert checkpoint.read_state(found.folder).step in (3, 4)
        checkpoint.load(found.folder)
        if os.WIFEXITED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        reached = k
        for step in (1, 2, 3):
            if not (tmp_path / checkpoint.folder_name(step)).is_dir():
                write(tmp_path, step, keep=4)
    assert reached > 20
    checkpoint.durable.remove_leftovers(tmp_path)
    names = [entry.name for entry in tmp_path.iterdir()]
    assert not [name for name in names if name.startswith(".tmp")]
    assert len([name for name in names if name.startswith("step-")]) == 2


def _kill_at(k: int) -> None:
    """Make the k-th call that changes the disk for good the last one of this process."""
    calls = 0

    def counted(function):
        def wrapper(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == k:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return wrapper

    os.fsync = counted(os.fsync)
    os.rmdir = counted(os.rmdir)
    os.unlink = counted(os.unlink)
    os.replace = counted(os.replace)
    Path.replace = counted(Path.replace)
