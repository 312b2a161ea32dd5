"""Hugging Face folders: what ours become, and what comes from them. Only safetensors and JSON are read."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class HFFolder:
    """The content of a model folder that transformers loads without a message."""

    config: Mapping[str, object]
    """config.json."""
    tensors: Mapping[str, Tensor]
    """model.safetensors; no tensor under two names."""
    architecture: str
    """The transformers class, such as `ElectraModel`."""
