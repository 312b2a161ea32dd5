"""Each strategy as questions about rows, and the answers as its outcome."""

# N rows

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from electra_cli.collaboration.answers import Answer, EncoderAnswers, Outcome, Rows
from electra_cli.collaboration.asking import Question
from electra_cli.collaboration.cascade import below
from electra_cli.collaboration.prompts import STRATEGIES, Example, Row, Way, Wording, messages_of
from electra_cli.settings_collaborate import Collaborate


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A strategy, and the rows that it asks about."""

    name: str
    strategy: str
    threshold: float | None
    asked: tuple[int, ...]
    questions: tuple[Question, ...]
    """One for each row asked."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """All that questions are made of."""

    rows: Rows
    encoder: EncoderAnswers
    wording: Wording
    way: Way
    examples: Mapping[str, Sequence[tuple[Example, ...]]]
    """For each kind of retrieval (`nearest`, `balanced`) the examples of every row."""
    sha256: str
    """Hash of what an answer follows from beside the question itself."""


def plan(task: Task, name: str, settings: Collaborate, threshold: float) -> Plan:
    """What `name` asks; `threshold` is a cascade's."""
    is_cascade = name == "cascade"
    inner = settings.inside if is_cascade else name
    asked: Sequence[int] = range(len(task.rows))
    if is_cascade:
        asked = np.flatnonzero(below(task.encoder.confidence_N, threshold)).tolist()
    return Plan(
        name=name,
        strategy=inner,
        threshold=threshold if is_cascade else None,
        asked=tuple(asked),
        questions=tuple(question(task, inner, number) for number in asked),
    )


def question(task: Task, strategy: str, number: int) -> Question:
    """What is asked about one row."""
    chosen = STRATEGIES[strategy]
    encoder, rows = task.encoder, task.rows
    row = Row(
        text=rows.texts[number],
        pair=None if rows.pairs is None else rows.pairs[number],
        label=encoder.classes[int(encoder.probability_NC[number].argmax())],
        probabilities=tuple(map(float, encoder.probability_NC[number])),
        examples=task.examples[chosen.examples][number] if chosen.examples else (),
    )
    messages = messages_of(chosen, task.wording, row, task.way)
    written = json.dumps([task.sha256, *((message.role, message.content) for message in messages)])
    return Question(hashlib.sha256(written.encode()).hexdigest(), messages)


def outcome(plan: Plan, answers: Sequence[Answer], encoder: EncoderAnswers, *, is_priced: bool) -> Outcome:
    """The labels of a strategy: the model's where it answered, the encoder's everywhere else."""
    label_N = encoder.label_N.copy()
    status_N = np.full(len(label_N), "encoder", dtype="<U8")
    for number, answer in zip(plan.asked, answers, strict=True):
        status_N[number] = "fallback" if answer.label is None else "label"
        if answer.label is not None:
            label_N[number] = answer.label
    reasons = Counter(answer.reason for answer in answers if answer.label is None)
    return Outcome(
        name=plan.name,
        label_N=label_N,
        status_N=status_N,
        is_hinted=STRATEGIES[plan.strategy].is_hinted,
        threshold=plan.threshold,
        inside=plan.strategy if plan.threshold is not None else "",
        encoder=encoder.name,
        reasons=tuple(sorted(reasons.items())),
        input_tokens=sum(answer.input_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        usd=sum(answer.usd for answer in answers) if is_priced else None,
    )
