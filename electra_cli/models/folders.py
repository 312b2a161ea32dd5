"""Hugging Face folders: what ours become, and what comes from them. Only safetensors and JSON are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from electra_cli import durable
from electra_cli.errors import InputError
from electra_cli.models.backbone import Backbone
from electra_cli.models.backbones import build_encoder
from electra_cli.models.folder_files import CONFIG, WEIGHTS, StoredTensors, open_tensors, read_json
from electra_cli.models.folder_format import Format, Named, in_their_names
from electra_cli.models.folder_formats import encoder_config, format_of
from electra_cli.models.folder_heads import RTD_HEAD, head_tensors, load_rtd_head
from electra_cli.models.folder_parts import prefixes, read_body, read_head
from electra_cli.models.heads import DetectionHead, DiscriminatorHead, MaskedLMHead
from electra_cli.models.sizes import EncoderConfig

Run = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(token_ids_BS, piece_BS, position_BS, segment_BS) → hidden states [B, S, D] or logits."""


@dataclass(frozen=True)
class HFFolder:
    """The content of a model folder that transformers loads without a message."""

    config: Mapping[str, object]
    """config.json."""
    tensors: Mapping[str, Tensor]
    """model.safetensors: float32 copies on the CPU; no tensor under two names."""
    architecture: str
    """The transformers class, such as `ElectraModel`."""
    run: Run
    """The network itself, in evaluation mode: what the class above must answer to the same input."""
    rtd_head: Mapping[str, Tensor] = field(default_factory=dict)
    """rtd_head.safetensors: the discriminator's head where transformers has no class for it; empty: none."""


def encoder_folder(encoder: Backbone) -> HFFolder:
    """The body alone, such as `ElectraModel`: names without prefix, so that `AutoModel` is silent."""
    return _folder(encoder, format_of(encoder.config).encoder_class, "", {}, _evaluating(encoder))


def discriminator_folders(encoder: Backbone, head: DetectionHead) -> dict[str, HFFolder]:
    """`encoder`, and `discriminator` with its head where transformers has a class for it.

    Where it has none, the head lies beside the encoder, for `load_rtd_head`. A logit above 0 means replaced.
    """
    form, body = format_of(encoder.config), encoder_folder(encoder)
    if not (form.discriminator_class and isinstance(head, DiscriminatorHead)):
        return {"encoder": replace(body, rtd_head=head_tensors(head))}
    named = in_their_names(form.discriminator_head, head.state_dict())
    run = _evaluating(encoder, head)
    discriminator = _folder(encoder, form.discriminator_class, form.prefix, named, run)
    return {"encoder": body, "discriminator": discriminator}


def generator_folders(encoder: Backbone, head: MaskedLMHead) -> dict[str, HFFolder]:
    """`generator`: body and head; the tied table is stored once, as the word embeddings."""
    form = format_of(encoder.config)
    named = in_their_names(form.masked_lm_head, head.state_dict())
    table_VE = encoder.embeddings.word_VE

    def to_vocabulary(hidden_BSD: Tensor) -> Tensor:
        logit_BSV: Tensor = head(hidden_BSD, table_VE)
        return logit_BSV

    run = _evaluating(encoder, to_vocabulary)
    return {"generator": _folder(encoder, form.generator_class, form.prefix, named, run)}


def _evaluating(encoder: Backbone, head: Callable[[Tensor], Tensor] | None = None) -> Run:
    def run(token_ids_BS: Tensor, piece_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        was_training = encoder.training
        encoder.eval()
        hidden_BSD: Tensor = encoder(token_ids_BS, piece_BS, position_BS, segment_BS)
        encoder.train(was_training)
        return hidden_BSD if head is None else head(hidden_BSD)

    return run


def _folder(
    encoder: Backbone, architecture: str, prefix: str, head: Mapping[str, Tensor], run: Run
) -> HFFolder:
    _require_a_class(encoder.config)
    form = format_of(encoder.config)
    body = in_their_names(form.body_names(encoder.config), encoder.plain_state(), prefix)
    return HFFolder(form.config(encoder.config, architecture), {**body, **head}, architecture, run)


def _require_a_class(config: EncoderConfig) -> None:
    if config.relative_buckets:
        raise InputError(
            f"model.relative_buckets = {config.relative_buckets}: no class of transformers adds such a bias "
            "to ELECTRA's attention; without it the network would answer otherwise, so it is not exported",
            key="model.relative_buckets",
            hint="train with model.relative_buckets = 0 for a model that others can load",
        )


def write_folder(folder: Path, content: HFFolder) -> None:
    """Write config.json and model.safetensors into `folder`."""
    weights = safetensors.torch.save(dict(content.tensors), metadata={"format": "pt"})
    durable.write_bytes(folder / WEIGHTS, weights)
    if content.rtd_head:
        head = safetensors.torch.save(dict(content.rtd_head), metadata={"format": "pt"})
        durable.write_bytes(folder / RTD_HEAD, head)
    durable.write_json(folder / CONFIG, dict(content.config))


@dataclass(frozen=True, kw_only=True)
class LoadedEncoder:
    """An encoder out of a folder, every weight of it read from there."""

    encoder: Backbone
    config: Mapping[str, object]
    """config.json as it was found."""
    left_out: tuple[str, ...]
    """Tensors of heads and poolers in the file, which an encoder does not have."""


def load_encoder(folder: Path, *, dropout: float | None = None) -> LoadedEncoder:
    """The body of a model folder, whatever head stands on it.

    `dropout` replaces both dropout rates of config.json. Raises `InputError` for what is missing or of
    another kind, `CorruptError` for damaged files.
    """
    stored = open_tensors(folder)
    content = read_json(folder / CONFIG)
    config = encoder_config(content, folder / CONFIG)
    body = read_body(stored, config)
    if dropout is not None:
        config = replace(config, dropout=dropout, attention_dropout=dropout)
    # Memory without values, for each is read: no time goes into numbers that nobody sees.
    with torch.device("meta"):
        encoder = build_encoder(config)
    encoder.to_empty(device="cpu")
    copy_into(encoder, body.tensors, source=str(folder))
    return LoadedEncoder(encoder=encoder, config=content, left_out=body.left_out)


@dataclass(frozen=True, kw_only=True)
class PretrainedPart:
    """A network out of a folder, under the names of an encoder with tables of its own and of its head."""

    folder: Path
    config: EncoderConfig
    body: Mapping[str, Tensor]
    head: Mapping[str, Tensor]
    """Empty where the folder holds none."""


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """What `init_from` found; a part that is `None` starts with fresh weights."""

    discriminator: PretrainedPart | None
    """From discriminator/, or from a folder with a body alone."""
    generator: PretrainedPart | None


def load_pretrained(folder: Path) -> Pretrained:
    """Weights to start from: an export with its parts in sub-folders, or the folder of one model."""
    if not (folder / CONFIG).is_file():
        found = {name: folder / name for name in _PARTS if (folder / name / CONFIG).is_file()}
        if found:
            body = found.get("discriminator") or found.get("encoder")
            generator = found.get("generator")
            return Pretrained(
                discriminator=None if body is None else _load_part(body, "discriminator"),
                generator=None if generator is None else _load_part(generator, "generator"),
            )
    if _is_generator(folder):
        return Pretrained(discriminator=None, generator=_load_part(folder, "generator"))
    return Pretrained(discriminator=_load_part(folder, "discriminator"), generator=None)


_PARTS = ("discriminator", "encoder", "generator")


def _is_generator(folder: Path) -> bool:
    """By the head of its own family: BERT's, whose names DeBERTa shares, does not make it a generator."""
    stored = open_tensors(folder)
    config = encoder_config(read_json(folder / CONFIG), folder / CONFIG)
    return _has_head(stored, format_of(config), "generator")


def _head_names(form: Format) -> dict[str, tuple[Named, ...]]:
    return {"generator": form.masked_lm_head, "discriminator": form.discriminator_head}


def _has_head(stored: StoredTensors, form: Format, role: str) -> bool:
    """Whether a parameter is there that only this role's head has; ModernBERT's two heads share names."""
    theirs = {
        one: {name for named in names for name in named.theirs} for one, names in _head_names(form).items()
    }
    shared = set.intersection(*theirs.values())
    return any(name in stored.shapes for name in theirs[role] - shared)


def _load_part(folder: Path, role: str) -> PretrainedPart:
    stored = open_tensors(folder)
    config = encoder_config(read_json(folder / CONFIG), folder / CONFIG)
    form = format_of(config)
    for other in _head_names(form):
        if other != role and _has_head(stored, form, other):
            raise InputError(
                f"{folder} holds a {other}, not a {role}",
                path=folder,
                hint="the folders of an export are discriminator/ and generator/; do not exchange them",
            )
    body = read_body(stored, config)
    return PretrainedPart(
        folder=folder, config=config, body=body.tensors, head=_read_part_head(stored, config, role)
    )


def _read_part_head(stored: StoredTensors, config: EncoderConfig, role: str) -> Mapping[str, Tensor]:
    form = format_of(config)
    if role == "discriminator" and (stored.folder / RTD_HEAD).is_file():
        return load_rtd_head(stored.folder).state_dict()
    with torch.device("meta"):
        head = MaskedLMHead(config) if role == "generator" else DiscriminatorHead(config)
    if role == "generator":
        _require_tied(stored, form)
    return read_head(stored, _head_names(form)[role], head)


def _require_tied(stored: StoredTensors, form: Format) -> None:
    """A separate output table equal to the word table is one table; ours has no place for another."""
    if form.tied_table not in stored.shapes:
        return
    table = stored.read(form.tied_table)
    names = (prefix + form.word_table for prefix in prefixes(form))
    word = next(name for name in names if name in stored.shapes)
    if not torch.equal(table, stored.read(word)):
        raise InputError(
            f"{stored.folder}: {form.tied_table} differs from {word}; only tied tables can be read",
            path=stored.folder,
        )


def copy_into(module: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Copy every parameter of `module` from `tensors`; names and shapes must be the same on both sides."""
    own = module.state_dict()
    for name in (*own, *tensors):
        if name not in tensors:
            raise InputError(f"{source}: the tensor {name} is missing")
        if name not in own:
            raise InputError(f"{source}: the tensor {name} has no place in this model")
        if own[name].shape != tensors[name].shape:
            raise InputError(
                f"{source}: {name} has shape {list(tensors[name].shape)}, "
                f"this model needs {list(own[name].shape)}"
            )
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])


def copy_body(encoder: Backbone, part: PretrainedPart, *, sequence_length: int) -> None:
    """Start `encoder` from `part`. All sizes must agree, but for the length of the position table.

    The common rows of the position tables are copied; a table shorter than `sequence_length` is refused,
    for the model would train positions that the folder never had.
    """
    held = part.config.max_positions
    if held < sequence_length:
        raise InputError(
            f"{part.folder} has a table of {held} positions, rows.sequence_length = {sequence_length}",
            path=part.folder,
            key="rows.sequence_length",
            hint=f"set rows.sequence_length to {held} at most",
        )
    differing = [
        f"{name} = {getattr(part.config, name)} there, {getattr(encoder.config, name)} here"
        for name in _SHAPES
        if getattr(part.config, name) != getattr(encoder.config, name)
    ]
    if differing:
        raise InputError(
            f"{part.folder} is another model: " + "; ".join(differing),
            path=part.folder,
            hint="set [model] and [generator] to its sizes, or start from another folder",
        )
    body = dict(part.body)
    if _POSITIONS in body:
        common = min(held, encoder.config.max_positions)
        positions = encoder.plain_state()[_POSITIONS].detach().to("cpu", copy=True)
        positions[:common] = body[_POSITIONS][:common]
        body[_POSITIONS] = positions
    copy_into(encoder, encoder.own_state(body), source=str(part.folder))


_POSITIONS = "embeddings.positions.weight"

_SHAPES = (
    "backbone",
    "vocab_size",
    "num_layers",
    "hidden_size",
    "feed_forward_size",
    "num_heads",
    "embedding_size",
    "num_segments",
    "relative_buckets",
)
