"""A fine-tuned model on disk: encoder in Hugging Face's form, our head beside it.

The head is a file of its own (`head.safetensors`) because the sequence classifiers of
transformers have another head; `encoder` alone loads with `AutoModel`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from electra_cli import durable
from electra_cli.errors import CorruptError, InputError
from electra_cli.evaluation.builtin_tasks import BUILTIN
from electra_cli.evaluation.classifier import Classifier, num_outputs_of
from electra_cli.evaluation.tasks import Task
from electra_cli.models.folder_files import read_json
from electra_cli.models.folders import encoder_folder, load_encoder, write_folder
from electra_cli.settings_protocols import PROTOCOLS

MARK = "fine_tuned.json"
"""The file by which such a folder is known."""
HEAD = "head.safetensors"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class FineTunedFacts:
    """What a fine-tuned model is."""

    task: Task
    scale: tuple[float, float]
    """Lowest and highest score, for a regression task."""
    sequence_length: int
    seed: int
    value: float | None
    """Its dev score, on the task's headline metric."""
    protocol: str
    """The conventions it was fine-tuned by, which say what its head is."""
    key: str
    """Identifies the runs it is the best of: model, data and settings, not the seed."""


@dataclass(frozen=True)
class FineTuned:
    """A loaded fine-tuned model."""

    classifier: Classifier
    facts: FineTunedFacts
    folder: Path


def save_fine_tuned(folder: Path, classifier: Classifier, facts: FineTunedFacts, tokenizer: Path) -> None:
    """Write `folder` in one step, replacing an older one; `tokenizer` is where the tokenizer files are."""
    task = facts.task
    content = encoder_folder(classifier.encoder)
    labels: dict[str, object] = {}
    if not task.is_regression:
        labels["id2label"] = {str(number): name for number, name in enumerate(task.classes)}
        labels["label2id"] = {name: number for number, name in enumerate(task.classes)}
    head = {
        name: value.detach().to("cpu", torch.float32).contiguous()
        for name, value in classifier.head.state_dict().items()
    }
    with durable.writing_folder(folder, replace=True) as fresh:
        write_folder(fresh, replace(content, config=dict(content.config) | labels))
        durable.write_bytes(fresh / HEAD, safetensors.torch.save(head, metadata={"format": "pt"}))
        for name in TOKENIZER_FILES:
            if (tokenizer / name).is_file():
                durable.write_bytes(fresh / name, (tokenizer / name).read_bytes())
        durable.write_json(fresh / MARK, _as_json(facts))


def _as_json(facts: FineTunedFacts) -> dict[str, object]:
    task = facts.task
    return {
        "format": _FORMAT,
        "task": task.name,
        "title": task.title,
        "metric": task.metric,
        "classes": list(task.classes),
        "positive": task.positive,
        "is_regression": task.is_regression,
        "score_range": list(facts.scale),
        "text": list(task.text),
        "pair": list(task.pair),
        "sequence_length": facts.sequence_length,
        "seed": facts.seed,
        "value": facts.value,
        "protocol": facts.protocol,
        "key": facts.key,
    }


def read_facts(folder: Path) -> FineTunedFacts:
    """What a folder holds; InputError where it is no fine-tuned model, CorruptError where it is damaged."""
    path = folder / MARK
    if not path.is_file():
        raise InputError(
            f"{folder} is no fine-tuned model: it has no {MARK}",
            path=folder,
            hint="electra eval-glue --task NAME --save-model keeps one",
        )
    content = read_json(path)
    try:
        return _facts(content)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"{path} is not what electra wrote: {error!r}", path=path) from error


def _facts(content: Mapping[str, object]) -> FineTunedFacts:
    low, high = _strings_or_numbers(content["score_range"])
    value, seed, length = content["value"], content["seed"], content["sequence_length"]
    if not isinstance(seed, int) or not isinstance(length, int):
        raise TypeError("seed and sequence_length are whole numbers")
    if value is not None and not isinstance(value, int | float):
        raise TypeError("value is a number")
    name = str(content["task"])
    known = BUILTIN.get(name)
    protocol = str(content["protocol"])
    if protocol not in PROTOCOLS:
        raise ValueError(f"there is no protocol {protocol!r}")
    task = Task(
        name=name,
        title=str(content["title"]),
        metric=str(content["metric"]),
        text=tuple(map(str, _strings_or_numbers(content["text"]))),
        pair=tuple(map(str, _strings_or_numbers(content["pair"]))),
        labels=tuple(map(str, _strings_or_numbers(content["classes"]))),
        positive=str(content["positive"]),
        is_regression=bool(content["is_regression"]),
        headerless=known.headerless if known is not None else (),
        source=("source",) if known is None else known.source,
    )
    return FineTunedFacts(
        task=task,
        scale=(float(low), float(high)),
        sequence_length=length,
        seed=seed,
        value=None if value is None else float(value),
        protocol=protocol,
        key=str(content["key"]),
    )


def _strings_or_numbers(value: object) -> list[str | float]:
    if not isinstance(value, list) or not all(isinstance(one, str | float | int) for one in value):
        raise TypeError(f"{value!r} is no list of texts or numbers")
    return value


def load_fine_tuned(folder: Path) -> FineTuned:
    """The model with its head, for answering; raises as `read_facts` and `load_encoder` do."""
    facts = read_facts(folder)
    encoder = load_encoder(folder, dropout=0.0).encoder
    head_name = PROTOCOLS[facts.protocol].head
    classifier = Classifier(encoder, num_outputs_of(facts.task), 0.0, head_name)
    path = folder / HEAD
    try:
        head = safetensors.torch.load_file(path)
        classifier.head.load_state_dict(head)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", path=path) from error
    except (SafetensorError, RuntimeError) as error:
        raise CorruptError(f"{path} is damaged: {error}", path=path) from error
    return FineTuned(classifier, facts, folder)
