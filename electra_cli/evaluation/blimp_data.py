"""Sets of minimal pairs: BLiMP's files, any folder in their layout, or a data set of the Hub.

A file is a set, named after itself; of a file that the Hub cut into parts the folder has the name.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from electra_cli.data.hub import PREFIX, parse_reference
from electra_cli.errors import InputError
from electra_cli.evaluation import hub
from electra_cli.evaluation.tables import BadRow, Columns, Row, open_table

HUB_NAME = f"{PREFIX}nyu-mll/blimp"
NO_PHENOMENON = "other"

_COLUMNS = Columns(text=("sentence_good",), pair=("sentence_bad",), label=("linguistics_term",))
_FILE = re.compile(r"(?P<stem>.+)\.(?:jsonl|tsv|csv|parquet)(?:\.gz)?")
_SPLIT_NAME = re.compile(r"(?:train|validation|test)(?:-\d{5}-of-\d{5})?")
_SHOWN_BAD_ROWS = 5


@dataclass(frozen=True, kw_only=True)
class MinimalPairs:
    """One set: sentence by sentence the good and the bad one."""

    name: str
    phenomenon: str
    """What the set is about, as its first row says; `other` where no row says it."""
    good: tuple[str, ...]
    bad: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.good)

    @cached_property
    def sha256(self) -> str:
        """Hash of the sentences in their order."""
        digest = hashlib.sha256()
        for pair in zip(self.good, self.bad, strict=True):
            digest.update("\0".join([*pair, ""]).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class PairSets:
    """All sets of an evaluation, by name."""

    source: str
    sets: tuple[MinimalPairs, ...]
    limit: int
    """Pairs read of each set; 0: all."""

    @property
    def sha256(self) -> str:
        """Hash of all sets."""
        lines = "".join(f"{one.name} {one.sha256}\n" for one in self.sets)
        return hashlib.sha256(lines.encode()).hexdigest()


def load_pairs(source: str, *, limit: int = 0, is_offline: bool = False) -> PairSets:
    """Every set of a folder, of one file, or of `hf://owner/name[/config[/split]]`.

    `limit`: how many pairs of each set, from its start; 0 is all. Raises InputError where there is none and
    for unusable rows, CorruptError for damaged files.
    """
    named = _from_hub(source, is_offline) if source.startswith(PREFIX) else _from_files(Path(source))
    sets = [_pairs_of(name, where, rows, limit) for name, where, rows in named]
    return PairSets(source=source, sets=tuple(sorted(sets, key=lambda one: one.name)), limit=limit)


_Named = Iterator[tuple[str, str, Iterable[Row | BadRow]]]
"""Name of a set, where it stands, its rows."""


def _from_files(place: Path) -> _Named:
    found = [place] if place.is_file() else sorted(path for path in place.rglob("*") if _is_set(place, path))
    if not found:
        reason = "holds no file of minimal pairs" if place.exists() else "is not there"
        raise InputError(
            f"{place} {reason}",
            path=place,
            hint="a set is a .jsonl, .tsv, .csv or .parquet file with sentence_good and sentence_bad",
        )
    for name, paths in groupby(sorted(found, key=lambda path: (_set_name(path), path)), key=_set_name):
        parts = list(paths)
        if len({path.parent for path in parts}) > 1 or (len(parts) > 1 and not _is_part(parts[0])):
            shown = " and ".join(map(str, parts[:2]))
            raise InputError(f"{shown} are both the set {name}", path=parts[0], hint="keep one of them")
        yield name, str(parts[0]), (row for path in parts for row in open_table(path, _COLUMNS).rows)


def _is_set(folder: Path, path: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return not is_hidden and _FILE.fullmatch(path.name) is not None and path.is_file()


def _is_part(path: Path) -> bool:
    return _SPLIT_NAME.fullmatch(_stem(path)) is not None


def _stem(path: Path) -> str:
    match = _FILE.fullmatch(path.name)
    return path.stem if match is None else match["stem"]


def _set_name(path: Path) -> str:
    return path.resolve().parent.name if _is_part(path) else _stem(path)


def _from_hub(reference: str, is_offline: bool) -> _Named:
    name, config, split = parse_reference(reference)
    try:
        configs = [config] if config else hub.config_names(name, is_offline=is_offline)
        tables = {one: hub.open_split(name, one, split, is_offline=is_offline) for one in configs}
    except hub.NotGivenError as error:
        raise InputError(
            f"{reference} is not on this machine, and {error}",
            path=reference,
            hint=f"online: hf download {name} --repo-type dataset --local-dir data/blimp",
        ) from error
    for one, table in tables.items():
        lacking = [column for column in ("sentence_good", "sentence_bad") if column not in table.column_names]
        if lacking:
            raise InputError(
                f"{name} {one} has the columns {', '.join(table.column_names)}, not {lacking[0]}",
                path=reference,
            )
        yield one, f"{name} {one}", _hub_rows(table)


def _hub_rows(table: hub.Dataset) -> Iterator[Row | BadRow]:
    good, bad = table["sentence_good"], table["sentence_bad"]
    has_label = "linguistics_term" in table.column_names
    labels = table["linguistics_term"] if has_label else [None] * len(good)
    for number, (one, other, label) in enumerate(zip(good, bad, labels, strict=True), 1):
        if isinstance(one, str) and isinstance(other, str):
            yield Row(number, one, other, None if label is None else str(label), None)
        else:
            yield BadRow(number, "a sentence is null or no text")


def _pairs_of(name: str, where: str, rows: Iterable[Row | BadRow], limit: int) -> MinimalPairs:
    good: list[str] = []
    bad: list[str] = []
    wrong: list[BadRow] = []
    phenomenon = ""
    for row in rows:
        if limit and len(good) + len(wrong) >= limit:
            break
        if isinstance(row, BadRow):
            wrong.append(row)
        elif not row.text.strip() or row.pair is None or not row.pair.strip():
            wrong.append(BadRow(row.line, "a sentence is empty"))
        else:
            phenomenon = phenomenon or row.label or ""
            good.append(row.text)
            bad.append(row.pair)
    if wrong or not good:
        listed = "; ".join(f"line {row.line}: {row.reason}" for row in wrong[:_SHOWN_BAD_ROWS])
        raise InputError(
            f"{where}: {len(wrong)} unusable rows: {listed}" if wrong else f"{where} holds no pair",
            path=where,
            line=wrong[0].line if wrong else None,
            hint="each row needs the texts sentence_good and sentence_bad",
        )
    return MinimalPairs(name=name, phenomenon=phenomenon or NO_PHENOMENON, good=tuple(good), bad=tuple(bad))
