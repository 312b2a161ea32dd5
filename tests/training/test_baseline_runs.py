"""The baselines and Fast-ELECTRA in whole runs: broken off and continued, and in two processes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import toy_run
from test_drawing import write_auxiliary
from toy_run import Notes, comparable_metrics, make_settings

SYSTEMS = {
    "masked_lm": {"use": "masked_lm"},
    "replace_mlm": {"use": "replace_mlm"},
    "all_tokens_mlm": {"use": "replace_mlm", "positions": "all"},
    "electra_15": {"use": "electra", "discriminator_positions": "chosen"},
    "fast_electra": {"use": "fast_electra"},
}
RUN = {"steps": 6, "log_every": 1, "save_every": 3, "heldout_every": 3, "heldout_rows": 8}


@pytest.fixture(scope="module")
def auxiliary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_auxiliary(tmp_path_factory.mktemp("model") / "generator")


def changes_of(system: str, auxiliary: Path) -> dict[str, object]:
    own = dict(SYSTEMS[system])
    if own["use"] == "fast_electra":
        own["auxiliary"] = str(auxiliary)
    changes = {f"objective__{key}": value for key, value in own.items()}
    return changes | {f"pretrain__{key}": value for key, value in RUN.items()}


class Broken(Exception):
    """What no run expects."""


class BreaksOff(Notes):
    """Fails in the fifth step, between two checkpoints."""

    taken = 0

    def advance(self, amount: int = 1, *, note: str = "") -> None:
        self.taken += amount
        if self.taken == 5:
            raise Broken


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_broken_off_run_continues_to_the_bit(system, auxiliary, tmp_path):
    settings = make_settings(**changes_of(system, auxiliary))
    folders = [tmp_path / name for name in ("whole", "broken")]
    for folder in folders:
        folder.mkdir()
    whole = toy_run.train(folders[0], settings).folder
    with pytest.raises(Broken):
        toy_run.train(folders[1], settings, BreaksOff())
    notes = Notes()
    again = toy_run.train(folders[1], settings, notes).folder
    assert "from step 3" in notes.text
    assert comparable_metrics(again) == comparable_metrics(whole)
    assert toy_run.weights_sha256(again, 6) == toy_run.weights_sha256(whole, 6)


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_two_processes_are_one_with_two_micro_batches(system, auxiliary, tmp_path):
    changes = changes_of(system, auxiliary)
    together, alone = tmp_path / "together", tmp_path / "alone"
    for folder in (together, alone):
        folder.mkdir()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    arguments = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in changes.items()]
    started = [
        subprocess.Popen(
            [sys.executable, toy_run.__file__, str(together), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[2],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    (run,) = [one for one in (together / "runs").iterdir() if one.is_dir() and not one.is_symlink()]
    single = toy_run.train(alone, make_settings(**changes)).folder
    assert comparable_metrics(run) == comparable_metrics(single)
    assert toy_run.weights_sha256(run, 6) == toy_run.weights_sha256(single, 6)
