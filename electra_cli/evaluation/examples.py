"""Rows to examples: labels checked, rows without a gold label counted, unusable rows named."""

# N examples of a split

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from electra_cli.errors import InputError
from electra_cli.evaluation.tables import BadRow, Row, Table
from electra_cli.evaluation.tasks import Role, Task

Targets = NDArray[np.float64]
"""Class numbers (whole) or scores, one an example."""

_SHOWN_BAD_ROWS = 5

MOST_SOURCES = 20
"""Sources of one set that get scores of their own, at most."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """A split in memory, in file order."""

    source: str
    """File or Hub address it was read from."""
    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    target_N: Targets | None
    """`None` for a split read without labels."""
    indices: tuple[str, ...]
    """The file's own row numbers, else 0, 1, …"""
    skipped: Mapping[str, int]
    """Rows left out, by reason."""
    bad_rows: tuple[BadRow, ...] = ()
    """Unusable rows left out on request."""
    sources: tuple[str, ...] | None = None
    """Where each example is from, in a set of several sources."""

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def sha256(self) -> str:
        """Hash of the content; the same whatever kind of file it came in."""
        digest = hashlib.sha256()
        pairs = self.pairs or ("",) * len(self.texts)
        for text, pair in zip(self.texts, pairs, strict=True):
            digest.update(f"{text}\0{pair}\n".encode("utf-8", "surrogatepass"))
        if self.target_N is not None:
            digest.update(self.target_N.tobytes())
        return digest.hexdigest()

    def first(self, limit: int) -> "Examples":
        """The first `limit` examples; all for 0."""
        if not limit or limit >= len(self):
            return self
        return replace(
            self,
            texts=self.texts[:limit],
            pairs=None if self.pairs is None else self.pairs[:limit],
            target_N=None if self.target_N is None else self.target_N[:limit],
            indices=self.indices[:limit],
            sources=None if self.sources is None else self.sources[:limit],
        )


def merged(parts: Mapping[str, Examples], order_N: NDArray[np.int64]) -> Examples:
    """Labelled single texts of several sources as one split: example i is number `order_N[i]` of all."""
    texts = [text for part in parts.values() for text in part.texts]
    sources = [name for name, part in parts.items() for _ in part.texts]
    targets = [part.target_N for part in parts.values() if part.target_N is not None]
    skipped: Counter[str] = Counter()
    for part in parts.values():
        skipped.update(part.skipped)
    return Examples(
        source=" + ".join(part.source for part in parts.values()),
        texts=tuple(texts[place] for place in order_N),
        pairs=None,
        target_N=np.concatenate(targets)[order_N],
        indices=tuple(map(str, range(len(texts)))),
        skipped=dict(skipped),
        bad_rows=tuple(row for part in parts.values() for row in part.bad_rows),
        sources=tuple(sources[place] for place in order_N),
    )


def _class_of(task: Task, label: str) -> int | None:
    """Number of a class given by name, or by its place in the task's own order."""
    if label not in task.labels:
        if not (label.isascii() and label.isdigit() and int(label) < len(task.labels)):
            return None
        label = task.labels[int(label)]
    return task.classes.index(label)


def _score_of(task: Task, label: str) -> float | str:
    """A regression target, or what is wrong with it."""
    if not label.strip():
        return "the score is empty"
    try:
        score = float(label)
    except ValueError:
        return f"the score {label[:40]!r} is no number"
    if not math.isfinite(score):
        return f"the score {label[:40]!r} is not finite"
    if task.score_range is not None and not task.score_range[0] <= score <= task.score_range[1]:
        return f"the score {label[:40]} is outside {task.score_range[0]:g} … {task.score_range[1]:g}"
    return score


def _target_of(task: Task, label: str | None) -> float | str | None:
    """The target of a label, `None` for a row without a gold label, or what is wrong."""
    if label is None or (label.strip() in task.skipped_labels and not task.is_regression):
        return None
    if task.is_regression:
        return _score_of(task, label)
    number = _class_of(task, label.strip())
    if number is None:
        known = ", ".join(task.labels[:8])
        return f"unknown label {label[:40]!r}; known: {known}" if label.strip() else "the label is empty"
    return float(number)


def with_labels_of(task: Task, table: Table) -> Task:
    """The task with the classes of a training file that names them, sorted."""
    seen = {
        row.label.strip()
        for row in table.rows
        if isinstance(row, Row) and row.label is not None and row.label.strip()
    } - set(task.skipped_labels)
    if len(seen) < 2:
        raise InputError(
            f"{table.path} shows {len(seen)} class(es) in column {task.label[0]!r}; a task needs two",
            path=table.path,
            hint="name the column with label = and the classes with labels = in [[evaluate.task]]",
        )
    if len(seen) > 1000:
        raise InputError(
            f"{table.path} shows {len(seen)} different labels in column {task.label[0]!r}",
            path=table.path,
            hint='for scores choose metric = "spearman"; for classes name them with labels =',
        )
    labels = tuple(sorted(seen))
    return replace(task, labels=labels, positive=labels[-1])


def read_examples(task: Task, table: Table, role: Role, *, skip_bad: bool) -> Examples:
    """All rows of a table as examples of `task`.

    A train or dev row without a gold label is skipped and counted; a test row keeps its place and loses its
    label. Raises InputError naming the first unusable rows and their number, unless `skip_bad`; and for a
    train or dev split that has no labels at all, which is never trained on or scored.
    """
    needs_labels = role != "test"
    if needs_labels and not table.has_labels:
        raise _no_labels(task, table, f"no column {' or '.join(repr(name) for name in task.label)}")
    return _collected(task, table, table.rows, needs_labels=needs_labels, skip_bad=skip_bad)


def _collected(
    task: Task, table: Table, rows: Iterable[Row | BadRow], *, needs_labels: bool, skip_bad: bool
) -> Examples:
    kept: list[Row] = []
    targets: list[float] = []
    bad: list[BadRow] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        if isinstance(row, BadRow):
            bad.append(row)
            continue
        target = _target_of(task, row.label) if needs_labels else 0.0
        if isinstance(target, str):
            bad.append(BadRow(row.line, target))
        elif target is None:
            skipped["no gold label"] += 1
        else:
            kept.append(row)
            targets.append(target)
    if bad and not skip_bad:
        hint = "correct the file, or pass --skip-bad to leave these rows out and list them in the results"
        raise bad_rows_error(str(table.path), bad, hint)
    if bad:
        skipped["unusable"] = len(bad)
    if not kept and skipped["no gold label"]:
        raise _no_labels(task, table, f"none of its {skipped['no gold label']} rows has a label")
    if not kept:
        raise InputError(f"{table.path} holds no usable row", path=table.path)
    return Examples(
        source=str(table.path),
        texts=tuple(row.text for row in kept),
        pairs=tuple(row.pair or "" for row in kept) if task.pair else None,
        target_N=np.array(targets, dtype=np.float64) if needs_labels else None,
        indices=tuple(str(n) if row.index is None else row.index for n, row in enumerate(kept)),
        skipped=dict(skipped),
        bad_rows=tuple(bad),
        sources=_sources_of(kept),
    )


def _sources_of(rows: list[Row]) -> tuple[str, ...] | None:
    """The sources that the rows name; `None` for none, and for so many that the column means another."""
    sources = tuple(row.source or "" for row in rows)
    return sources if any(sources) and len(set(sources)) <= MOST_SOURCES else None


def bad_rows_error(source: str, bad: list[BadRow], hint: str) -> InputError:
    """What is wrong with the first rows, and how many there are."""
    shown = "\n".join(f"  line {row.line}: {row.reason}" for row in bad[:_SHOWN_BAD_ROWS])
    more = f"\n  … and {len(bad) - _SHOWN_BAD_ROWS:,} more" if len(bad) > _SHOWN_BAD_ROWS else ""
    return InputError(
        f"{source} has {len(bad):,} unusable row{'s' if len(bad) > 1 else ''}\n{shown}{more}",
        path=source,
        line=bad[0].line,
        hint=hint,
    )


def _no_labels(task: Task, table: Table, reason: str) -> InputError:
    return InputError(
        f"{table.path} has no labels ({reason}): it cannot be trained on or scored",
        path=table.path,
        hint=f"{task.title} needs a file with labels; --predict FILE answers texts without labels",
    )
