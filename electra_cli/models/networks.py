"""A whole network out of a folder, body and head, ready to answer."""

from dataclasses import dataclass
from pathlib import Path

import torch

from electra_cli.errors import InputError
from electra_cli.models.backbone import Backbone
from electra_cli.models.backbones import build_encoder
from electra_cli.models.folder_heads import detection_head
from electra_cli.models.folders import PretrainedPart, copy_into, load_pretrained
from electra_cli.models.heads import DetectionHead, MaskedLMHead


@dataclass(frozen=True, kw_only=True)
class Network:
    """An encoder and the head that stands on it, in evaluation mode."""

    encoder: Backbone
    head: DetectionHead | MaskedLMHead


def load_network(folder: Path) -> Network:
    """The discriminator or masked language model of a folder.

    Raises InputError where the folder holds a body alone, CorruptError for damaged files.
    """
    found = load_pretrained(folder)
    part = found.discriminator or found.generator
    assert part is not None
    if not part.head:
        raise InputError(
            f"{folder} holds no head: neither a discriminator nor a masked language model",
            path=folder,
            hint="name the folder discriminator/ or generator/ of an export",
        )
    return network_of(part, is_discriminator=part is found.discriminator)


def network_of(part: PretrainedPart, *, is_discriminator: bool) -> Network:
    """The network whose weights `part` holds."""
    # Memory without values, for each is read: no time goes into numbers that nobody sees.
    with torch.device("meta"):
        encoder = build_encoder(part.config)
        is_masked_lm = not is_discriminator
        head = MaskedLMHead(part.config) if is_masked_lm else detection_head(part.config, part.head)
    for module, tensors in ((encoder, part.body), (head, part.head)):
        module.to_empty(device="cpu")
        copy_into(module, tensors, source=str(part.folder))
    return Network(encoder=encoder.eval(), head=head.eval())
