"""The names of our parameters in Hugging Face files, and back."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_cli.models.sizes import EncoderConfig


@dataclass(frozen=True)
class Named:
    """One parameter of ours and where it lies in a file."""

    ours: str
    theirs: tuple[str, ...]
    """One name, or those of query, key and value, which are stacked along the first dimension."""


DISCRIMINATOR_HEAD = (
    Named("dense.weight", ("discriminator_predictions.dense.weight",)),
    Named("dense.bias", ("discriminator_predictions.dense.bias",)),
    Named("prediction.weight", ("discriminator_predictions.dense_prediction.weight",)),
    Named("prediction.bias", ("discriminator_predictions.dense_prediction.bias",)),
)

MASKED_LM_HEAD = (
    Named("dense.weight", ("generator_predictions.dense.weight",)),
    Named("dense.bias", ("generator_predictions.dense.bias",)),
    Named("layer_norm.weight", ("generator_predictions.LayerNorm.weight",)),
    Named("layer_norm.bias", ("generator_predictions.LayerNorm.bias",)),
    Named("bias_V", ("generator_lm_head.bias",)),
)

TIED_TABLE = "generator_lm_head.weight"
"""Left out of what we write; equal to the word table where others wrote it."""

WORD_TABLE = "embeddings.word_embeddings.weight"

PREFIXES = ("", "electra.", "discriminator.", "discriminator.electra.", "bert.")

BODY_STARTS = ("embeddings.", "embeddings_project.", "encoder.")
"""What belongs to a body; an unknown name that starts so is refused, any other is a head that is left out."""

BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Constants that older files hold; nothing is lost without them."""


def body_names(config: EncoderConfig) -> tuple[Named, ...]:
    """Every parameter of `Encoder(config)`; the names in the file are without prefix."""
    names = [
        Named("embeddings.word_VE", (WORD_TABLE,)),
        Named("embeddings.positions.weight", ("embeddings.position_embeddings.weight",)),
        Named("embeddings.segments.weight", ("embeddings.token_type_embeddings.weight",)),
        *_weight_and_bias("embeddings.layer_norm", "embeddings.LayerNorm"),
    ]
    if config.has_projection:
        names += _weight_and_bias("projection", "embeddings_project")
    for number in range(config.num_layers):
        ours, theirs = f"layers.{number}", f"encoder.layer.{number}"
        attention = f"{theirs}.attention.self"
        names += _weight_and_bias(
            f"{ours}.qkv", f"{attention}.query", f"{attention}.key", f"{attention}.value"
        )
        names += _weight_and_bias(f"{ours}.attention_output", f"{theirs}.attention.output.dense")
        names += _weight_and_bias(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        names += _weight_and_bias(f"{ours}.feed_forward_inner", f"{theirs}.intermediate.dense")
        names += _weight_and_bias(f"{ours}.feed_forward_output", f"{theirs}.output.dense")
        names += _weight_and_bias(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return tuple(names)


def _weight_and_bias(ours: str, *theirs: str) -> list[Named]:
    return [
        Named(f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)) for kind in ("weight", "bias")
    ]


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
