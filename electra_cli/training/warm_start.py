"""Starting from weights that exist: an own run or checkpoint, an export, or a Hugging Face folder.

Only weights come along. The optimizer, the schedule, and every network that the source does not hold start
fresh, and the person is told which.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from electra_cli import durable
from electra_cli.data.tokenizer_file import read_tokenizer
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.errors import InputError
from electra_cli.models.backbone import Backbone
from electra_cli.models.folders import Pretrained, PretrainedPart, copy_body, copy_into, load_pretrained
from electra_cli.models.masked_lm_folders import bert_masked_lm
from electra_cli.objectives.base import Objective
from electra_cli.progress import Silent
from electra_cli.training import checkpoint
from electra_cli.training.weights import module_tensors

_POSITIONS = "embeddings.positions.weight"


def is_run(source: Path) -> bool:
    """Whether `source` is a run or a checkpoint of ours."""
    return (source / "checkpoints").is_dir() or (source / checkpoint.MANIFEST).is_file()


def source_sha256(source: Path, *, key: str = "pretrain.init_from") -> str:
    """Hash of the weights that the setting `key` names; InputError where there are none."""
    if is_run(source):
        return durable.sha256_file(checkpoint.chosen_checkpoint(source, Silent()) / checkpoint.MANIFEST)
    files = sorted(source.glob("*.safetensors")) or sorted(source.glob("*/*.safetensors"))
    if not files:
        raise InputError(
            f"{key}: {source} holds no weights (*.safetensors) and is no run",
            path=source,
            key=key,
            hint="name a run, a checkpoint, an export or a Hugging Face folder",
        )
    digest = hashlib.sha256()
    for file in files:
        digest.update(durable.sha256_file(file).encode())
    return digest.hexdigest()


def start_from(source: Path, objective: Objective, vocabulary: Vocabulary, sequence_length: int) -> str:
    """Copy the weights of `source` into the objective; returns in words what came from where.

    Raises InputError when the vocabulary is another one, or the position table is too short.
    """
    if is_run(source):
        told = _from_run(source, objective, vocabulary, sequence_length)
    else:
        told = _from_folders(source, objective, vocabulary, sequence_length)
    return f"starting from {source}: {told}; optimizer and schedule are fresh"


def _from_run(source: Path, objective: Objective, vocabulary: Vocabulary, sequence_length: int) -> str:
    folder = checkpoint.chosen_checkpoint(source, Silent())
    state = checkpoint.read_state(folder)
    if state.vocabulary_sha256 != vocabulary.sha256:
        raise InputError(
            f"pretrain.init_from: {folder} was trained with the vocabulary {state.vocabulary_sha256[:12]}…, "
            f"this project's is {vocabulary.sha256[:12]}…",
            path=folder,
            key="pretrain.init_from",
            hint="start from a run of this vocabulary",
        )
    weights = checkpoint.load_weights(folder)
    fresh = []
    with torch.no_grad():
        for name, own in module_tensors(objective).items():
            found = weights.tensors.get(name)
            if found is not None and name.endswith(_POSITIONS):
                _copy_positions(own, found, folder, sequence_length)
            elif found is not None and found.shape == own.shape:
                own.copy_(found)
            else:
                fresh.append(name)
    of_step = f"step {weights.step:,}{_passed_over(source, folder)}"
    if not fresh:
        return f"all weights of {of_step}"
    return f"weights of {of_step}; newly initialised: {_networks_of(fresh, objective)}"


def _passed_over(source: Path, chosen: Path) -> str:
    """The damaged checkpoints of a run that are newer than the chosen one, in words; nothing for none."""
    newer = [folder.name for _, folder in checkpoint.numbered(source / "checkpoints")]
    damaged = newer[: newer.index(chosen.name)] if chosen.name in newer else []
    return f" ({', '.join(damaged)} damaged, passed over)" if damaged else ""


def _copy_positions(own: Tensor, found: Tensor, folder: Path, sequence_length: int) -> None:
    if found.shape[0] < sequence_length:
        raise InputError(
            f"pretrain.init_from: {folder} has a table of {found.shape[0]} positions, "
            f"rows.sequence_length = {sequence_length}",
            path=folder,
            key="rows.sequence_length",
            hint=f"rows.sequence_length can be {found.shape[0]} at most",
        )
    if found.shape[1:] != own.shape[1:]:
        raise InputError(
            f"pretrain.init_from: {folder} has embeddings of {found.shape[1]}, "
            f"this model needs {own.shape[1]}",
            path=folder,
            key="model.embedding_size",
        )
    common = min(len(own), len(found))
    own[:common].copy_(found[:common])


def _networks_of(names: list[str], objective: Objective) -> str:
    """`generator, discriminator (2 of 40 tensors)`: whole networks by name, parts with their share."""
    total: dict[str, int] = {}
    for name in module_tensors(objective):
        network = name.partition(".")[0]
        total[network] = total.get(network, 0) + 1
    told = []
    for network, number in total.items():
        count = sum(name.partition(".")[0] == network for name in names)
        if count:
            told.append(network if count == number else f"{network} ({count} of {number} tensors)")
    return ", ".join(told)


def _from_folders(source: Path, objective: Objective, vocabulary: Vocabulary, sequence_length: int) -> str:
    require_same_vocabulary(source, vocabulary, key="pretrain.init_from")
    networks: Mapping[str, nn.Module] = dict(objective.named_children())
    found = _as_trained(source, load_pretrained(source), networks)
    found = replace(
        found,
        generator=_without_foreign_head(found.generator, networks.get("generator")),
        discriminator=_without_foreign_head(found.discriminator, networks.get("discriminator")),
    )
    # Where both share their embeddings, those of the discriminator, which is exported, come last and stay.
    parts = {"generator": found.generator, "discriminator": found.discriminator}
    held = [role for role, part in parts.items() if part is not None]
    if not any(role in networks for role in held):
        raise InputError(
            f"pretrain.init_from: {source} holds a {' and a '.join(held)}, "
            f"this objective trains: {', '.join(name for name in networks if name != 'masking')}",
            path=source,
            key="pretrain.init_from",
            hint="start from a folder of such a network, or leave pretrain.init_from empty",
        )
    for role, part in parts.items():
        if part is not None and role in networks:
            _copy_part(networks[role], part, sequence_length)
    return "; ".join(
        _told(role, network, parts.get(role)) for role, network in networks.items() if _holds(network)
    )


def _as_trained(source: Path, found: Pretrained, networks: Mapping[str, nn.Module]) -> Pretrained:
    """A body without a discriminator's head starts the generator where that is all there is to start.

    So BERT, or an encoder alone, is continued as a masked language model; BERT's own head comes along.
    """
    body = found.discriminator
    if found.generator or body is None or body.head or "discriminator" in networks:
        return found
    return Pretrained(discriminator=None, generator=bert_masked_lm(source) or body)


def _holds(network: nn.Module) -> bool:
    return next(network.parameters(), None) is not None


def _told(role: str, network: nn.Module, part: PretrainedPart | None) -> str:
    """What came of one network: from where, and what of it is fresh."""
    if part is None:
        return f"{role} newly initialised"
    started = {"encoder", "head"} if part.head else {"encoder"}
    fresh = [name for name, one in network.named_children() if name not in started and _holds(one)]
    if not fresh:
        return f"{role} with its head from {part.folder}"
    return f"{role} from {part.folder}, its {' and '.join(fresh)} newly initialised"


def _without_foreign_head(part: PretrainedPart | None, network: nn.Module | None) -> PretrainedPart | None:
    """The part without a head that `network` has no place for: not every system keeps ELECTRA's."""
    own = dict(network.named_children()).get("head") if network is not None else None
    if part is None or (own is not None and own.state_dict().keys() == part.head.keys()):
        return part
    return replace(part, head={})


def _copy_part(network: nn.Module, part: PretrainedPart, sequence_length: int) -> None:
    encoder = network.get_submodule("encoder")
    assert isinstance(encoder, Backbone)
    copy_body(encoder, part, sequence_length=sequence_length)
    if part.head:
        copy_into(network.get_submodule("head"), part.head, source=str(part.folder))


def require_same_vocabulary(source: Path, vocabulary: Vocabulary, *, key: str) -> None:
    """Every id must mean the same piece; a folder without a tokenizer cannot be checked and is refused.

    InputError names the setting `key`, which `source` stands in.
    """
    files = [*source.glob("tokenizer.json"), *sorted(source.glob("*/tokenizer.json"))]
    if files:
        theirs = read_tokenizer(files[0], key=key).get_vocab(with_added_tokens=True)
    elif (source / "vocab.txt").is_file():
        pieces = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
        files, theirs = [source / "vocab.txt"], {piece: number for number, piece in enumerate(pieces)}
    else:
        raise InputError(
            f"{key}: {source} has neither tokenizer.json nor vocab.txt to compare with",
            path=source,
            key=key,
        )
    ours = vocabulary.tokenizer.get_vocab(with_added_tokens=True)
    if theirs != ours:
        differing = sum(theirs.get(piece) != number for piece, number in ours.items())
        raise InputError(
            f"{key}: {files[0]} is another vocabulary: {differing:,} of {len(ours):,} pieces "
            "have another id there, or none",
            path=files[0],
            key=key,
            hint=f'set vocab.path = "{files[0]}" and shard again to continue this model',
        )
