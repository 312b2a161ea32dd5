"""Compile a C++ file of a kernel with the user's compiler, once a machine, into a folder of its own.

The name of a build is a hash of the source, its header, the command, the compiler and torch, so a change of
any of them is another build. Several processes may ask at once: one compiles, the others wait for its lock,
which the system releases whatever happens to its holder. A library appears whole or not at all.
"""

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

COMPILERS = ("c++", "g++", "clang++")

FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp")

# What torch has seen this processor do. A shared home would carry -march=native to another machine.
CAPABILITY_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"),
    "AVX2": ("-mavx2", "-mfma"),
}

HEADER = Path(__file__).with_name("native_numbers.h")
"""What every source may include."""

NUMBERS = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
"""What a compiled function takes, and the end of its name for it."""

POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float

MOST_SECONDS = 120


class BuildError(Exception):
    """There is no library, and its text says why."""


def library(source: Path) -> Path:
    """The compiled library of a file, built if this machine has none; BuildError says why there is none."""
    compiler = find_compiler()
    capability = torch.backends.cpu.get_cpu_capability()
    flags = (*FLAGS, *CAPABILITY_FLAGS.get(capability, ()))
    folder = cache_folder()
    path = folder / f"{source.stem}-{_fingerprint(source, compiler, flags)}.so"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(folder / "lock"):
            if not path.exists():
                _compile(source, compiler, flags, path)
    except OSError as error:
        raise BuildError(f"{folder} cannot hold the build: {error.strerror}") from error
    return path


def declared(source: Path, kinds: Mapping[str, tuple[type, ...]]) -> ctypes.CDLL:
    """The library of a file with the argument types of its functions declared; none returns a value.

    `kinds`: of each function by its name, `electra_NAME_float32` and `electra_NAME_bfloat16` in the library.
    BuildError says why there is none.
    """
    path = library(source)
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path} cannot be loaded: {error}") from error
    for name, of_arguments in kinds.items():
        for dtype in NUMBERS:
            function = function_for(loaded, name, dtype)
            function.argtypes, function.restype = of_arguments, None
    return loaded


def function_for(loaded: ctypes.CDLL, name: str, dtype: torch.dtype) -> Any:
    """The function of a library for numbers of this type."""
    return getattr(loaded, f"electra_{name}_{NUMBERS[dtype]}")


def pointers(*tensors: Tensor | None) -> list[int | None]:
    """Addresses; the compiled code takes these tensors to be without gaps."""
    assert all(tensor is None or tensor.is_contiguous() for tensor in tensors)
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def find_compiler() -> Path:
    """$CXX, or the first C++ compiler on the path."""
    wanted = os.environ.get("CXX", "")
    for name in (wanted,) if wanted else COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return Path(found).resolve()
    raise BuildError(f"no C++ compiler ({wanted or ', '.join(COMPILERS)}) is installed")


def cache_folder() -> Path:
    """Where builds are kept: $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(named) if named else Path.home() / ".cache"
    except RuntimeError as error:
        raise BuildError("there is no home folder to keep a build in") from error
    return base / "electra-cli" / "kernels"


def _fingerprint(source: Path, compiler: Path, flags: tuple[str, ...]) -> str:
    seen = compiler.stat()
    texts = (source.read_text(encoding="utf-8"), HEADER.read_text(encoding="utf-8"))
    told = [*texts, *flags, str(compiler), seen.st_size, seen.st_mtime_ns]
    told.append(torch.__version__)
    return hashlib.sha256("\0".join(map(str, told)).encode()).hexdigest()[:16]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock on a file while the block runs."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _compile(source: Path, compiler: Path, flags: tuple[str, ...], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".tmp-") as name:
        built = Path(name) / path.name
        command = [str(compiler), *flags, f"-I{HEADER.parent}", str(source), "-o", str(built)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"{compiler} did not end within {MOST_SECONDS} s") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
            raise BuildError(f"{compiler} failed: {said[0]}")
        descriptor = os.open(built, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        built.replace(path)
