"""A masked language model out of a folder, ours or BERT's, and starting another encoder from it."""

from dataclasses import replace
from pathlib import Path

import torch

from electra_cli.errors import InputError
from electra_cli.models.backbone import Backbone
from electra_cli.models.folder_files import CONFIG, StoredTensors, open_tensors, read_json
from electra_cli.models.folder_format import Named, weight_and_bias
from electra_cli.models.folder_formats import encoder_config
from electra_cli.models.folder_parts import read_body, read_head
from electra_cli.models.folders import PretrainedPart, copy_body, load_pretrained
from electra_cli.models.heads import MaskedLMHead

_BERT_HEAD = "cls.predictions"
_WORDS = "embeddings.word_VE"
_EMBEDDINGS = "embeddings."


def load_masked_lm(folder: Path) -> PretrainedPart:
    """Body and head of `ElectraForMaskedLM`, `BertForMaskedLM` and what else we export as generator/.

    Raises `InputError` where the folder holds another model or no head, `CorruptError` for damaged files.
    """
    part = bert_masked_lm(folder) or load_pretrained(folder).generator
    if part is None or not part.head:
        raise InputError(
            f"{folder} holds no masked language model: it has no head over the vocabulary",
            path=folder,
            hint="name generator/ of an export",
        )
    return part


def bert_masked_lm(folder: Path) -> PretrainedPart | None:
    """The body of a BERT folder, with its head, which is ELECTRA's under other names, where it has one.

    `None` where `folder` is not the folder of a BERT.
    """
    content = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if content.get("model_type") != "bert":
        return None
    stored = open_tensors(folder)
    config = encoder_config(content, folder / CONFIG)
    body = read_body(stored, config).tensors
    with torch.device("meta"):
        head = MaskedLMHead(config)
    tensors = read_head(stored, _bert_head_names(stored), head)
    tied = f"{_BERT_HEAD}.decoder.weight"
    if tied in stored.shapes and not torch.equal(stored.read(tied), body[_WORDS]):
        raise InputError(
            f"{folder}: {tied} differs from the word embeddings; only tied tables can be read", path=folder
        )
    return PretrainedPart(folder=folder, config=config, body=body, head=tensors)


def _bert_head_names(stored: StoredTensors) -> tuple[Named, ...]:
    norm = f"{_BERT_HEAD}.transform.LayerNorm"
    # Files converted from TensorFlow call LayerNorm's parameters gamma and beta.
    weight, bias = ("gamma", "beta") if f"{norm}.gamma" in stored.shapes else ("weight", "bias")
    return (
        *weight_and_bias("dense", f"{_BERT_HEAD}.transform.dense"),
        Named("layer_norm.weight", (f"{norm}.{weight}",)),
        Named("layer_norm.bias", (f"{norm}.{bias}",)),
        Named("bias_V", (f"{_BERT_HEAD}.bias",)),
    )


def copy_embeddings(encoder: Backbone, part: PretrainedPart, *, sequence_length: int) -> None:
    """Start the embeddings of `encoder`, and nothing else of it, from `part`; as `copy_body` otherwise."""
    own, theirs = encoder.config, part.config
    if (own.backbone, own.embedding_size) != (theirs.backbone, theirs.embedding_size):
        raise InputError(
            f"{part.folder} has embeddings of {theirs.embedding_size} ({theirs.backbone}), this model has "
            f"model.embedding_size = {own.embedding_size} ({own.backbone})",
            path=part.folder,
            key="model.embedding_size",
            hint=f"set model.embedding_size = {theirs.embedding_size}, or start fresh",
        )
    plain = {name: value.detach().to("cpu") for name, value in encoder.plain_state().items()}
    tables = {name: value for name, value in part.body.items() if name.startswith(_EMBEDDINGS)}
    # The layers stay as they are: a part of this encoder's own sizes with the other's embeddings.
    mixed = PretrainedPart(
        folder=part.folder,
        config=replace(own, max_positions=theirs.max_positions),
        body={**plain, **tables},
        head={},
    )
    copy_body(encoder, mixed, sequence_length=sequence_length)
