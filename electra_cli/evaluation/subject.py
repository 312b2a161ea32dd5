"""The model under evaluation: weights, tokenizer, identity, and the place of its results."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from electra_cli import durable
from electra_cli.errors import ElectraError, InputError
from electra_cli.evaluation.encoding import TextEncoder, load_text_encoder
from electra_cli.evaluation.saved import MARK, TOKENIZER_FILES, FineTunedFacts, read_facts
from electra_cli.models.backbone import Backbone
from electra_cli.models.folder_files import CONFIG, read_json
from electra_cli.models.folders import load_encoder
from electra_cli.project import Project

_RUN_MARKS = ("resolved.toml", "status.json", "manifest.json")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A loaded model. Every run starts from a copy of `initial`."""

    folder: Path
    name: str
    encoder: Backbone
    initial: Mapping[str, Tensor]
    text_encoder: TextEncoder
    sha256: str
    """Hash of weights, configuration and tokenizer."""
    step: int | None
    """Pre-training step, where the export says so."""
    max_length: int
    """Positions of its table."""


def load_subject(folder: Path, project: Project, *, dropout: float) -> Subject:
    """Read a model folder; raises InputError or CorruptError as `load_encoder` does."""
    loaded = load_encoder(folder, dropout=dropout)
    text_encoder = load_text_encoder(folder)
    config = loaded.encoder.config
    num_pieces = max(text_encoder.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    if num_pieces > config.vocab_size:
        raise InputError(
            f"{folder}: the tokenizer has ids up to {num_pieces - 1:,}, the model's table "
            f"{config.vocab_size:,} rows",
            path=folder,
            hint="the tokenizer files belong to another model",
        )
    return Subject(
        folder=folder,
        name=shown_folder(folder, project),
        encoder=loaded.encoder,
        initial={name: value.clone() for name, value in loaded.encoder.state_dict().items()},
        text_encoder=text_encoder,
        sha256=folder_sha256(folder),
        step=export_step(folder),
        max_length=config.max_positions,
    )


def folder_sha256(folder: Path) -> str:
    """One hash over the files of a model folder that its answers depend on."""
    digest = hashlib.sha256()
    weights = sorted(path.name for path in folder.glob("*.safetensors"))
    for name in (CONFIG, *TOKENIZER_FILES, *weights):
        if (folder / name).is_file():
            digest.update(f"{name} {durable.sha256_file(folder / name)}\n".encode())
    return digest.hexdigest()


def shown_folder(folder: Path, project: Project) -> str:
    """The folder as a person would write it."""
    for base in (Path.cwd(), project.root):
        if folder.resolve().is_relative_to(base.resolve()):
            return folder.resolve().relative_to(base.resolve()).as_posix()
    return str(folder)


def export_step(folder: Path) -> int | None:
    """Pre-training step of a folder of an export, where the export says so."""
    path = folder.parent / "export.json"
    if not path.is_file():
        return None
    try:
        step = read_json(path).get("step")
    except ElectraError:
        # Only a figure for the heading; the weights have been read and hashed already.
        return None
    return step if isinstance(step, int) else None


def results_folder(folder: Path, project: Project, kind: str = "glue") -> Path:
    """`RUN/evaluate/KIND` for a run's export, `evaluate/KIND/NAME` for any other model."""
    resolved = folder.resolve()
    run = resolved.parent.parent
    if resolved.parent.name == "export" and any((run / name).is_file() for name in _RUN_MARKS):
        return run / "evaluate" / kind
    is_part = resolved.name in ("encoder", "discriminator", "generator")
    name = resolved.parent.name if is_part else resolved.name
    return project.evaluate_dir / kind / (name or "model")


@dataclass(frozen=True, kw_only=True)
class Start:
    """Encoder weights that runs start from in place of the model's own."""

    facts: FineTunedFacts
    initial: Mapping[str, Tensor]
    sha256: str


def load_start(wanted: str, models: Path, subject: Subject) -> Start:
    """The fine-tuned model of `--init-from`: a task's name, or a folder that `--save-model` wrote.

    Raises InputError where there is none, or where it is no relative of the model under evaluation.
    """
    folder = Path(wanted) if (Path(wanted) / MARK).is_file() else models / wanted
    if not (folder / MARK).is_file():
        raise InputError(
            f"there is no fine-tuned model {wanted!r}: looked in {wanted} and {folder}",
            path=folder,
            hint=f"electra eval-glue --task {wanted} --save-model makes one",
        )
    encoder = load_encoder(folder).encoder
    state = encoder.state_dict()
    different = [
        name for name, value in subject.initial.items() if state.get(name, value).shape != value.shape
    ]
    if different or set(state) != set(subject.initial):
        raise InputError(
            f"{folder} has other sizes than {subject.name}",
            path=folder,
            hint="--init-from takes a fine-tuned model of the same encoder",
        )
    tokenizer = load_text_encoder(folder).tokenizer
    if tokenizer.get_vocab() != subject.text_encoder.tokenizer.get_vocab():
        raise InputError(f"{folder} has another vocabulary than {subject.name}", path=folder)
    return Start(facts=read_facts(folder), initial=state, sha256=folder_sha256(folder))
