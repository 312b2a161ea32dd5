"""What a family of Hugging Face models is: class names, config.json and the names of the parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from electra_cli.errors import InputError
from electra_cli.models.sizes import EncoderConfig

LARGEST = 1 << 26
"""No size in a config.json is larger; keeps products of two within what a tensor can have."""


@dataclass(frozen=True)
class Named:
    """One parameter of ours and where it lies in a file."""

    ours: str
    theirs: tuple[str, ...]
    """One name, or those of query, key and value, which are stacked along the first dimension."""


def weight_and_bias(ours: str, *theirs: str) -> list[Named]:
    """The two parameters of a layer."""
    return [
        Named(f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)) for kind in ("weight", "bias")
    ]


def behind_the_attention(ours: str, theirs: str) -> tuple[Named, ...]:
    """What follows the attention in a layer of BERT's family: output, feed-forward and both LayerNorms."""
    return (
        *weight_and_bias(f"{ours}.attention_output", f"{theirs}.attention.output.dense"),
        *weight_and_bias(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm"),
        *weight_and_bias(f"{ours}.feed_forward_inner", f"{theirs}.intermediate.dense"),
        *weight_and_bias(f"{ours}.feed_forward_output", f"{theirs}.output.dense"),
        *weight_and_bias(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm"),
    )


def in_their_names(
    names: tuple[Named, ...], parameters: Mapping[str, Tensor], prefix: str = ""
) -> dict[str, Tensor]:
    """Float32 copies on the CPU under the names of the file."""
    renamed: dict[str, Tensor] = {}
    for named in names:
        value = parameters[named.ours].detach().to("cpu", torch.float32)
        for name, part in zip(named.theirs, value.chunk(len(named.theirs)), strict=True):
            renamed[prefix + name] = part.clone(memory_format=torch.contiguous_format)
    return renamed


@dataclass(frozen=True)
class ConfigReader:
    """Takes single values out of a config.json and names the key that is wrong."""

    content: Mapping[str, object]
    path: Path

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of at least `least`."""
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise self.wrong(key, value, f"a whole number from {least} to {LARGEST}")
        return value

    def share(self, key: str, default: float) -> float:
        """A number in [0, 1)."""
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.wrong(key, value, "a number in [0, 1)")
        return float(value)

    def only(self, key: str, *allowed: object) -> None:
        """Refuse any other value; where the key is absent, the first is what counts."""
        value = self.content.get(key, allowed[0])
        if value not in allowed:
            raise self.wrong(key, value, " or ".join(map(repr, allowed)))

    def heads(self, hidden_size: int) -> int:
        """The number of attention heads, a divisor of the width."""
        num_heads = self.whole("num_attention_heads")
        if hidden_size % num_heads:
            raise self.wrong("num_attention_heads", num_heads, f"a divisor of hidden_size = {hidden_size}")
        return num_heads

    def padding_id(self) -> int:
        """The id of [PAD], 0 where none is named."""
        return 0 if self.content.get("pad_token_id") is None else self.whole("pad_token_id", least=0)

    def wrong(self, key: str, value: object, needed: str) -> InputError:
        """The error for one key."""
        return InputError(f"{self.path}: {key} = {value!r}; needs {needed}", path=self.path, key=key)


@dataclass(frozen=True, kw_only=True)
class Format:
    """How one backbone lies in Hugging Face files."""

    model_type: str
    config: Callable[[EncoderConfig, str], dict[str, object]]
    """config.json of an encoder, for an architecture."""
    encoder_class: str
    generator_class: str
    discriminator_class: str
    """The class that has our discriminator's head; empty where transformers has none."""
    body_names: Callable[[EncoderConfig], tuple[Named, ...]]
    """Every parameter of an encoder; the names in the file are without prefix."""
    prefix: str
    """Stands before the names of a body below a head."""
    other_prefixes: tuple[str, ...] = ()
    """Further ones that are read."""
    body_starts: tuple[str, ...]
    """What belongs to a body; an unknown name that starts so is refused, any other is a head, left out."""
    buffers: tuple[str, ...] = ()
    """Constants that older files hold; nothing is lost without them."""
    word_table: str
    tied_table: str
    """The output table's name: left out of what we write, equal to the word table where others wrote it."""
    masked_lm_head: tuple[Named, ...]
    discriminator_head: tuple[Named, ...] = ()
