"""The families of Hugging Face models that are written and read: one visible table."""

from collections.abc import Callable, Mapping
from pathlib import Path

from electra_cli.errors import InputError
from electra_cli.models import folder_deberta, folder_electra, folder_modern
from electra_cli.models.folder_format import ConfigReader, Format
from electra_cli.models.sizes import EncoderConfig
from electra_cli.settings import BackboneName

FORMATS: Mapping[BackboneName, Format] = {
    "electra": folder_electra.ELECTRA,
    "deberta": folder_deberta.DEBERTA,
    "modern": folder_modern.MODERN,
}
"""How each backbone is written."""

_READERS: Mapping[str, Callable[[ConfigReader], EncoderConfig]] = {
    "electra": folder_electra.read_config,
    "bert": folder_electra.read_config,
    "deberta-v2": folder_deberta.read_config,
    "modernbert": folder_modern.read_config,
}
"""What reads the config.json of each `model_type`."""


def format_of(config: EncoderConfig) -> Format:
    """The family that an encoder belongs to."""
    return FORMATS[config.backbone]


def encoder_config(content: Mapping[str, object], path: Path) -> EncoderConfig:
    """The encoder that a config.json describes; `InputError` for one whose arithmetic is another."""
    model_type = content.get("model_type")
    if not isinstance(model_type, str) or model_type not in _READERS:
        raise InputError(
            f"{path}: model_type = {model_type!r}; these can be read: {', '.join(_READERS)}",
            path=path,
            key="model_type",
        )
    return _READERS[model_type](ConfigReader(content, path))
