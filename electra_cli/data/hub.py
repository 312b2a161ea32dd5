"""Data sets of the Hugging Face Hub as a corpus: `hf://owner/name[/config[/split]]`, through `datasets`."""

import os
from collections.abc import Iterator
from typing import Any

from electra_cli.data.documents import Tally
from electra_cli.errors import InputError

PREFIX = "hf://"


def hub_texts(reference: str, column: str, tally: Tally) -> Iterator[str]:
    """The texts of a data set, streamed; offline, of its copy in the local cache.

    Raises `InputError` when it cannot be had, has no such column, or holds something other than text there.
    Null rows are dropped and counted.
    """
    for number, record in enumerate(_records(reference), 1):
        if column not in record:
            raise InputError(
                f"{reference}: no column {column!r}; it has {', '.join(sorted(map(str, record))[:10])}",
                path=reference,
                key="corpus.text_column",
                hint="name the column that holds the text: corpus.text_column",
            )
        text = record[column]
        if text is None:
            tally.drop("null")
        elif isinstance(text, str):
            yield text
        else:
            raise InputError(
                f"{reference}, row {number}: the column {column!r} holds {type(text).__name__}, not text",
                path=reference,
                key="corpus.text_column",
            )


def parse_reference(reference: str) -> tuple[str, str | None, str]:
    """`hf://owner/name[/config[/split]]` → (owner/name, config, split); the split is `train` unless named."""
    names = reference.removeprefix(PREFIX).strip("/").split("/")
    if not 2 <= len(names) <= 4 or not all(names):
        raise InputError(
            f"{reference} is no data set of the Hub",
            key="corpus.files",
            hint="write hf://owner/name, hf://owner/name/config or hf://owner/name/config/split",
        )
    config = names[2] if len(names) > 2 else None
    return "/".join(names[:2]), config, names[3] if len(names) > 3 else "train"


def _records(reference: str) -> Any:
    name, config, split = parse_reference(reference)
    is_offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    import datasets

    try:
        return datasets.load_dataset(name, config, split=split, streaming=not is_offline)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        network = "the network is off (HF_HUB_OFFLINE=1)" if is_offline else "the Hub did not give it"
        raise InputError(
            f"{reference} is not on this machine, and {network}: {type(error).__name__}: {error}",
            path=reference,
            hint=f"online: hf download {name} --repo-type dataset; or name files of text in corpus.files",
        ) from error
