"""The facts of every task in one table: columns, labels, metric, files.

A task's classes have two orders. `labels` is the order in which a file may number them (the Hub's order
for GLUE); inside the room a class is its place among the sorted names, so that permuting `labels` changes
nothing.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Role = Literal["train", "dev", "test"]

NO_GOLD_LABEL = ("-", "-1")
"""Marks of rows on which the annotators did not agree, or whose label is withheld."""


GLUE_HUB = "nyu-mll/glue"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One of the sources that a split is put together from."""

    source: str
    """Its name in the results."""
    stems: tuple[str, ...]
    """Usual file names without their endings, or with the folder before them: "trees/train"."""
    rows: int
    """Labelled rows that the published set has."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """One file of a task."""

    role: Role
    result: str
    """Name of its score in the results ("mnli-m"), or of its file in a submission ("MNLI-m")."""
    stems: tuple[str, ...]
    """Usual file names without their endings."""
    hub: str
    """Name of the split on the Hub."""
    hub_config: str = ""
    """Configuration on the Hub, where it is not the task's own name."""
    path: Path | None = None
    """The file itself, for a task of one's own."""
    official_rows: int = 0
    """Rows of the official test file, which the leaderboard insists on; 0 where there is none."""
    parts: tuple[Part, ...] = ()
    """What the file is put together from where only the sources are there."""
    class_rows: tuple[int, ...] = ()
    """Rows of each class in the published set, in the order of the sorted names."""


@dataclass(frozen=True, kw_only=True)
class Headerless:
    """Column names of a file that has no header line."""

    columns: tuple[str, ...]
    num_optional: int = 0
    """Unnamed columns that may follow."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is known about a task before its files are read.

    Column names are alternatives, compared without case.
    """

    name: str
    title: str
    metric: str
    other_metrics: tuple[str, ...] = ()
    text: tuple[str, ...]
    pair: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    source: tuple[str, ...] = ()
    """Column that names the source of a row; each source then has a score of its own."""
    hub: str = GLUE_HUB
    """Data set on the Hub."""
    folders: tuple[str, ...] = ()
    """Further names of its folder; the task's name and title are known anyway."""
    labels: tuple[str, ...] = ()
    """Classes; empty with `is_regression`, and for an own task whose classes its training file shows."""
    is_regression: bool = False
    score_range: tuple[float, float] | None = None
    """Lowest and highest score allowed; `None`: whatever the training file spans."""
    positive: str = ""
    """The class whose F1 counts."""
    epochs: int = 0
    """Passes over the training examples; 0: as many as the protocol says."""
    is_unordered: bool = False
    """The pair's order means nothing: trained on both orders."""
    headerless: tuple[Headerless, ...] = ()
    skipped_labels: tuple[str, ...] = NO_GOLD_LABEL
    splits: tuple[Split, ...] = field(default=())

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the numbers used inside: sorted."""
        return tuple(sorted(self.labels))

    @property
    def dev_names(self) -> tuple[str, ...]:
        """Names of the scores this task gives."""
        return tuple(split.result for split in self.splits if split.role == "dev")


def _splits(title: str, name: str, official_rows: int, *more_stems: tuple[str, str]) -> tuple[Split, ...]:
    """Train, dev and test of an ordinary task; `more_stems` are further (role, stem) pairs."""

    def stems(role: str, *usual: str) -> tuple[str, ...]:
        return (*usual, *(stem for of, stem in more_stems if of == role))

    return (
        Split(role="train", result=name, stems=stems("train", "train"), hub="train"),
        Split(role="dev", result=name, stems=stems("dev", "dev", "validation", "val"), hub="validation"),
        Split(
            role="test", result=title, stems=stems("test", "test"), hub="test", official_rows=official_rows
        ),
    )


_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")

_MNLI_SPLITS = (
    Split(role="train", result="mnli", stems=("train",), hub="train"),
    Split(
        role="dev",
        result="mnli-m",
        stems=("dev_matched", "validation_matched"),
        hub="validation_matched",
    ),
    Split(
        role="dev",
        result="mnli-mm",
        stems=("dev_mismatched", "validation_mismatched"),
        hub="validation_mismatched",
    ),
    Split(role="test", result="MNLI-m", stems=("test_matched",), hub="test_matched", official_rows=9796),
    Split(
        role="test", result="MNLI-mm", stems=("test_mismatched",), hub="test_mismatched", official_rows=9847
    ),
)

GLUE: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="cola",
            title="CoLA",
            metric="matthews",
            other_metrics=("accuracy",),
            text=("sentence",),
            labels=("0", "1"),
            headerless=(Headerless(columns=("source", "label", "mark", "sentence")),),
            splits=_splits("CoLA", "cola", 1063),
        ),
        Task(
            name="sst2",
            title="SST-2",
            folders=("sst",),
            metric="accuracy",
            text=("sentence",),
            labels=("0", "1"),
            splits=_splits("SST-2", "sst2", 1821),
        ),
        Task(
            name="mrpc",
            title="MRPC",
            metric="accuracy",
            other_metrics=("f1",),
            text=("#1 String", "sentence1"),
            pair=("#2 String", "sentence2"),
            label=("Quality", "label"),
            labels=("0", "1"),
            positive="1",
            is_unordered=True,
            splits=_splits(
                "MRPC",
                "mrpc",
                1725,
                ("train", "msr-para-train"),
                ("dev", "msr-para-val"),
                ("test", "msr-para-test"),
            ),
        ),
        Task(
            name="stsb",
            title="STS-B",
            folders=("sts", "stsbenchmark"),
            metric="spearman",
            other_metrics=("pearson",),
            text=("sentence1",),
            pair=("sentence2",),
            label=("score", "label"),
            is_regression=True,
            score_range=(0.0, 5.0),
            epochs=10,
            is_unordered=True,
            headerless=(
                Headerless(
                    columns=(
                        "genre",
                        "filename",
                        "year",
                        "old_index",
                        "score",
                        "sentence1",
                        "sentence2",
                    ),
                    num_optional=2,
                ),
            ),
            splits=_splits(
                "STS-B", "stsb", 1379, ("train", "sts-train"), ("dev", "sts-dev"), ("test", "sts-test")
            ),
        ),
        Task(
            name="qqp",
            title="QQP",
            metric="accuracy",
            other_metrics=("f1",),
            text=("question1",),
            pair=("question2",),
            label=("is_duplicate", "label"),
            labels=("0", "1"),
            positive="1",
            splits=_splits("QQP", "qqp", 390_965),
        ),
        Task(
            name="mnli",
            title="MNLI",
            metric="accuracy",
            text=("sentence1", "premise"),
            pair=("sentence2", "hypothesis"),
            label=("gold_label", "label"),
            labels=_THREE_WAY,
            splits=_MNLI_SPLITS,
        ),
        Task(
            name="qnli",
            title="QNLI",
            metric="accuracy",
            text=("question",),
            pair=("sentence",),
            labels=_ENTAILMENT,
            splits=_splits("QNLI", "qnli", 5463),
        ),
        Task(
            name="rte",
            title="RTE",
            metric="accuracy",
            text=("sentence1",),
            pair=("sentence2",),
            labels=_ENTAILMENT,
            epochs=10,
            splits=_splits("RTE", "rte", 3000),
        ),
        Task(
            name="wnli",
            title="WNLI",
            metric="accuracy",
            text=("sentence1",),
            pair=("sentence2",),
            labels=("0", "1"),
            splits=_splits("WNLI", "wnli", 146),
        ),
        Task(
            name="ax",
            title="AX",
            folders=("diagnostic",),
            metric="matthews",
            other_metrics=("accuracy",),
            text=("sentence1", "premise"),
            pair=("sentence2", "hypothesis"),
            labels=_THREE_WAY,
            splits=(
                Split(
                    role="dev",
                    result="ax",
                    stems=("diagnostic-full", "AX", "diagnostic", "test"),
                    hub="test",
                    hub_config="ax",
                ),
                Split(
                    role="test",
                    result="AX",
                    stems=("AX", "diagnostic", "test"),
                    hub="test",
                    hub_config="ax",
                    official_rows=1104,
                ),
            ),
        ),
    )
}
"""Every task of GLUE; AX is the diagnostic set, which a model trained on MNLI answers."""

SCORED_IN_GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli-m", "qnli", "rte")
"""The results whose mean is the GLUE score."""


def plain(name: str) -> str:
    """A task's or folder's name without case, hyphens and underscores: "SST-2" and "sst2" are one."""
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")
