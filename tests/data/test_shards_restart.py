"""shard-corpus killed anywhere and run again, or run by several processes, gives the same bytes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from electra_cli.data import shard_build, shard_pool
from electra_cli.data.shards import build_shards
from electra_cli.data.vocabulary import load_vocabulary
from electra_cli.errors import InputError, MemoryShortError
from electra_cli.progress import Silent
from electra_cli.project import project_from_settings
from electra_cli.settings import ProjectSettings

sys.path.insert(0, str(Path(__file__).parent))
from test_shards import build, document, reopen, tree, write_corpus, write_vocabulary

CORPUS = {"shard_bytes": 4096, "heldout_fraction": 0.05}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small corpus in many chunks."""
    monkeypatch.setattr(shard_build, "_CHUNK_CHARACTERS", (3_000, 3_000))
    write_vocabulary(tmp_path / "vocab")
    write_corpus(tmp_path, num_documents=40)
    return tmp_path


def undisturbed(root: Path) -> dict[str, str]:
    """The bytes of a run that nothing disturbs; the folder is removed again."""
    build(root, corpus=CORPUS)
    (root / "shards" / ".verified.json").unlink(missing_ok=True)
    bytes_of = tree(root / "shards")
    (root / "shards").rename(root / f"undisturbed-{time.monotonic_ns()}")
    return bytes_of


def killed_at(root: Path, call: int) -> bool:
    """Build in a child that is killed at the given call that changes the disk; whether it was."""
    child = os.fork()
    if child == 0:
        _run_until(root, call)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _run_until(root: Path, call: int, *, force: bool = False) -> NoReturn:
    left = [call]

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **named: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return run

    for name in ("replace", "unlink", "mkdir", "rmdir"):
        setattr(Path, name, counted(getattr(Path, name)))
    for name in ("fsync", "unlink", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    build(root, corpus=CORPUS, force=force)
    os._exit(0)


def shard_inodes(root: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in (root / "shards").glob("*.arrow")}


def test_case_B06_pitfall_K7_R02_killed_at_any_change_it_ends_with_the_same_bytes(
    root: Path,
) -> None:
    expected = undisturbed(root)
    call, kills, reused = 0, 0, 0
    while True:
        was_killed = killed_at(root, call)
        before = shard_inodes(root) if (root / "shards").is_dir() else {}
        shards = build(root, corpus=CORPUS)
        (root / "shards" / ".verified.json").unlink(missing_ok=True)
        assert tree(root / "shards") == expected, call
        # A shard whose record was not yet written is written again; all others are kept.
        kept = sum(shard_inodes(root).get(name) == inode for name, inode in before.items())
        assert kept >= len(before) - 1
        kills, reused = kills + was_killed, reused + kept
        if not was_killed:
            break
        assert shards.train
        for path in sorted((root / "shards").iterdir()):
            path.unlink()
        (root / "shards").rmdir()
        call += 5
    assert kills > 20 and reused > 40


def test_a_chain_of_kills_ends_with_the_same_bytes(root: Path) -> None:
    expected = undisturbed(root)
    kills = 0
    while killed_at(root, 23):
        kills += 1
    build(root, corpus=CORPUS)
    (root / "shards" / ".verified.json").unlink(missing_ok=True)
    assert tree(root / "shards") == expected and kills > 3


def test_a_rebuild_killed_anywhere_can_be_continued(root: Path) -> None:
    expected = undisturbed(root)
    for call in (3, 40, 90, 130, 170):
        build(root, force=True, corpus={"shard_bytes": 100_000})
        child = os.fork()
        if child == 0:
            _run_until(root, call, force=True)
        os.waitpid(child, 0)
        build(root, force=True, corpus=CORPUS)
        (root / "shards" / ".verified.json").unlink(missing_ok=True)
        assert tree(root / "shards") == expected


def test_unfinished_work_of_other_settings_is_thrown_away(root: Path) -> None:
    expected = undisturbed(root)
    assert killed_at(root, 60)
    (root / "corpus" / "b.txt").write_text((root / "corpus" / "b.txt").read_text() + "\n\nmore words here")
    build(root, corpus=CORPUS)
    names = {path.name for path in (root / "shards").iterdir()} - {".verified.json", ".lock"}
    files = {facts["file"] for facts in reopen(root).manifest["shards"]}
    assert names == {*files, "manifest.json", "DATA_CARD.md"}
    assert tree(root / "shards") != expected


@pytest.mark.parametrize("processes", [2, 3])
def test_G1_any_number_of_processes_gives_the_same_bytes(
    root: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    expected = undisturbed(root)
    monkeypatch.setattr(shard_pool, "_SMALL_BYTES", 0)
    monkeypatch.setattr(shard_build, "_CHUNK_CHARACTERS", (2_000, 2_000))
    build(root, corpus={**CORPUS, "processes": processes})
    (root / "shards" / ".verified.json").unlink(missing_ok=True)
    assert tree(root / "shards") == expected


def test_many_buckets_give_the_same_bytes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = undisturbed(root)
    monkeypatch.setattr("electra_cli.data.shard_reduce._PARTS_PER_BUCKET", 2)
    build(root, corpus=CORPUS)
    (root / "shards" / ".verified.json").unlink(missing_ok=True)
    assert tree(root / "shards") == expected


_DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from electra_cli.data import shard_build
from electra_cli.errors import MemoryShortError
from test_shards import build

if __name__ == "__main__":
    shard_build._CHUNK_CHARACTERS = (30_000, 30_000)
    try:
        build(Path(sys.argv[1]), corpus={"processes": 2, "shard_bytes": 500_000})
    except MemoryShortError as error:
        sys.exit(f"{error.exit_code:d} {error.message}")
"""


def start(root: Path) -> "subprocess.Popen[str]":
    driver = root / "driver.py"
    driver.write_text(_DRIVER)
    return subprocess.Popen(
        [sys.executable, driver, root, Path(__file__).parent], stderr=subprocess.PIPE, text=True
    )


def workers_of(pid: int) -> list[int]:
    """The spawned workers of a process, not multiprocessing's own tracker."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [int(c) for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    started = time.monotonic()
    while not what():
        assert time.monotonic() - started < seconds, "nothing happened"
        time.sleep(0.01)


@pytest.fixture
def big_root(tmp_path: Path) -> Path:
    """Enough text for processes of their own."""
    write_vocabulary(tmp_path / "vocab")
    (tmp_path / "corpus").mkdir()
    for name in ("a", "b"):
        texts = [document(ord(name) * 10_000 + n, 4_000) for n in range(40)]
        (tmp_path / "corpus" / f"{name}.txt").write_text("\n\n".join(texts))
    return tmp_path


def chunks(root: Path) -> list[Path]:
    return list((root / "shards").glob(".work-*/chunk-*.arrow"))


def test_case_B09_R11_a_dead_worker_or_parent_leaves_no_manifest_and_work_that_continues(
    big_root: Path,
) -> None:
    with start(big_root) as parent:
        wait_for(lambda: len(chunks(big_root)) >= 2)
        os.kill(workers_of(parent.pid)[0], signal.SIGKILL)
        _, said = parent.communicate(timeout=60)
    assert parent.returncode == 1 and said.startswith("8 a worker process of shard-corpus died")
    assert not (big_root / "shards" / "manifest.json").exists()
    done = {path.name: path.stat().st_ino for path in chunks(big_root)}
    assert done

    with start(big_root) as parent:
        wait_for(lambda: len(chunks(big_root)) > len(done) + 1)
        orphans = workers_of(parent.pid)
        parent.kill()
        parent.communicate(timeout=60)
    assert orphans
    wait_for(lambda: not any(Path(f"/proc/{orphan}").exists() for orphan in orphans), 30)
    now = {path.name: path.stat().st_ino for path in chunks(big_root)}
    assert {name: now[name] for name in done} == done

    with start(big_root) as parent:
        parent.communicate(timeout=120)
    assert parent.returncode == 0
    (big_root / "shards" / ".verified.json").unlink(missing_ok=True)
    finished = tree(big_root / "shards")
    (big_root / "shards").rename(big_root / "finished")
    build(big_root, corpus={"processes": 1, "shard_bytes": 500_000})
    (big_root / "shards" / ".verified.json").unlink(missing_ok=True)
    assert tree(big_root / "shards") == finished


def test_a_dead_pool_is_called_a_want_of_memory() -> None:
    from electra_cli.data.shard_pool import Pool

    with Pool(2) as pool, pytest.raises(MemoryShortError, match="died"):
        list(pool.run(_die, [1, 2, 3]))


def _die(job: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return job


def test_an_error_in_a_worker_reaches_the_caller_whole() -> None:
    from electra_cli.data.shard_pool import Pool

    with Pool(2) as pool, pytest.raises(InputError, match="job 2") as caught:
        list(pool.run(_refuse, [1, 2, 3]))
    assert caught.value.hint == "try 1"


def test_R06_workers_leave_ctrl_c_to_the_parent_from_the_start() -> None:
    from electra_cli.data.shard_pool import Pool

    with Pool(2) as pool:
        masks = list(pool.run(_blocked_signals, [1, 2, 3]))
    assert all(signal.SIGINT in mask for mask in masks)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def _blocked_signals(job: int) -> set[int]:
    return {int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, set())}


def _refuse(job: int) -> int:
    if job == 2:
        raise InputError(f"job {job} is refused", hint="try 1")
    return job


def test_a_file_that_changes_while_it_is_read_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shard_build.map_chunk

    def meddling(job: object) -> object:
        (root / "corpus" / "a.txt").write_text("something else")
        return real(job)  # type: ignore[arg-type]

    monkeypatch.setattr(shard_build, "map_chunk", meddling)
    settings = ProjectSettings.model_validate({"rows": {"sequence_length": 32}})
    with pytest.raises(InputError, match=r"a\.txt changed while it was being read"):
        build_shards(project_from_settings(settings, root), load_vocabulary(root / "vocab"), Silent())
    assert not (root / "shards").exists()
