"""What a fine-tuned encoder says to each example of a split, kept in one Arrow file.

Columns: `index`, `source`, `label`, `prediction` (names, or scores as text; empty where there is none),
`probabilities` (one a class, in the order of the schema's metadata) and `state` (the mean of the last hidden
states over the real tokens). `datasets.load_dataset("arrow", data_files=…)` opens it too.
"""

# N examples, C classes (0 for scores), D hidden

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from electra_cli import durable
from electra_cli.errors import CorruptError, InputError

ENDING = ".arrow"
_FORMAT = "electra-answers-1"
_TEXTS = ("index", "source", "label", "prediction")


@dataclass(frozen=True, kw_only=True)
class StoredAnswers:
    """Answers of one model to the examples of one split, in the split's order."""

    task: str
    split: str
    classes: tuple[str, ...]
    """Sorted; empty for scores."""
    examples_sha256: str
    """`Examples.sha256` of what was answered."""
    model: str
    """Identifies the model: the key of its run, or the hash of its folder."""
    indices: tuple[str, ...]
    sources: tuple[str, ...]
    labels: tuple[str, ...]
    predictions: tuple[str, ...]
    probability_NC: NDArray[np.float32]
    state_ND: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.indices)


def write_answers(path: Path, answers: StoredAnswers) -> None:
    """Write the file whole."""
    facts = {
        "format": _FORMAT,
        "task": answers.task,
        "split": answers.split,
        "classes": json.dumps(answers.classes, ensure_ascii=False),
        "examples_sha256": answers.examples_sha256,
        "model": answers.model,
    }
    texts = (answers.indices, answers.sources, answers.labels, answers.predictions)
    columns = [pa.array(column, pa.string()) for column in texts]
    columns += [_lists(answers.probability_NC), _lists(answers.state_ND)]
    table = pa.Table.from_arrays(columns, names=[*_TEXTS, "probabilities", "state"])
    table = table.replace_schema_metadata(facts)
    with (
        durable.writing(path) as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)


def _lists(value_NK: NDArray[np.float32]) -> pa.FixedSizeListArray:
    width = value_NK.shape[1]
    flat = pa.array(np.ascontiguousarray(value_NK, dtype=np.float32).reshape(-1), pa.float32())
    if width:
        return pa.FixedSizeListArray.from_arrays(flat, width)
    return pa.array([[]] * len(value_NK), pa.list_(pa.float32(), 0))


def read_answers(path: Path) -> StoredAnswers:
    """What `write_answers` wrote; InputError where there is no file, CorruptError for anything else."""
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
            return _stored(reader.read_all())
    except FileNotFoundError as error:
        raise InputError(f"there are no kept answers in {path}", path=path) from error
    except (OSError, pa.ArrowInvalid, KeyError, ValueError, TypeError) as error:
        raise CorruptError(
            f"{path} is not what electra wrote: {error}",
            path=path,
            hint="remove it; electra eval-glue makes it again",
        ) from error


def _stored(table: pa.Table) -> StoredAnswers:
    facts = {name.decode(): value.decode() for name, value in (table.schema.metadata or {}).items()}
    if facts["format"] != _FORMAT:
        raise ValueError(f"its format is {facts['format']!r}")
    indices, sources, labels, predictions = (
        tuple(map(str, table.column(name).to_pylist())) for name in _TEXTS
    )
    probability_NC = _matrix(table.column("probabilities"))
    classes = tuple(map(str, json.loads(facts["classes"])))
    if probability_NC.shape[1] != len(classes):
        raise ValueError(f"{probability_NC.shape[1]} probabilities for {len(classes)} classes")
    return StoredAnswers(
        task=facts["task"],
        split=facts["split"],
        classes=classes,
        examples_sha256=facts["examples_sha256"],
        model=facts["model"],
        indices=indices,
        sources=sources,
        labels=labels,
        predictions=predictions,
        probability_NC=probability_NC,
        state_ND=_matrix(table.column("state")),
    )


def _matrix(column: pa.ChunkedArray) -> NDArray[np.float32]:
    if not pa.types.is_fixed_size_list(column.type):
        raise TypeError(f"a column holds {column.type}")
    flat: Sequence[NDArray[np.float32]] = [chunk.flatten().to_numpy() for chunk in column.chunks]
    joined = np.concatenate([*flat, np.empty(0, dtype=np.float32)])
    return joined.astype(np.float32, copy=False).reshape(len(column), column.type.list_size)
