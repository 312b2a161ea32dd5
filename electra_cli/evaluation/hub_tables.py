"""A task's splits as the Hub has them, or its cache on this machine."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from electra_cli.errors import InputError
from electra_cli.evaluation import hub
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.tables import BadRow, Row, Table
from electra_cli.evaluation.tasks import GLUE_HUB, Split, Task


def hub_table(task: Task, split: Split, place: Place) -> Table:
    """The rows of a split; raises InputError with where it was looked for and how to get it."""
    config = split.hub_config or task.name
    try:
        dataset = hub.open_split(task.hub, config, split.hub, is_offline=place.is_offline)
    except hub.NotGivenError as error:
        raise _not_found(task, config, place, str(error)) from error
    folded = {name.casefold(): name for name in dataset.column_names}

    def column(names: Sequence[str]) -> Sequence[object] | None:
        name = next((folded[name.casefold()] for name in names if name.casefold() in folded), None)
        return None if name is None else list(dataset[name])

    texts, pairs = column(task.text), column(task.pair)
    labels, indices, sources = column(task.label), column(("idx",)), column(task.source)
    source = Path(f"{task.hub} {config} {split.hub}")
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
            source = None if sources is None else str(sources[number])
            yield Row(number + 1, text, cast("str | None", pair), label, index, source)

    return Table(source, labels is not None, rows())


def _not_found(task: Task, config: str, place: Place, why: str) -> InputError:
    if task.hub == GLUE_HUB:
        include = f"--include '{config}/*' --local-dir {place.folder}"
        or_else = f"   or unzip GLUE's {task.title}.zip into {place.folder}/"
    else:
        include, or_else = f"--local-dir {place.folder / task.name}", ""
    return InputError(
        f"{task.title} is not on this machine, and {why}.\n"
        f"  Looked in {place.folder / task.title}, the Hugging Face cache.",
        path=place.folder / task.title,
        hint=f"online: hf download {task.hub} --repo-type dataset {include}{or_else}",
    )
