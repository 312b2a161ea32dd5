"""Checkpoints: what comes back, what is noticed, what is kept."""

import errno
import json
import random
import shutil

import pytest
import torch
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from electra_cli import durable
from electra_cli.errors import CorruptError, InputError, StorageError
from electra_cli.settings import ProjectSettings
from electra_cli.training import checkpoint
from electra_cli.training.checkpoint import HealthRecord, SkippedRecord, State


def make_state(step: int, fingerprint: str = "f" * 64) -> State:
    return State(
        fingerprint=fingerprint,
        step=step,
        samples=8 * step,
        tokens=100 * step,
        metrics_bytes=0,
        is_heldout_due=False,
        interval_steps=0,
        skipped=SkippedRecord(total=1, in_a_row=0, recent=[3]),
        health=HealthRecord(blind_since=2, warned=["recall"]),
        vocabulary_sha256="a" * 64,
        settings=ProjectSettings().model_dump(mode="json"),
    )


TENSORS = {
    "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "scalar": torch.tensor(7.0, dtype=torch.float64),
    "empty": torch.zeros(0, 3),
    "numbers": torch.tensor([2**40, -1]),
}


def write(checkpoints, step, *, keep=5, fingerprint="f" * 64):
    return checkpoint.save(
        checkpoints, make_state(step, fingerprint), TENSORS, {"m": torch.ones(3) * step}, keep=keep
    )


def test_everything_comes_back(tmp_path):
    folder = write(tmp_path, 48_000)
    assert folder.name == "step-00048000"
    assert {entry.name for entry in folder.iterdir()} == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
        "MANIFEST.json",
    }
    saved = checkpoint.load(folder)
    assert saved.state == make_state(48_000)
    assert saved.model.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert saved.model[name].dtype == value.dtype
        assert torch.equal(saved.model[name], value)
    weights = checkpoint.load_weights(folder)
    assert weights.step == 48_000 and weights.settings == ProjectSettings()


def test_latest_is_a_hint_that_nothing_reads(tmp_path):
    write(tmp_path, 5)
    write(tmp_path, 10)
    assert json.loads((tmp_path / "LATEST.json").read_bytes()) == {"step": 10, "folder": "step-00000010"}
    for content in (b"", b"{", b'{"step": 99}'):
        (tmp_path / "LATEST.json").write_bytes(content)
        assert checkpoint.newest_valid(tmp_path).folder == tmp_path / "step-00000010"


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"]
)
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "missing"])
def test_damage_is_noticed_and_the_previous_one_is_used(tmp_path, name, damage):
    write(tmp_path, 5)
    path = write(tmp_path, 10) / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    found = checkpoint.newest_valid(tmp_path)
    if name == "MANIFEST.json" and damage == "flip" and found.folder == tmp_path / "step-00000010":
        # The flipped bit may lie in white space, which means the same.
        checkpoint.verify(found.folder)
        return
    assert found.folder == tmp_path / "step-00000005"
    wanted = "step-00000010" if damage == "flip" else name
    assert wanted in found.damaged[0].message


def test_every_flipped_bit_of_the_tensors_is_noticed(tmp_path):
    folder = write(tmp_path, 5)
    rng = random.Random(0)
    for _ in range(100):
        path = folder / rng.choice(["model.safetensors", "optimizer.safetensors", "state.json"])
        good = path.read_bytes()
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        with pytest.raises(CorruptError, match=path.name):
            checkpoint.verify(folder)
        path.write_bytes(good)
    checkpoint.verify(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"format": 1, "step": 5, "files": {"../../x": {"sha256": "", "bytes": 0}}}',
        b'{"format": 1, "step": NaN, "files": {}}',
        b'{"format": "1", "step": 5, "files": {}}',
    ],
)
def test_a_strange_manifest_is_damage(tmp_path, content):
    folder = write(tmp_path, 5)
    (folder / "MANIFEST.json").write_bytes(content)
    with pytest.raises(CorruptError):
        checkpoint.verify(folder)


def test_a_checkpoint_of_another_run_is_passed_over(tmp_path):
    write(tmp_path, 5)
    write(tmp_path, 900, fingerprint="e" * 64)
    found = checkpoint.newest_valid(tmp_path, fingerprint="f" * 64)
    assert found.folder == tmp_path / "step-00000005"
    assert "another run" in found.damaged[0].message


def test_numbers_decide_and_not_names_or_times(tmp_path):
    for step in (900, 1000, 100_000_000):
        write(tmp_path, step, keep=5)
    assert [step for step, _ in checkpoint.numbered(tmp_path)] == [100_000_000, 1000, 900]


def test_foreign_entries_are_left_alone(tmp_path):
    (tmp_path / "step-best").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    for step in range(1, 6):
        write(tmp_path, step, keep=2)
    assert {entry.name for entry in tmp_path.iterdir()} == {
        "step-best",
        "notes.txt",
        "LATEST.json",
        "step-00000004",
        "step-00000005",
    }


def test_a_damaged_checkpoint_does_not_count_as_kept(tmp_path):
    write(tmp_path, 1)
    (write(tmp_path, 2) / "model.safetensors").write_bytes(b"cut")
    write(tmp_path, 3, keep=2)
    names = [folder.name for _, folder in checkpoint.numbered(tmp_path)]
    assert names == ["step-00000003", "step-00000002", "step-00000001"]


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    write(tmp_path, 5)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "_sync_tree", full)
    with pytest.raises(StorageError, match="No space left"):
        write(tmp_path, 10)
    monkeypatch.undo()
    assert checkpoint.newest_valid(tmp_path).folder == tmp_path / "step-00000005"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".tmp")] == []


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run"):
        checkpoint.load_weights(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(InputError, match="no checkpoint yet"):
        checkpoint.load_weights(tmp_path)


class Retention(RuleBasedStateMachine):
    """Saves, crashes inside a save, damage, foreign files: a valid checkpoint is never lost to pruning."""

    @initialize(keep=st.integers(2, 4))
    def start(self, keep):
        import tempfile
        from pathlib import Path

        self.folder = Path(tempfile.mkdtemp())
        self.keep = keep
        self.step = 0
        self.valid: set[int] = set()

    @rule(by=st.integers(1, 500))
    def save(self, by):
        self.step += by
        write(self.folder, self.step, keep=self.keep)
        self.valid.add(self.step)
        newest = sorted(self.valid)[-self.keep :]
        kept = {step for step, _ in checkpoint.numbered(self.folder)}
        assert set(newest) <= kept
        self.valid &= kept

    @rule(cut=st.integers(0, 3))
    def crash_inside_a_save(self, cut):
        temporary = self.folder / f".tmp-1-step-{self.step + 1:08d}"
        temporary.mkdir(exist_ok=True)
        for name in ("model.safetensors", "optimizer.safetensors", "state.json")[:cut]:
            (temporary / name).write_bytes(b"half")

    @precondition(lambda self: len(self.valid) > 1)
    @rule(data=st.data())
    def lose_bytes(self, data):
        step = data.draw(st.sampled_from(sorted(self.valid)))
        (self.folder / checkpoint.folder_name(step) / "model.safetensors").write_bytes(b"cut")
        self.valid.discard(step)

    @rule(name=st.sampled_from(["step-x", "other", "step-00000001.bak"]))
    def put_foreign(self, name):
        (self.folder / name).mkdir(exist_ok=True)

    @rule()
    def resume(self):
        durable.remove_leftovers(self.folder)
        found = checkpoint.newest_valid(self.folder)
        assert (found.folder is None) == (not self.valid)
        if self.valid:
            assert found.folder == self.folder / checkpoint.folder_name(max(self.valid))

    @invariant()
    def something_valid_is_left(self):
        if getattr(self, "valid", None):
            assert checkpoint.newest_valid(self.folder).folder is not None

    def teardown(self):
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


TestRetention = Retention.TestCase
TestRetention.settings = hypothesis_settings(
    max_examples=20, stateful_step_count=12, deadline=None, derandomize=True
)
