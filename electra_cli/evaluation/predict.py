"""Answers of a fine-tuned model to any file of its task's layout."""

# N examples, C classes

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from electra_cli import durable
from electra_cli.evaluation.encoding import encode, load_text_encoder
from electra_cli.evaluation.examples import Examples
from electra_cli.evaluation.finetune import answer
from electra_cli.evaluation.judge import predictions
from electra_cli.evaluation.precision import Arithmetic
from electra_cli.evaluation.saved import FineTuned
from electra_cli.evaluation.sources import load_texts


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a model says to a file, in its order."""

    examples: Examples
    names: tuple[str, ...]
    """The predicted class, or the score with three decimals."""
    classes: tuple[str, ...]
    """Empty for scores."""
    probability_NC: NDArray[np.float64] | None


def predict(model: FineTuned, examples: Examples, arithmetic: Arithmetic) -> Answers:
    """Answer every example."""
    task = model.facts.task
    encoder = load_text_encoder(model.folder)
    model.classifier.to(arithmetic.device)
    output_NC = answer(model.classifier, encode(examples, encoder, model.facts.sequence_length), arithmetic)
    value_N = predictions(task, output_NC, model.facts.scale)
    if task.is_regression:
        low, high = model.facts.scale
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


def predict_file(
    model: FineTuned, path: Path, out: Path, arithmetic: Arithmetic, *, skip_bad: bool = False
) -> Answers:
    """Answer the rows of `path` and write `out`, tab-separated: index, prediction, a probability a class."""
    answers = predict(model, load_texts(model.facts.task, path, skip_bad=skip_bad), arithmetic)
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
