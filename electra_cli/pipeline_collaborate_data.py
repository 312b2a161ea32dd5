"""What a collaboration reads: rows, recorded columns, an encoder's answers from a folder or a file."""

# N rows, C classes

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from electra_cli import durable
from electra_cli.collaboration.answers import NO_GOLD, EncoderAnswers, Labels, Rows, Shares, States
from electra_cli.errors import InputError
from electra_cli.evaluation.answers_file import ENDING, read_answers
from electra_cli.evaluation.examples import Examples, bad_rows_error
from electra_cli.evaluation.tables import BadRow, Columns, Row, Table, column_names, open_table
from electra_cli.evaluation.tasks import GLUE, NO_GOLD_LABEL
from electra_cli.project import Project

TEXT_NAMES = ("text", "sentence", "review")
LABEL_NAMES = ("label", "gold_label", "gold")
NO_LABEL = (*NO_GOLD_LABEL, "mixed", "")
"""Labels of rows on which the annotators did not agree, unless they are classes."""
_MOST_OFF_ONE = 0.01


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """The columns of a data file; empty: the encoder's, or the usual ones."""

    text: tuple[str, ...] = TEXT_NAMES
    pair: tuple[str, ...] = ()
    label: tuple[str, ...] = LABEL_NAMES
    numbered: tuple[str, ...] = ()
    """Classes in the order in which a file may number them, where it is not the sorted one."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """A read file."""

    path: Path
    rows: Rows
    classes: tuple[str, ...]
    sha256: str
    position_N: Labels
    """Place of each row in the file."""
    num_in_file: int

    @property
    def num_skipped(self) -> int:
        """Rows left out for want of a gold label, or beyond the limit."""
        return self.num_in_file - len(self.rows)


def _kept_rows(table: Table) -> list[Row]:
    rows: list[Row] = []
    bad: list[BadRow] = []
    for row in table.rows:
        if isinstance(row, Row):
            rows.append(row)
        else:
            bad.append(row)
    if bad:
        # Recordings and data must keep their rows in step, so none may be left out.
        raise bad_rows_error(str(table.path), bad, "correct the file")
    if not rows:
        raise InputError(f"{table.path} holds no row", path=table.path)
    return rows


def read_column(path: Path, name: str) -> list[str]:
    """One column of a .csv, .tsv, .jsonl or .parquet file, which may be compressed with gzip."""
    return [row.text for row in _kept_rows(open_table(path, Columns(text=(name,), pair=(), label=())))]


def _sources(path: Path, count: int) -> tuple[str, ...]:
    try:
        sources = read_column(path, "source")
    except InputError:
        # A file without that column has no scores by source.
        return ("",) * count
    return tuple(sources)


def read_data(path: Path, columns: ColumnNames, classes: tuple[str, ...] = (), *, limit: int = 0) -> Data:
    """Rows of a file, with gold labels where it has them.

    `classes` are the encoder's; without any they are the labels of the file, sorted. InputError names both
    sets where the file has other labels than the encoder.
    """
    table = open_table(path, Columns(text=columns.text, pair=columns.pair, label=columns.label))
    rows = _kept_rows(table)
    sources = _sources(path, len(rows))
    # A class may bear a name that usually says that there is none.
    absent = [mark for mark in NO_LABEL if mark not in classes]
    labels = [None if row.label is None or row.label.strip() in absent else row.label.strip() for row in rows]
    is_labelled = any(label is not None for label in labels)
    chosen = [n for n, label in enumerate(labels) if label is not None or not is_labelled]
    chosen = chosen[: limit or None]
    named = [labels[n] for n in chosen]
    classes, gold_N = _numbered(path, named, classes, columns.numbered)
    kept = Rows(
        texts=tuple(rows[n].text for n in chosen),
        pairs=tuple(rows[n].pair or "" for n in chosen) if columns.pair else None,
        gold_N=gold_N,
        indices=tuple(str(n) if (index := rows[n].index) is None else index for n in chosen),
        sources=tuple(sources[n] for n in chosen),
    )
    return Data(
        path=path,
        rows=kept,
        classes=classes,
        sha256=durable.sha256_file(path),
        position_N=np.array(chosen, dtype=np.int64),
        num_in_file=len(rows),
    )


def _numbered(
    path: Path, labels: Sequence[str | None], classes: tuple[str, ...], numbered: tuple[str, ...]
) -> tuple[tuple[str, ...], Labels]:
    """The classes, and each label as a class number."""
    names = sorted({label for label in labels if label is not None})
    known = classes or tuple(names)
    number_of = {name: number for number, name in enumerate(known)}
    if names and not set(names) <= set(known):
        order = numbered or known
        if not all(name.isascii() and name.isdigit() and int(name) < len(order) for name in names):
            raise InputError(
                f"{path} and the encoder have different label sets\n"
                f"  in the file: {', '.join(names[:12])}\n  the encoder's: {', '.join(known[:12])}",
                path=path,
                hint="name the column of the labels with --label, or take the encoder of this task",
            )
        number_of = {str(place): known.index(name) for place, name in enumerate(order)}
    return known, np.array([NO_GOLD if label is None else number_of[label] for label in labels])


def split_place(spec: str) -> tuple[Path, str]:
    """`FILE:COLUMN` as file and column, where the column may hold colons; `FILE` alone has no column."""
    parts = spec.split(":")
    for end in range(len(parts), 0, -1):
        path = Path(":".join(parts[:end]))
        if path.exists():
            return path, ":".join(parts[end:])
    raise InputError(
        f"there is no file or folder {parts[0]}",
        path=parts[0],
        hint="FILE or FILE:COLUMN; an encoder may be a folder that electra eval-glue --save-model wrote",
    )


def recorded_encoder(path: Path, column: str, classes: tuple[str, ...], name: str = "") -> EncoderAnswers:
    """An encoder's answers from a file: one column of probabilities with blanks between them, in the order of
    the classes; without a column, the columns `p:CLASS` that `electra eval-glue --predict` writes.

    InputError for rows that are no distribution over the classes.
    """
    if not classes:
        raise InputError(
            f"nothing says which classes the probabilities of {path} are of",
            path=path,
            hint="--classes NAME,NAME in their order, or data with labels",
        )
    if column:
        values = [text.split() for text in read_column(path, column)]
    else:
        values = [list(line) for line in zip(*(read_column(path, f"p:{c}") for c in classes), strict=True)]
    probability_NC = _distributions(path, values, classes)
    return EncoderAnswers(
        name=name or column or path.name.partition(".")[0],
        classes=classes,
        probability_NC=probability_NC,
        sha256=f"{durable.sha256_file(path)} {column}".strip(),
    )


def _distributions(path: Path, values: Sequence[Sequence[str]], classes: tuple[str, ...]) -> Shares:
    for number, line in enumerate(values):
        if len(line) != len(classes):
            raise InputError(
                f"{path}: row {number} holds {len(line)} probabilities; there are {len(classes)} classes: "
                f"{', '.join(classes)}",
                path=path,
            )
    try:
        probability_NC = np.array(values, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{path} holds a probability that is no number: {error}", path=path) from error
    is_bad_N = ~(
        np.isfinite(probability_NC).all(1)
        & (probability_NC >= 0).all(1)
        & (np.abs(probability_NC.sum(1) - 1) < _MOST_OFF_ONE)
    )
    if is_bad_N.any():
        number = int(is_bad_N.argmax())
        raise InputError(
            f"{path}: row {number} is no distribution: {' '.join(values[number])}",
            path=path,
            hint="each row needs probabilities from 0 to 1 whose sum is 1",
        )
    return probability_NC


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Whoever knows an encoder's answers."""

    name: str
    classes: tuple[str, ...]
    columns: ColumnNames
    answers: Callable[[Data], EncoderAnswers]
    states: Callable[[Data], States] | None
    """`None`: only answers are recorded, no hidden states."""


def open_encoder(spec: str, project: Project) -> Encoder:
    """The encoder of `--encoder`: a folder that `eval-glue --save-model` wrote, or recorded answers."""
    path, column = split_place(spec)
    if not path.is_dir():
        return _recorded(path, column)
    from electra_cli.evaluation.glue import arithmetic_of
    from electra_cli.evaluation.predict import predict
    from electra_cli.evaluation.saved import load_fine_tuned
    from electra_cli.evaluation.subject import folder_sha256

    model, arithmetic = load_fine_tuned(path), arithmetic_of(project)
    task = model.facts.task
    if task.is_regression:
        raise InputError(f"{path} gives scores, not classes", path=path, hint="collaborate needs classes")
    known = GLUE.get(task.name)
    columns = ColumnNames(
        text=(*task.text, *TEXT_NAMES),
        pair=task.pair,
        label=(*task.label, *LABEL_NAMES),
        numbered=known.labels if known is not None else (),
    )
    sha256 = folder_sha256(path)

    def answers(data: Data) -> EncoderAnswers:
        probability_NC = predict(model, _examples(data), arithmetic).probability_NC
        assert probability_NC is not None
        return EncoderAnswers(
            name=path.name, classes=task.classes, probability_NC=probability_NC, sha256=sha256
        )

    def states(data: Data) -> States:
        state_ND = predict(model, _examples(data), arithmetic, with_states=True).state_ND
        assert state_ND is not None
        return state_ND

    return Encoder(
        name=path.name,
        classes=task.classes,
        columns=columns,
        answers=answers,
        states=states,
    )


def _recorded(path: Path, column: str) -> Encoder:
    def answers(data: Data) -> EncoderAnswers:
        recorded = recorded_encoder(path, column, data.classes)
        check_length(path, len(recorded.probability_NC), data)
        return replace(recorded, probability_NC=recorded.probability_NC[data.position_N])

    if path.name.endswith(ENDING):
        return _kept(path)
    # The columns of `electra eval-glue --predict`.
    named = [name.removeprefix("p:") for name in column_names(path) if name.startswith("p:")]
    return Encoder(
        name=column or path.name.partition(".")[0],
        classes=() if column else tuple(sorted(named)),
        columns=ColumnNames(),
        answers=answers,
        states=None,
    )


def _kept(path: Path) -> Encoder:
    """The answers that an evaluation kept of a split."""
    kept = read_answers(path)

    def answers(data: Data) -> EncoderAnswers:
        # An evaluation skips rows without a gold label, as reading the data does.
        is_of_rows = len(kept) == len(data.rows)
        if not is_of_rows:
            check_length(path, len(kept), data)
        place_N = np.arange(len(kept)) if is_of_rows else data.position_N
        return EncoderAnswers(
            name=path.name.removesuffix(ENDING),
            classes=kept.classes,
            probability_NC=kept.probability_NC[place_N].astype(np.float64),
            sha256=durable.sha256_file(path),
        )

    return Encoder(
        name=path.name.removesuffix(ENDING),
        classes=kept.classes,
        columns=ColumnNames(),
        answers=answers,
        states=None,
    )


def check_length(path: Path, count: int, data: Data) -> None:
    """Raise InputError where a recording has another number of rows than the data that it is of."""
    if count != data.num_in_file:
        raise InputError(
            f"{path} has {count:,} rows, {data.path} {data.num_in_file:,}",
            path=path,
            hint="the two files must have the same rows in the same order",
        )


def _examples(data: Data) -> Examples:
    return Examples(
        source=str(data.path),
        texts=data.rows.texts,
        pairs=data.rows.pairs,
        target_N=None,
        indices=data.rows.indices,
        skipped={},
    )
