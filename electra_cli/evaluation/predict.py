"""Answers of a fine-tuned model to any file of its task's layout."""

# N examples, C classes, D hidden

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from electra_cli import durable
from electra_cli.evaluation.answers_file import ENDING, StoredAnswers, write_answers
from electra_cli.evaluation.encoding import encode, load_text_encoder
from electra_cli.evaluation.examples import Examples
from electra_cli.evaluation.finetune import answer, read
from electra_cli.evaluation.judge import predictions
from electra_cli.evaluation.precision import Arithmetic
from electra_cli.evaluation.saved import FineTuned
from electra_cli.evaluation.sources import load_texts
from electra_cli.evaluation.tasks import Task
from electra_cli.settings_protocols import PROTOCOLS


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a model says to a file, in its order."""

    examples: Examples
    names: tuple[str, ...]
    """The predicted class, or the score with three decimals."""
    classes: tuple[str, ...]
    """Empty for scores."""
    probability_NC: NDArray[np.float64] | None
    state_ND: NDArray[np.float32] | None = None
    """Mean of the last hidden states of each example over its real tokens, where asked for."""

    def stored(self, *, task: str, split: str, model: str, labels: Sequence[str] = ()) -> StoredAnswers:
        """In the form that is kept on disk; `labels`: the true ones, where they are known."""
        number = len(self.examples)
        assert self.state_ND is not None
        no_probability_NC = np.empty((number, 0), dtype=np.float64)
        probability_NC = no_probability_NC if self.probability_NC is None else self.probability_NC
        return StoredAnswers(
            task=task,
            split=split,
            classes=self.classes,
            examples_sha256=self.examples.sha256,
            model=model,
            indices=self.examples.indices,
            sources=self.examples.sources or ("",) * number,
            labels=tuple(labels) or ("",) * number,
            predictions=self.names,
            probability_NC=probability_NC.astype(np.float32),
            state_ND=self.state_ND,
        )


def predict(
    model: FineTuned, examples: Examples, arithmetic: Arithmetic, *, with_states: bool = False
) -> Answers:
    """Answer every example; `with_states`: also its pooled hidden state."""
    encoder = load_text_encoder(model.folder)
    model.classifier.to(arithmetic.device)
    encoded = encode(examples, encoder, model.facts.sequence_length)
    if not with_states:
        output_NC = answer(model.classifier, encoded, arithmetic)
        return answers_of(model.facts.task, model.facts.scale, examples, output_NC)
    reading = read(model.classifier, encoded, arithmetic)
    answers = answers_of(model.facts.task, model.facts.scale, examples, reading.output_NC)
    return replace(answers, state_ND=reading.state_ND)


def answers_of(
    task: Task, scale: tuple[float, float], examples: Examples, output_NC: NDArray[np.float32]
) -> Answers:
    """A classifier's outputs for the examples as answers."""
    value_N = predictions(task, output_NC, scale)
    if task.is_regression:
        low, high = scale
        names = tuple(f"{value:.3f}" for value in np.clip(value_N, low, high))
        return Answers(examples=examples, names=names, classes=(), probability_NC=None)
    shifted_NC = output_NC.astype(np.float64) - output_NC.max(1, keepdims=True)
    weight_NC = np.exp(shifted_NC)
    return Answers(
        examples=examples,
        names=tuple(task.classes[int(value)] for value in value_N),
        classes=task.classes,
        probability_NC=weight_NC / weight_NC.sum(1, keepdims=True),
    )


def labels_of(task: Task, examples: Examples) -> tuple[str, ...]:
    """The true classes or scores as text; empty without labels."""
    if examples.target_N is None:
        return ()
    if task.is_regression:
        return tuple(f"{value:.3f}" for value in examples.target_N)
    return tuple(task.classes[int(value)] for value in examples.target_N)


def predict_file(
    model: FineTuned, path: Path, out: Path, arithmetic: Arithmetic, *, skip_bad: bool = False
) -> Answers:
    """Answer the rows of `path` and write `out`, tab-separated: index, prediction, a probability a class.

    A protocol that keeps answers writes them beside it, in an Arrow file of the same name.
    """
    facts = model.facts
    keeps_answers = PROTOCOLS[facts.protocol].keeps_answers
    examples = load_texts(facts.task, path, skip_bad=skip_bad)
    answers = predict(model, examples, arithmetic, with_states=keeps_answers)
    if keeps_answers:
        stored = answers.stored(task=facts.task.name, split=path.name, model=facts.key)
        write_answers(out.with_suffix(ENDING), stored)
    header = ["index", "prediction", *(f"p:{name}" for name in answers.classes)]
    rows = [
        [_field(index), _field(name)]
        for index, name in zip(answers.examples.indices, answers.names, strict=True)
    ]
    if answers.probability_NC is not None:
        for row, probability_C in zip(rows, answers.probability_NC, strict=True):
            row += [f"{probability:.6f}" for probability in probability_C]
    write_tsv(out, header, rows)
    return answers


def write_tsv(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Tab-separated lines; the fields hold neither tab nor line end."""
    lines = ["\t".join(_field(cell) for cell in row) for row in (header, *rows)]
    durable.write_text(path, "\n".join(lines) + "\n")


def _field(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ").replace("\r", " ")
