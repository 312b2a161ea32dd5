"""The discriminator's head in a file of its own, where transformers has no class that would hold it."""

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from electra_cli.errors import CorruptError, InputError
from electra_cli.models.folder_files import CONFIG, read_json
from electra_cli.models.folder_formats import encoder_config
from electra_cli.models.heads import (
    ContextDiscriminatorHead,
    DetectionHead,
    DiscriminatorHead,
    LinearDiscriminatorHead,
)
from electra_cli.models.sizes import EncoderConfig

RTD_HEAD = "rtd_head.safetensors"
"""Lies beside its encoder. DeBERTaV3's has a LayerNorm with a bias, COCO-LM's is one layer alone."""


def head_tensors(head: DetectionHead) -> dict[str, Tensor]:
    """The content of the file: float32 copies on the CPU, by our names."""
    return {
        name: value.detach().to("cpu", torch.float32, copy=True) for name, value in head.state_dict().items()
    }


def detection_head(config: EncoderConfig, tensors: Mapping[str, Tensor]) -> DetectionHead:
    """A head of the kind whose parameters `tensors` are, its own not yet set."""
    if "layer_norm.bias" in tensors:
        return ContextDiscriminatorHead(config)
    return (DiscriminatorHead if "dense.weight" in tensors else LinearDiscriminatorHead)(config)


def load_rtd_head(folder: Path) -> DetectionHead:
    """The head in `folder`, for the states of the encoder there, in evaluation mode.

    InputError where there is none, CorruptError where it does not fit the encoder's config.json.
    """
    path = folder / RTD_HEAD
    if not path.is_file():
        raise InputError(f"{folder} holds no {RTD_HEAD}", path=path)
    config = encoder_config(read_json(folder / CONFIG), folder / CONFIG)
    try:
        tensors = safetensors.torch.load_file(path)
        head = detection_head(config, tensors)
        head.load_state_dict(tensors)
    except (SafetensorError, OSError, RuntimeError) as error:
        raise CorruptError(f"{path} is damaged: {error}", path=path) from error
    return head.eval()
