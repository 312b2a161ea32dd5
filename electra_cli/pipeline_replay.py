"""A published collaboration checked from its recorded answers: no key, no network, no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from electra_cli import durable
from electra_cli.collaboration.answers import EncoderAnswers, Labels, Outcome, encoder_outcome
from electra_cli.collaboration.cascade import Curve, cascade_of, curve, quantile_threshold
from electra_cli.collaboration.ledger import refuse_foreign
from electra_cli.errors import InputError, UsageError
from electra_cli.pipeline_collaborate_data import (
    ColumnNames,
    Data,
    check_length,
    read_column,
    read_data,
    recorded_encoder,
    split_place,
)
from electra_cli.pipeline_collaborate_report import CollaborationReport, finish
from electra_cli.project import Project


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """Flags of a replay. A column may be given as `NAME=COLUMN`, to be called NAME in the results."""

    file: Path
    columns: tuple[str, ...]
    """Recorded answers of models alone; a cascade asks these."""
    encoder_columns: tuple[str, ...]
    validation: tuple[str, ...]
    """`FILE:COLUMN` with each encoder's answers on validation data, in the order of the encoders."""
    compare: tuple[str, ...] = ()
    """Recorded answers that are scored as they are."""
    quantiles: tuple[float, ...] = ()
    """Empty: the project's."""
    data: Path | None = None
    """The rows that the answers are of, for gold labels and sources; without it, the file's `gold`."""
    out: Path | None = None
    reference: str = ""


def replay(project: Project, request: ReplayRequest) -> CollaborationReport:
    """Score recorded answers and the cascades of them; InputError for files that do not fit together."""
    is_paired = len(request.validation) in (0, len(request.encoder_columns))
    if not (request.columns and request.encoder_columns and is_paired):
        raise UsageError(
            "a replay needs --replay-column, --encoder-column, and none or a --validation for each encoder",
            hint="electra collaborate --replay FILE --replay-column COLUMN --encoder-column COLUMN "
            "--validation FILE:COLUMN",
        )
    folder = request.out or project.evaluate_dir / "collaborate" / request.file.name.partition(".")[0]
    refuse_foreign(folder)
    data = _rows(request)
    encoders = [
        _renamed(recorded_encoder(request.file, column, data.classes), name, data)
        for name, column in map(_named, request.encoder_columns)
    ]
    models = [_recorded(request.file, spec, data, encoders) for spec in request.columns]
    compared = [_recorded(request.file, spec, data, encoders) for spec in request.compare]
    outcomes = [encoder_outcome(encoder.name, encoder) for encoder in encoders] + models + compared
    quantiles = request.quantiles or (project.settings.collaborate.quantile,)
    curves: list[Curve] = []
    for encoder, place in zip(encoders, request.validation, strict=False):
        path, column = split_place(place)
        confidence_V = recorded_encoder(path, column, data.classes).confidence_N
        for model in models:
            for quantile in quantiles:
                threshold = quantile_threshold(confidence_V, quantile)
                name = f"{encoder.name} {100 * quantile:g} % → {model.name}"
                outcomes.append(cascade_of(model, encoder, threshold, name))
            curves.append(curve(f"{encoder.name} → {model.name}", data.rows.gold_N, encoder, model))
    facts = {
        "replay": {"source": str(request.file), "sha256": durable.sha256_file(request.file)},
        "data": {"source": str(data.path), "sha256": data.sha256},
    }
    alone = {encoders[0].name: models[0]} if len(encoders) == 1 else {}
    reference = request.reference or outcomes[0].name
    with durable.locked(folder, "electra collaborate", private=True):
        return finish(project, folder, data.rows, outcomes, encoders, curves, alone, facts, reference)


def _named(spec: str) -> tuple[str, str]:
    name, is_given, column = spec.partition("=")
    return (name, column) if is_given else (spec, spec)


def _rows(request: ReplayRequest) -> Data:
    recorded = read_data(request.file, ColumnNames(text=("gold",), label=("gold",)))
    if request.data is None:
        return recorded
    data = read_data(request.data, ColumnNames())
    check_length(request.file, recorded.num_in_file, data)
    gold_N = _class_numbers(request.file, "gold", data)
    if (gold_N != data.rows.gold_N).any():
        number = int((gold_N != data.rows.gold_N).argmax())
        there, here = (data.classes[int(labels[number])] for labels in (gold_N, data.rows.gold_N))
        raise InputError(
            f"row {number} has the gold label {there} in {request.file}, {here} in {request.data}",
            path=request.data,
            hint="the two files must have the same rows in the same order",
        )
    return data


def _class_numbers(path: Path, column: str, data: Data) -> Labels:
    """A column of class names, or of their numbers, for the rows of the data."""
    texts = [text.strip() for text in read_column(path, column)]
    check_length(path, len(texts), data)
    numbers = {name: number for number, name in enumerate(data.classes)}
    numbers |= {str(number): number for number in range(len(data.classes)) if str(number) not in numbers}
    unknown = sorted(set(texts) - set(numbers))
    if unknown:
        raise InputError(
            f"column {column} of {path} and the data have different label sets\n"
            f"  in the column: {', '.join(unknown[:12])}\n  in the data: {', '.join(data.classes[:12])}",
            path=path,
        )
    return np.array([numbers[text] for text in texts])[data.position_N]


def _renamed(encoder: EncoderAnswers, name: str, data: Data) -> EncoderAnswers:
    check_length(data.path, len(encoder.probability_NC), data)
    return EncoderAnswers(
        name=name,
        classes=encoder.classes,
        probability_NC=encoder.probability_NC[data.position_N],
        sha256=encoder.sha256,
    )


def _recorded(path: Path, spec: str, data: Data, encoders: Sequence[EncoderAnswers]) -> Outcome:
    """Recorded answers as a strategy that asked about every row."""
    name, column = _named(spec)
    label_N = _class_numbers(path, column, data)
    # Which encoder's hint a recording saw is known only where there is one.
    encoder = encoders[0].name if len(encoders) == 1 else ""
    return Outcome(
        name=name,
        label_N=label_N,
        status_N=np.full(len(label_N), "label"),
        is_hinted=len(encoders) == 1,
        encoder=encoder,
    )
