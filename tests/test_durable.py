"""Durable writes: whole or absent, whatever interrupts them; and the one writer's lock."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli import durable
from electra_cli.errors import CorruptError, InputError, StorageError


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.name.startswith(durable.TEMPORARY_PREFIX))


def test_a_file_appears_whole_with_its_folders(tmp_path: Path) -> None:
    durable.write_text(tmp_path / "a" / "b.txt", "ä\r\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "ä\r\n".encode()
    assert not leftovers(tmp_path)


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    durable.write_bytes(path, b"old")
    with pytest.raises(KeyError), durable.writing(path) as file:
        file.write(b"half of the n")
        raise KeyError
    assert path.read_bytes() == b"old" and not leftovers(tmp_path)


def test_json_is_strict_and_keeps_its_order(tmp_path: Path) -> None:
    durable.write_json(tmp_path / "x.json", {"b": 1, "a": "é"})
    assert (tmp_path / "x.json").read_text() == '{\n  "b": 1,\n  "a": "é"\n}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        durable.write_json(tmp_path / "y.json", {"loss": float("nan")})
    assert not (tmp_path / "y.json").exists() and not leftovers(tmp_path)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with durable.writing_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "a").read_text() == "1"
    with pytest.raises(KeyError), durable.writing_folder(tmp_path / "other"):
        raise KeyError
    assert not (tmp_path / "other").exists() and not leftovers(tmp_path)


def test_a_folder_is_replaced_only_on_request(tmp_path: Path) -> None:
    for content in ("1", "2"):
        with durable.writing_folder(tmp_path / "out", replace=True) as folder:
            (folder / content).write_text(content)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["2"]
    with pytest.raises(StorageError), durable.writing_folder(tmp_path / "out") as folder:
        (folder / "3").write_text("3")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["2"] and not leftovers(tmp_path)


# Runs the writes once for each call of one function of the system, killed at that call.
_KILLED = """
import os, signal, sys
from pathlib import Path
from electra_cli import durable
root, name, exchanges = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "True"
module, _, function = name.rpartition(".")
module = durable if module == "durable" else os
real, left = getattr(module, function), 0
if not exchanges:
    durable._exchange = lambda one, other: False
def counted(*args, **kwargs):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)
def write(folder):
    setattr(module, function, counted)
    durable.write_bytes(folder / "file", b"new" * 1000)
    with durable.writing_folder(folder / "folder", replace=True) as inside:
        (inside / "new").write_text("new")
for calls in range(1, 30):
    folder = root / str(calls)
    durable.write_bytes(folder / "file", b"old")
    with durable.writing_folder(folder / "folder") as inside:
        (inside / "old").write_text("old")
    left = calls
    child = os.fork()
    if child == 0:
        write(folder)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
else:
    sys.exit("not one write was left alone")
"""


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("name", ["fsync", "open", "close", "replace", "unlink", "rmdir"])
def test_R05_killed_at_any_call_it_leaves_the_old_or_the_new(
    tmp_path: Path, name: str, exchanges: bool
) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, tmp_path, f"os.{name}", str(exchanges)], check=True)
    left = [path for path in tmp_path.iterdir() if leftovers(path)]
    assert left, "no call was killed in the middle"
    for folder in tmp_path.iterdir():
        if exchanges:
            assert (folder / "folder").is_dir(), "absent in between"
        durable.remove_leftovers(folder)
        assert (folder / "file").read_bytes() in (b"old", b"new" * 1000)
        assert [p.name for p in (folder / "folder").iterdir()] in (["old"], ["new"])
        assert not leftovers(folder)


def test_a_folder_that_was_moved_aside_gets_its_name_back(tmp_path: Path) -> None:
    (tmp_path / ".tmp-aside-1-out").mkdir()
    (tmp_path / ".tmp-aside-1-out" / "old").write_text("old")
    (tmp_path / ".tmp-1-out").mkdir()
    (tmp_path / ".tmp-aside-1-other").mkdir()
    (tmp_path / "other").mkdir()
    durable.remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "out"]
    assert (tmp_path / "out" / "old").read_text() == "old"


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_link_to_a_folder_is_replaced_and_its_target_kept(
    tmp_path: Path, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(durable, "_exchange", lambda one, other: False)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").write_text("kept")
    (tmp_path / "out").symlink_to("target")
    with durable.writing_folder(tmp_path / "out", replace=True) as folder:
        (folder / "new").write_text("new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "target"]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["new"]
    assert (tmp_path / "target" / "kept").read_text() == "kept"


def test_leftovers_of_others_are_removed_but_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".tmp-123-x").write_text("half")
    (tmp_path / ".tmp-123-folder").mkdir()
    (tmp_path / ".tmp-123-folder" / "y").write_text("half")
    (tmp_path / "kept").write_text("whole")
    (tmp_path / ".tmp-link").symlink_to(tmp_path / "kept")
    durable.remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    durable.remove_leftovers(tmp_path / "absent")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES])
def test_R07_the_disks_refusal_names_the_file(tmp_path: Path, code: int) -> None:
    path = tmp_path / "x"
    with pytest.raises(StorageError, match=str(path)) as caught, durable.writing(path):
        raise OSError(code, os.strerror(code))
    assert (caught.value.hint and "bytes are free" in caught.value.hint) == (
        code in (errno.ENOSPC, errno.EDQUOT)
    )
    assert not path.exists() and not leftovers(tmp_path)


def test_R07_a_file_size_limit_leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from pathlib import Path; from electra_cli import durable\n"
        "from electra_cli.errors import StorageError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: durable.write_bytes(Path(sys.argv[1]), b'x' * 5000)\n"
        "except StorageError: sys.exit(6)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "x"], check=False)
    assert done.returncode == 6 and list(tmp_path.iterdir()) == []


def test_other_errors_of_the_system_are_not_called_storage(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Interrupted"), durable.storage_errors(tmp_path):
        raise OSError(errno.EINTR, os.strerror(errno.EINTR))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))), st.data())
def test_a_log_resumes_at_any_line(lines: list[str], data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        log = durable.AppendFile(path)
        lengths = [log.length]
        for line in lines:
            log.write_line(line)
            lengths.append(log.length)
        log.close()
        kept = data.draw(st.integers(0, len(lines)))
        again = durable.AppendFile(path, length=lengths[kept])
        for line in lines[kept:]:
            again.write_line(line)
        again.sync()
        assert again.length == lengths[-1]
        again.close()
        assert path.read_bytes() == "".join(f"{line}\n" for line in lines).encode()


def test_a_log_shorter_than_was_noted_is_no_log_to_continue(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"12345")
    with pytest.raises(CorruptError, match="expected at least 6 bytes, found 5"):
        durable.AppendFile(tmp_path / "log", length=6)
    assert (tmp_path / "log").read_bytes() == b"12345"


def test_the_latest_link_is_replaced_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        durable.link_latest(tmp_path / "latest", name)
        assert os.readlink(tmp_path / "latest") == name  # noqa: PTH115 - the text of the link itself
    assert not leftovers(tmp_path)


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    seen: list[int] = []
    digest = durable.sha256_file(tmp_path / "x", advance=seen.append)
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" and seen == [3]


_HOLDER = """
import sys, time, subprocess
from pathlib import Path
from electra_cli import durable
with durable.locked(Path(sys.argv[1]), "electra test"):
    child = subprocess.Popen(["sleep", "30"])
    print(child.pid, flush=True)
    time.sleep(30)
"""


def test_R09_the_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, tmp_path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    orphan = int(holder.stdout.readline())
    try:
        with (
            pytest.raises(
                InputError, match=rf"electra test is already running .pid {holder.pid} on \S+ since \d{{4}}-"
            ),
            durable.locked(tmp_path, "electra test"),
        ):
            pass
        # It was refused while the holder lived.
        assert holder.poll() is None
        holder.kill()
        holder.wait()
        # The orphan still lives; the lock is free all the same.
        with durable.locked(tmp_path, "electra test"):
            pass
    finally:
        holder.kill()
        holder.stdout.close()
        os.kill(orphan, signal.SIGKILL)


def test_a_free_lock_names_nobody(tmp_path: Path) -> None:
    with durable.locked(tmp_path, "electra test"):
        assert f"pid {os.getpid()}" in (tmp_path / ".lock").read_text()
    assert (tmp_path / ".lock").read_text() == ""


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_private_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        durable.write_json(tmp_path / "a" / "b" / "x.json", {}, private=True)
        durable.AppendFile(tmp_path / "a" / "b" / "log", private=True).close()
        with durable.locked(tmp_path / "a" / "c", "a test", private=True):
            durable.write_text(tmp_path / "a" / "open.txt", "")
    finally:
        os.umask(before)
    folders = [tmp_path / "a" / "b", tmp_path / "a" / "c"]
    files = [path for folder in folders for path in folder.iterdir()]
    assert [mode_of(path) for path in folders] == [0o700, 0o700]
    assert [mode_of(path) for path in files] == [0o600] * 3
    assert mode_of(tmp_path / "a") == 0o777 & ~umask
    assert mode_of(tmp_path / "a" / "open.txt") == 0o666 & ~umask


def test_a_folder_that_stood_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o755)
    (tmp_path / "out").chmod(0o755)
    durable.write_text(tmp_path / "out" / "x", "", private=True)
    assert (mode_of(tmp_path / "out"), mode_of(tmp_path / "out" / "x")) == (0o755, 0o600)
