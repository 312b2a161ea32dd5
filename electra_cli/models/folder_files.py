"""Reading the two files of a model folder. Nothing is ever unpickled."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from electra_cli.errors import CorruptError, InputError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack")


def read_json(path: Path) -> dict[str, object]:
    """One JSON object; `InputError` where there is no such file, `CorruptError` where it is not one."""
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", path=path) from error
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{path} is not valid JSON: {error}", path=path) from error
    if not isinstance(content, dict):
        raise CorruptError(f"{path} holds a JSON {type(content).__name__}, not an object", path=path)
    return content


@dataclass(frozen=True)
class StoredTensors:
    """The tensors of a folder by name, read when they are asked for."""

    folder: Path
    files: Mapping[str, Path]
    shapes: Mapping[str, tuple[int, ...]]

    def read(self, name: str) -> Tensor:
        """One tensor in float32."""
        path = self.files[name]
        try:
            with safe_open(path, framework="pt") as file:
                value: Tensor = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CorruptError(f"{path} is damaged: {error}", path=path) from error
        if not value.is_floating_point():
            raise InputError(f"{path}: {name} is {value.dtype}, not a floating-point tensor", path=path)
        return value.to(torch.float32)


def open_tensors(folder: Path) -> StoredTensors:
    """The safetensors of a model folder, one file or several with their index."""
    if not folder.is_dir():
        raise _not_a_folder(folder)
    if (folder / WEIGHTS).is_file():
        shapes = _shapes(folder / WEIGHTS)
        return StoredTensors(folder, dict.fromkeys(shapes, folder / WEIGHTS), shapes)
    if (folder / INDEX).is_file():
        return _open_sharded(folder)
    raise _no_weights(folder)


def _open_sharded(folder: Path) -> StoredTensors:
    index = folder / INDEX
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptError(f"{index} has no weight_map", path=index)
    shapes: dict[str, tuple[int, ...]] = {}
    files: dict[str, Path] = {}
    for file_name in sorted(set(map(str, weight_map.values()))):
        # The index comes with the model: it must not lead out of the folder.
        if Path(file_name).name != file_name or not file_name.endswith(".safetensors"):
            raise CorruptError(f"{index} names {file_name!r}, which is no file of this folder", path=index)
        path = folder / file_name
        if not path.is_file():
            raise InputError(f"{index} names {file_name}, which is missing", path=path)
        found = _shapes(path)
        shapes.update(found)
        files.update(dict.fromkeys(found, path))
    lost = sorted(set(weight_map) - set(shapes))
    if lost:
        raise InputError(f"{index} lists {lost[0]}, which is in none of its files", path=index)
    return StoredTensors(folder, files, shapes)


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CorruptError(
            f"{path} is damaged: {error}", path=path, hint="copy or download the file again"
        ) from error


def _not_a_folder(path: Path) -> InputError:
    if path.suffix in PICKLE_SUFFIXES:
        return _pickle_error(path, path.name)
    if path.exists():
        return InputError(f"{path} is a file; a model folder is needed", path=path, hint=f"try {path.parent}")
    return InputError(
        f"{path} is no folder",
        path=path,
        hint=f"a model of the Hub must be on disk first: hf download {path} --local-dir FOLDER",
    )


def _no_weights(folder: Path) -> InputError:
    pickled = sorted(entry.name for entry in folder.iterdir() if entry.suffix in PICKLE_SUFFIXES)
    if pickled:
        return _pickle_error(folder, ", ".join(pickled[:3]))
    return InputError(f"{folder} holds no {WEIGHTS}", path=folder)


def _pickle_error(path: Path, names: str) -> InputError:
    return InputError(
        f"{path}: the weights are in {names}; only safetensors are read, "
        "for such files can run code when they are opened",
        path=path,
        hint="most models of the Hub offer model.safetensors as well; else convert it where you trust it",
    )
