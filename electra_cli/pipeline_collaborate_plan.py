"""Before anything is asked: rows, the encoder's answers, examples, threshold, and so every question."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from electra_cli.collaboration.answers import EncoderAnswers
from electra_cli.collaboration.cascade import budget_threshold, quantile_threshold
from electra_cli.collaboration.ledger import refuse_foreign
from electra_cli.collaboration.prompts import STRATEGIES, Example, Wording
from electra_cli.collaboration.retrieval import nearest
from electra_cli.collaboration.strategies import Plan, Task, plan
from electra_cli.errors import InputError, UsageError
from electra_cli.pipeline_collaborate_data import (
    ColumnNames,
    Data,
    Encoder,
    open_encoder,
    read_data,
    split_place,
)
from electra_cli.progress import Progress, counted
from electra_cli.project import Project

PROMPT_VERSION = 1
"""Changes with the words of the prompts, so that earlier answers are not taken for answers to new ones."""


@dataclass(frozen=True, kw_only=True)
class CollaborateRequest:
    """Flags of collaborate on the wire."""

    data: Path
    encoder: str
    """A fine-tuned folder, `FILE` or `FILE:COLUMN`."""
    validation: str = ""
    examples: Path | None = None
    """Training data that examples are taken from."""
    classes: tuple[str, ...] = ()
    """Where neither the encoder nor the labels of the data name them all."""
    text: str = ""
    label: str = ""
    out: Path | None = None
    limit: int = 0
    max_usd: float | None = None
    may_upload: bool = False
    force: bool = False
    reference: str = ""


@dataclass(frozen=True, kw_only=True)
class Work:
    """All that is known before anything is sent."""

    data: Data
    answers: EncoderAnswers
    task: Task
    plans: tuple[Plan, ...]
    facts: Mapping[str, object]
    folder: Path


def prepare(project: Project, request: CollaborateRequest, progress: Progress) -> Work:
    """Everything that needs no endpoint: data, the encoder's answers, the questions."""
    settings = project.settings.collaborate
    encoder = open_encoder(request.encoder, project)
    folder = request.out or project.evaluate_dir / "collaborate" / encoder.name
    refuse_foreign(folder)
    data = read_rows(request, encoder, request.data)
    if data.num_skipped:
        left = counted(data.num_skipped, "row")
        progress.message(f"{left} of {data.path} left out: no gold label, or beyond --limit")
    answers = encoder.answers(data)
    wording = wording_of(project, data)
    facts: dict[str, object] = {
        "prompts": PROMPT_VERSION,
        "encoder": answers.sha256,
        "classes": list(answers.classes),
        "wording": f"{wording.quality} of a {wording.noun}",
        "prompt": settings.prompt,
        "model": settings.model,
        "endpoint": settings.base_url,
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "constrain": settings.constrain,
    }
    task = Task(
        rows=data.rows,
        encoder=answers,
        wording=wording,
        way=settings.prompt,
        examples=_examples(project, request, encoder, data, progress),
        sha256=hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
    )
    threshold = _threshold(project, request, encoder, answers) if "cascade" in settings.strategies else 0.0
    return Work(
        data=data,
        answers=answers,
        task=task,
        plans=tuple(plan(task, name, settings, threshold) for name in dict.fromkeys(settings.strategies)),
        facts=facts,
        folder=folder,
    )


def read_rows(
    request: CollaborateRequest, encoder: Encoder | None, path: Path, *, limit: bool = True
) -> Data:
    """A file with the encoder's columns and classes, or those that the flags name."""
    columns = encoder.columns if encoder is not None else ColumnNames()
    if request.text:
        columns = replace(columns, text=(request.text,))
    if request.label:
        columns = replace(columns, label=(request.label,))
    classes = (encoder.classes if encoder is not None else ()) or request.classes
    return read_data(path, columns, classes, limit=request.limit if limit else 0)


def wording_of(project: Project, data: Data) -> Wording:
    """The project's nouns, the data's classes."""
    settings = project.settings.collaborate
    return Wording(
        classes=data.classes,
        noun=settings.noun,
        quality=settings.quality,
        is_pair=data.rows.pairs is not None,
    )


def _threshold(
    project: Project, request: CollaborateRequest, encoder: Encoder, answers: EncoderAnswers
) -> float:
    """The cascade's threshold: as set, or for a budget of calls, or by validation data."""
    settings = project.settings.collaborate
    if settings.threshold:
        return settings.threshold
    if settings.budget:
        return budget_threshold(answers.confidence_N, settings.budget)
    if not request.validation:
        raise UsageError(
            "a cascade by quantile needs the encoder's answers on validation data",
            hint="--validation FILE, or -s collaborate.budget=CALLS, or -s collaborate.threshold=P",
        )
    path, column = split_place(request.validation)
    if column:
        encoder = open_encoder(request.validation, project)
        recorded = encoder.answers(read_rows(request, encoder, path, limit=False))
        return quantile_threshold(recorded.confidence_N, settings.quantile)
    data = read_rows(request, encoder, path, limit=False)
    return quantile_threshold(encoder.answers(data).confidence_N, settings.quantile)


def _examples(
    project: Project, request: CollaborateRequest, encoder: Encoder, data: Data, progress: Progress
) -> dict[str, Sequence[tuple[Example, ...]]]:
    """Training examples near each row, for the strategies that show any."""
    settings = project.settings.collaborate
    names = [settings.inside if name == "cascade" else name for name in settings.strategies]
    kinds = {STRATEGIES[name].examples for name in names} - {""}
    if not kinds:
        return {}
    if request.examples is None:
        raise UsageError(
            "these strategies show examples, which come from training data only", hint="--examples TRAIN-FILE"
        )
    if encoder.states is None:
        raise InputError(
            f"{encoder.name} is a recording without hidden states, by which examples are found",
            hint="--encoder takes a folder that electra eval-glue --save-model wrote",
        )
    train = read_rows(request, encoder, request.examples, limit=False)
    if not train.rows.is_labelled or train.sha256 == data.sha256:
        why = "is the data to classify" if train.sha256 == data.sha256 else "has no labels"
        raise InputError(f"--examples {request.examples} {why}", path=request.examples)
    asked = set(data.rows.texts)
    clean = [n for n, text in enumerate(train.rows.texts) if text not in asked]
    if not clean:
        raise InputError(
            f"every text of --examples {request.examples} is also to be classified", path=request.examples
        )
    if len(clean) < len(train.rows):
        progress.message(
            f"{counted(len(train.rows) - len(clean), 'example')} left out: also to be classified"
        )
    states, example_states = encoder.states(data), encoder.states(train)[clean]
    gold_N = train.rows.gold_N[clean]
    every = range(len(clean))
    by_class = [[n for n in every if gold_N[n] == c] for c in range(len(data.classes))]
    groups: Mapping[str, tuple[Sequence[Sequence[int]], int]] = {
        "nearest": ([every], settings.num_examples),
        "balanced": (by_class, settings.examples_per_class),
    }
    pairs = train.rows.pairs
    shown = [
        Example(train.rows.texts[n], None if pairs is None else pairs[n], data.classes[train.rows.gold_N[n]])
        for n in clean
    ]
    return {
        kind: [
            tuple(shown[number] for number in numbers)
            for numbers in nearest(states, example_states, *groups[kind])
        ]
        for kind in kinds
    }
