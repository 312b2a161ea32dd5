"""Where a task's data lie: a folder of official files, the Hugging Face cache, or the Hub."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from electra_cli.evaluation.examples import Examples, merged, read_examples, with_labels_of
from electra_cli.evaluation.hub_tables import hub_table
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.remarks import remarks_on
from electra_cli.evaluation.sentiment import is_treebank, open_treebank, published_order
from electra_cli.evaluation.tables import Columns, Row, Table, open_table
from electra_cli.evaluation.task_files import SplitFiles, found_files, task_folder
from electra_cli.evaluation.tasks import Part, Role, Split, Task

Opened = Table | Mapping[Part, Table]
"""A split as one table, or one of each of its sources."""


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task with its examples."""

    task: Task
    """With its classes, also where the training file named them."""
    train: Examples
    dev: dict[str, Examples]
    """By the name of the score."""
    source: str
    remarks: tuple[str, ...] = ()
    """What a reader of the scores must know about the data."""

    @property
    def sha256(self) -> str:
        """Hash of what is trained on and scored."""
        return "+".join(examples.sha256 for examples in (self.train, *self.dev.values()))


def load_task(task: Task, place: Place, *, extra: Task | None = None) -> TaskData:
    """Train and dev examples of a task; `extra` adds the dev splits of another with the same classes (AX).

    Raises InputError where the data are on neither disk nor Hub, for a missing file of a folder that exists,
    and for unusable rows; CorruptError for damaged files.
    """
    opened = _open_splits(task, place, ("train", "dev"))
    if extra is not None:
        opened |= _open_splits(extra, place, ("dev",))
    train_split = next(split for split in task.splits if split.role == "train")
    train_table = opened[train_split]
    if not task.labels and not task.is_regression and isinstance(train_table, Table):
        task = with_labels_of(task, train_table)
        opened[train_split] = _open_splits(task, place, ("train",))[train_split]
    whole = {split: _read(task, tables, split.role, place) for split, tables in opened.items()}
    loaded = {split: examples.first(place.limit) for split, examples in whole.items()}
    dev = {split.result: examples for split, examples in loaded.items() if split.role == "dev"}
    return TaskData(
        task=task,
        train=loaded[train_split],
        dev=dev | _labelled_test(task, place),
        source=_source_of(task, place),
        remarks=remarks_on(whole),
    )


def _read(task: Task, opened: Opened, role: Role, place: Place) -> Examples:
    if isinstance(opened, Table):
        return read_examples(task, opened, role, skip_bad=place.skip_bad)
    parts = {
        part.source: read_examples(task, table, role, skip_bad=place.skip_bad)
        for part, table in opened.items()
    }
    return merged(parts, published_order(sum(len(examples) for examples in parts.values())))


def _labelled_test(task: Task, place: Place) -> dict[str, Examples]:
    """The test file of a task of one's own as one more scored split, where it has labels."""
    split = next((split for split in task.splits if split.role == "test" and split.path is not None), None)
    if split is None or split.path is None:
        return {}
    rows = open_table(split.path, columns_of(task)).rows
    if not any(isinstance(row, Row) and row.label not in (None, *task.skipped_labels) for row in rows):
        return {}
    table = open_table(split.path, columns_of(task))
    examples = read_examples(task, table, "dev", skip_bad=place.skip_bad).first(place.limit)
    return {f"{task.name}-test": examples}


def load_test(task: Task, place: Place) -> dict[Split, Examples]:
    """The official test files of a task, labels ignored; raises InputError where one is missing."""
    strict = replace(place, skip_bad=False)
    return {
        split: _read(task, opened, "test", strict)
        for split, opened in _open_splits(task, place, ("test",)).items()
    }


def load_texts(task: Task, path: Path, *, skip_bad: bool) -> Examples:
    """Any file with the task's text columns; labels ignored."""
    return read_examples(task, open_table(path, columns_of(task)), "test", skip_bad=skip_bad)


def columns_of(task: Task) -> Columns:
    """What to read of the task's files. GLUE's own files and the Hub's differ in a few names."""
    return Columns(
        text=task.text, pair=task.pair, label=task.label, source=task.source, headerless=task.headerless
    )


def _source_of(task: Task, place: Place) -> str:
    if any(split.path is not None for split in task.splits):
        return str(next(split.path for split in task.splits if split.path is not None).parent)
    folder = task_folder(task, place.folder)
    return f"{task.hub} {task.name}" if folder is None else str(folder)


def _open_splits(task: Task, place: Place, roles: Sequence[str]) -> dict[Split, Opened]:
    wanted = [split for split in task.splits if split.role in roles]
    own = {split: split.path for split in wanted if split.path is not None}
    if own:
        return {split: open_table(path, columns_of(task)) for split, path in own.items()}
    folder = task_folder(task, place.folder)
    if folder is None:
        return {split: hub_table(task, split, place) for split in wanted}
    return {split: _opened(task, files) for split, files in found_files(task, folder, wanted).items()}


def _opened(task: Task, files: SplitFiles) -> Opened:
    columns = columns_of(task)
    if files.whole:
        return _joined([open_table(path, columns) for path in files.whole])
    return {
        part: open_treebank(path) if is_treebank(part) else open_table(path, columns)
        for part, path in files.parts.items()
    }


def _joined(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    rows = chain.from_iterable(table.rows for table in tables)
    return Table(tables[0].path, all(table.has_labels for table in tables), rows)
