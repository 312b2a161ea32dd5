"""Where a task's data lie: a folder of official files, the Hugging Face cache, or the Hub."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

from electra_cli.errors import InputError
from electra_cli.evaluation import hub
from electra_cli.evaluation.examples import Examples, read_examples, with_labels_of
from electra_cli.evaluation.tables import ENDINGS, BadRow, Columns, Row, Table, open_table
from electra_cli.evaluation.tasks import Split, Task, plain

HUB_NAME = "nyu-mll/glue"

_PARQUET_PART = re.compile(r"-\d{5}-of-\d{5}\.parquet")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where to look for data, and how strict to be with it."""

    folder: Path
    """Holds a folder a task, or is the folder of one."""
    is_offline: bool = False
    skip_bad: bool = False
    limit: int = 0
    """Examples read of each split, from its start; 0: all."""


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task with its examples."""

    task: Task
    """With its classes, also where the training file named them."""
    train: Examples
    dev: dict[str, Examples]
    """By the name of the score."""
    source: str

    @property
    def sha256(self) -> str:
        """Hash of what is trained on and scored."""
        return "+".join(examples.sha256 for examples in (self.train, *self.dev.values()))


def load_task(task: Task, place: Place, *, extra: Task | None = None) -> TaskData:
    """Train and dev examples of a task; `extra` adds the dev splits of another with the same classes (AX).

    Raises InputError where the data are on neither disk nor Hub, for a missing file of a folder that exists,
    and for unusable rows; CorruptError for damaged files.
    """
    tables = _open_splits(task, place, ("train", "dev"))
    if extra is not None:
        tables |= _open_splits(extra, place, ("dev",))
    train_split = next(split for split in task.splits if split.role == "train")
    if not task.labels and not task.is_regression:
        task = with_labels_of(task, tables[train_split])
        tables[train_split] = _open_splits(task, place, ("train",))[train_split]
    loaded = {
        split: read_examples(task, table, split.role, skip_bad=place.skip_bad).first(place.limit)
        for split, table in tables.items()
    }
    dev = {split.result: examples for split, examples in loaded.items() if split.role == "dev"}
    return TaskData(
        task=task,
        train=loaded[train_split],
        dev=dev | _labelled_test(task, place),
        source=_source_of(task, place),
    )


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
    tables = _open_splits(task, place, ("test",))
    return {split: read_examples(task, table, "test", skip_bad=False) for split, table in tables.items()}


def load_texts(task: Task, path: Path, *, skip_bad: bool) -> Examples:
    """Any file with the task's text columns; labels ignored."""
    return read_examples(task, open_table(path, columns_of(task)), "test", skip_bad=skip_bad)


def columns_of(task: Task) -> Columns:
    """What to read of the task's files. GLUE's own files and the Hub's differ in a few names."""
    return Columns(text=task.text, pair=task.pair, label=task.label, headerless=task.headerless)


def _source_of(task: Task, place: Place) -> str:
    if any(split.path is not None for split in task.splits):
        return str(next(split.path for split in task.splits if split.path is not None).parent)
    folder = task_folder(task, place.folder)
    return f"{HUB_NAME} {task.name}" if folder is None else str(folder)


def _open_splits(task: Task, place: Place, roles: Sequence[str]) -> dict[Split, Table]:
    wanted = [split for split in task.splits if split.role in roles]
    own = {split: split.path for split in wanted if split.path is not None}
    if own:
        return {split: open_table(path, columns_of(task)) for split, path in own.items()}
    folder = task_folder(task, place.folder)
    if folder is None:
        return {split: _hub_table(task, split, place) for split in wanted}
    return {
        split: _joined([open_table(path, columns_of(task)) for path in paths])
        for split, paths in _found_files(task, folder, wanted).items()
    }


def task_folder(task: Task, folder: Path) -> Path | None:
    """The task's folder below `folder`, whatever its case and hyphens; `folder` itself if it is so named."""
    names = {plain(name) for name in (task.name, task.title, *task.folders)}
    if not folder.is_dir():
        return None
    below = sorted(entry for entry in folder.iterdir() if plain(entry.name) in names and entry.is_dir())
    if below:
        return below[0]
    return folder if plain(folder.resolve().name) in names else None


def _found_files(task: Task, folder: Path, wanted: Sequence[Split]) -> dict[Split, list[Path]]:
    """The files of each split. Of two dev splits one may be missing; nothing else may."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    found = {split: paths for split in wanted if (paths := _files_of(split, files))}
    missing = [split for split in wanted if split not in found]
    has_dev = any(split.role == "dev" for split in found)
    for split in missing:
        if split.role != "dev" or not has_dev:
            listed = ", ".join(file.name for file in files[:12]) or "nothing"
            raise InputError(
                f"{task.title}: no {split.role} file in {folder}; it holds {listed}",
                path=folder,
                hint=f"looked for {' or '.join(split.stems)} with "
                + " ".join(ENDINGS)
                + ", text also as .gz",
            )
    return found


def _files_of(split: Split, files: Sequence[Path]) -> list[Path]:
    by_name = {file.name.casefold(): file for file in files}
    for stem in split.stems:
        for ending in ENDINGS:
            for name in (f"{stem}{ending}", f"{stem}{ending}.gz"):
                if name.casefold() in by_name:
                    return [by_name[name.casefold()]]
        parts = [
            file
            for name, file in by_name.items()
            if name.startswith(stem.casefold()) and _PARQUET_PART.fullmatch(name[len(stem) :])
        ]
        if parts:
            return sorted(parts)
    return []


def _joined(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    rows = chain.from_iterable(table.rows for table in tables)
    return Table(tables[0].path, all(table.has_labels for table in tables), rows)


def _hub_table(task: Task, split: Split, place: Place) -> Table:
    config = split.hub_config or task.name
    try:
        dataset = hub.open_split(HUB_NAME, config, split.hub, is_offline=place.is_offline)
    except hub.NotGivenError as error:
        raise _not_found(task, config, place, str(error)) from error
    folded = {name.casefold(): name for name in dataset.column_names}

    def column(names: Sequence[str]) -> Sequence[object] | None:
        name = next((folded[name.casefold()] for name in names if name.casefold() in folded), None)
        return None if name is None else list(dataset[name])

    texts, pairs = column(task.text), column(task.pair)
    labels, indices = column(task.label), column(("idx",))
    source = Path(f"{HUB_NAME} {config} {split.hub}")
    if texts is None or (task.pair and pairs is None):
        raise InputError(f"{source} has the columns {', '.join(dataset.column_names)}, not {task.text[-1]}")

    def rows() -> Iterator[Row | BadRow]:
        for number, text in enumerate(texts):
            pair = None if pairs is None else pairs[number]
            if not isinstance(text, str) or (pairs is not None and not isinstance(pair, str)):
                yield BadRow(number + 1, "a text is null")
                continue
            label = None if labels is None or labels[number] is None else str(labels[number])
            index = str(number if indices is None else indices[number])
            yield Row(number + 1, text, cast("str | None", pair), label, index)

    return Table(source, labels is not None, rows())


def _not_found(task: Task, config: str, place: Place, why: str) -> InputError:
    return InputError(
        f"{task.title} is not on this machine, and {why}.\n"
        f"  Looked in {place.folder / task.title}, the Hugging Face cache.",
        path=place.folder / task.title,
        hint=f"online: hf download {HUB_NAME} --repo-type dataset --include '{config}/*' "
        f"--local-dir {place.folder}   or unzip GLUE's {task.title}.zip into {place.folder}/",
    )
