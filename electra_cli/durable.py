"""Every write that must survive a crash: written beside, synced, then renamed to its final name.

Nothing else in the package opens a file for writing (a test reads the sources and keeps that).
A reader never meets a half-written file or folder under a final name.

What is written `private` is for its owner alone: files get the mode 0600, a folder made for them 0700,
whatever the umask says. A folder that stood there keeps its mode.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from electra_cli.errors import CorruptError, InputError, StorageError

TEMPORARY_PREFIX = ".tmp-"
_ASIDE = re.compile(re.escape(TEMPORARY_PREFIX) + r"aside-\d+-(.+)", re.DOTALL)

_STORAGE_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.EEXIST,
    errno.ENOTEMPTY,
}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns the operating system's refusal to write at `path` into a `StorageError` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE_ERRNOS:
            raise
        hint = "check the permissions and the kind of what lies there"
        if error.errno == errno.EFBIG:
            hint = "a limit of the shell (ulimit -f) or the file system allows no file of that size"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = f"{_free_bytes(path):,} bytes are free there; make room, then run the same command again"
        raise StorageError(f"cannot write {path}: {error.strerror}", path=path, hint=hint) from error


def _free_bytes(path: Path) -> int:
    for folder in (path, *path.parents):
        if folder.is_dir():
            return shutil.disk_usage(folder).free
    return 0


def free_bytes(path: Path) -> int:
    """Bytes free on the file system that holds, or would hold, `path`."""
    return _free_bytes(path.absolute())


def sync_folder(folder: Path) -> None:
    """Make the names inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path, mode: str, *, private: bool) -> IO[Any]:
    """Open for writing, in a folder that is made where there is none."""
    path.parent.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
    permissions = 0o600 if private else 0o666
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, permissions))


@contextmanager
def writing(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A binary file that appears under `path`, whole and synced, when the block ends without an error."""
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
    with storage_errors(path):
        opened = _open(temporary, "wb", private=private)
        try:
            with opened as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a whole file."""
    with writing(path, private=private) as file:
        file.write(content)


def write_text(path: Path, content: str, *, private: bool = False) -> None:
    """Write a whole UTF-8 file; line ends are kept as they are."""
    write_bytes(path, content.encode("utf-8"), private=private)


def write_json(path: Path, content: Any, *, private: bool = False) -> None:
    """Write one JSON document, strict (no NaN or infinity), keys in the given order."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(path, text, private=private)


@contextmanager
def writing_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder that appears under its final name, every file synced, when the block ends without an error.

    The block writes into the temporary folder that it is given. With `replace` it takes the place of an older
    folder of that name, which is removed afterwards; without it, an existing one is an error.
    """
    temporary = folder.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{folder.name}")
    with storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary)
        temporary.mkdir()
        try:
            yield temporary
            _sync_tree(temporary)
            if replace and folder.is_dir():
                _replace_folder(temporary, folder)
            else:
                temporary.replace(folder)
            sync_folder(folder.parent)
        finally:
            _remove(temporary)


def _replace_folder(new: Path, folder: Path) -> None:
    """Put `new` in the place of `folder`, which lies under the name of `new` afterwards.

    Where names cannot be exchanged in one step, a kill may leave the old folder aside under a name that
    `remove_leftovers` knows.
    """
    if _exchange(new, folder):
        return
    aside = folder.with_name(f"{TEMPORARY_PREFIX}aside-{os.getpid()}-{folder.name}")
    folder.replace(aside)
    new.replace(folder)
    aside.replace(new)


_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; `False` where the system or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _remove(path: Path) -> None:
    """Remove a file, a link or a whole folder of that name, where there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync_tree(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(Path(root) / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(root))


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders that a killed process left directly inside `folder`.

    A folder that was moved aside and whose successor never came gets its name back.
    """
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        moved = _ASIDE.fullmatch(entry.name)
        if moved is not None and not (folder / moved[1]).exists():
            entry.replace(folder / moved[1])
        elif entry.name.startswith(TEMPORARY_PREFIX):
            _remove(entry)


class AppendFile:
    """A log of lines that knows its length in bytes; a checkpoint notes it and a resume cuts to it."""

    def __init__(self, path: Path, *, length: int | None = None, private: bool = False) -> None:
        """Open for appending; `length` cuts the file to that many bytes first.

        `CorruptError` where the file holds fewer: bytes that were noted as written are gone.
        """
        self.path = path
        with storage_errors(path):
            self._file = _open(path, "ab", private=private)
            if length is not None:
                if self._file.tell() < length:
                    actual = self._file.tell()
                    self._file.close()
                    raise CorruptError(
                        f"{path} is cut short: expected at least {length:,} bytes, found {actual:,}",
                        path=path,
                    )
                self._file.truncate(length)
                self._file.seek(0, os.SEEK_END)

    @property
    def length(self) -> int:
        """Bytes written so far, those of earlier processes included."""
        return self._file.tell()

    def write_line(self, line: str) -> None:
        """Append one line; it reaches the operating system at once, the disk at `sync`."""
        with storage_errors(self.path):
            self._file.write(line.encode("utf-8") + b"\n")
            self._file.flush()

    def sync(self) -> None:
        """Force what was written to the disk."""
        with storage_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def link_latest(link: Path, target: str) -> None:
    """Point the symbolic link `link` at `target` in one step; it never is absent in between."""
    temporary = link.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{link.name}")
    with storage_errors(link):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target, target_is_directory=True)
        temporary.replace(link)
        sync_folder(link.parent)


def sha256_file(path: Path, *, advance: Callable[[int], None] | None = None) -> str:
    """Hexadecimal SHA-256 of a file; `advance` hears the number of bytes of each block read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
            if advance is not None:
                advance(len(block))
    return digest.hexdigest()


@contextmanager
def locked(folder: Path, what: str, *, private: bool = False) -> Iterator[None]:
    """Hold the one writer's lock of `folder`; a second process is refused at once, naming the first.

    POSIX record locks end with the process that took them, whatever children it leaves behind.
    """
    path = folder / ".lock"
    with storage_errors(path):
        file = _open(path, "a+", private=private)
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise InputError(
                f"{folder} is in use: {what} is already running ({holder})",
                path=folder,
                hint="wait until it ends, or stop it",
            ) from error
        file.seek(0)
        file.truncate()
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        file.write(f"pid {os.getpid()} on {socket.gethostname()} since {now}")
        file.flush()
        try:
            yield
        finally:
            # The file stays, empty: removing it would let two processes hold locks on two files.
            file.truncate(0)
