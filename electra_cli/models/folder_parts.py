"""A body or a head out of the tensors of a file, complete or refused."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from electra_cli.errors import InputError
from electra_cli.models.backbones import build_encoder
from electra_cli.models.folder_files import StoredTensors
from electra_cli.models.folder_format import Format, Named
from electra_cli.models.folder_formats import format_of
from electra_cli.models.sizes import EncoderConfig

MAX_LAYERS = 10_000
"""More than any model has; keeps a wrong config.json from asking for endless names."""


@dataclass(frozen=True)
class Body:
    """The parameters of an encoder under our names, and what else the file held."""

    tensors: Mapping[str, Tensor]
    left_out: tuple[str, ...]
    """Tensors of heads and poolers that an encoder does not have."""


def read_body(stored: StoredTensors, config: EncoderConfig) -> Body:
    """Every parameter of an encoder; one that is missing, of another shape, or unknown is refused."""
    if config.num_layers > MAX_LAYERS:
        raise InputError(f"{stored.folder}: num_hidden_layers = {config.num_layers} is no model's depth")
    modern = {_modern(name): name for name in stored.shapes}
    form = format_of(config)
    names = form.body_names(config)
    expected = [name for named in names for name in named.theirs]
    prefix = _prefix(modern, expected, form)
    body = {name for name in modern if name.startswith(tuple(prefix + start for start in form.body_starts))}
    unknown = body - {prefix + name for name in (*expected, *form.buffers)}
    missing = [prefix + name for name in expected if prefix + name not in modern]
    if missing:
        raise _missing(stored, missing, unknown)
    if unknown:
        raise InputError(
            f"{stored.folder}: {_some(unknown)} not described by its config.json "
            f"({config.num_layers} layers); the model would not be the one that was trained",
            path=stored.folder,
        )
    tensors = _read(stored, names, modern, prefix, _shapes_of(config))
    return Body(tensors, tuple(sorted(modern[name] for name in set(modern) - body)))


def read_head(stored: StoredTensors, names: tuple[Named, ...], head: nn.Module) -> dict[str, Tensor]:
    """The parameters of a head like `head`, under our names; empty where the file holds none of them."""
    theirs = [name for named in names for name in named.theirs]
    missing = [name for name in theirs if name not in stored.shapes]
    if len(missing) == len(theirs):
        return {}
    if missing:
        raise _missing(stored, missing, set())
    shapes = {name: tuple(value.shape) for name, value in head.state_dict().items()}
    return _read(stored, names, {name: name for name in theirs}, "", shapes)


def _read(
    stored: StoredTensors,
    names: tuple[Named, ...],
    modern: Mapping[str, str],
    prefix: str,
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for named in names:
        stored_names = [modern[prefix + name] for name in named.theirs]
        rows, *columns = shapes[named.ours]
        wanted = (rows // len(named.theirs), *columns)
        for name in stored_names:
            if stored.shapes[name] != wanted:
                raise InputError(
                    f"{stored.folder}: {name} has shape {list(stored.shapes[name])}, "
                    f"but config.json makes it {list(wanted)}",
                    path=stored.files[name],
                )
        tensors[named.ours] = torch.cat([stored.read(name) for name in stored_names])
    return tensors


def _shapes_of(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in build_encoder(config).state_dict().items()}


def _modern(name: str) -> str:
    """Files converted from TensorFlow call LayerNorm's parameters gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def prefixes(form: Format) -> tuple[str, ...]:
    """What may stand before the names of a body."""
    return ("", form.prefix, *form.other_prefixes)


def _prefix(names: Iterable[str], expected: Iterable[str], form: Format) -> str:
    """The prefix under which most of the expected names are found."""
    found, wanted = set(names), list(expected)
    return max(prefixes(form), key=lambda prefix: sum(prefix + name in found for name in wanted))


def _missing(stored: StoredTensors, missing: list[str], unknown: set[str]) -> InputError:
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    held = f"; it holds {_some(unknown)} instead" if unknown else ""
    return InputError(
        f"{stored.folder}: the tensor {missing[0]}{more} is missing{held}",
        path=stored.folder,
        hint="weights of a body are never filled with fresh values; export or download the model again",
    )


def _some(names: set[str]) -> str:
    first = sorted(names)[:3]
    return ", ".join(first) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
