"""Data sets of the Hugging Face Hub for evaluation, and of its cache where the network is out of reach."""

import logging
import os
import socket
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

_PATIENCE_SECONDS = 5.0


class Dataset(Protocol):
    """The part of `datasets.Dataset` that is used."""

    column_names: list[str]

    def __getitem__(self, column: str) -> Sequence[object]: ...


class NotGivenError(Exception):
    """The Hub and its cache did not give a data set; the text says why, for callers that say what to do."""


def open_split(name: str, config: str, split: str, *, is_offline: bool) -> Dataset:
    """One split of a data set; raises NotGivenError where neither cache nor Hub have it."""
    return cast(Dataset, _asked(is_offline, "load_dataset", name, config, split=split))


def config_names(name: str, *, is_offline: bool) -> list[str]:
    """The configurations of a data set; raises NotGivenError where neither cache nor Hub know them."""
    return cast(list[str], _asked(is_offline, "get_dataset_config_names", name))


def _asked(is_offline: bool, function: str, *arguments: str, **options: str) -> object:
    if is_offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    why = why_offline()
    if why:
        # Read when the library is imported; without it, it would try again and again for half a minute.
        os.environ["HF_HUB_OFFLINE"] = "1"
    datasets = _library()
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return getattr(datasets, function)(*arguments, **options)
    except (OSError, ValueError, DatasetsError, HfHubHTTPError) as error:
        raise NotGivenError(why or f"the Hub did not answer ({error})") from error


def _library() -> ModuleType:
    import datasets

    datasets.disable_progress_bars()
    for name in ("datasets", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return cast(ModuleType, datasets)


@cache
def why_offline() -> str:
    """Why only the cache can serve; empty where the Hub can be reached. Asked once a process."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return "the network is off (HF_HUB_OFFLINE=1)"
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if {"https", "http", "all"} & getproxies().keys() or hub.hostname is None:
        # A proxy reaches what this machine does not.
        return ""
    try:
        port = hub.port or (80 if hub.scheme == "http" else 443)
        socket.create_connection((hub.hostname, port), timeout=_PATIENCE_SECONDS).close()
    except (OSError, ValueError) as error:
        return f"{hub.hostname} cannot be reached ({error})"
    return ""
