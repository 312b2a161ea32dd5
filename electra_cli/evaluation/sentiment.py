"""Three-way sentiment: DynaSent's two rounds and the sentences of the Stanford Sentiment Treebank.

The splits of Beno 2024 (arXiv 2501.00062), Table 1. They exist merged (jbeno/sentiment_merged); put together
from their sources they have the same rows in the same order. SST-5 becomes SST-3: whole sentences only, both
degrees of negative and of positive taken together.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from electra_cli.errors import InputError
from electra_cli.evaluation.tables import BadRow, Row, Table, text_lines
from electra_cli.evaluation.tasks import NO_GOLD_LABEL, Part, Role, Split, Task

SST = "sst_local"
"""The Treebank's name in the merged sets."""

_HUB = "jbeno/sentiment_merged"
_CLASSES = ("negative", "neutral", "positive")
_OF_FIVE = ("negative", "negative", "neutral", "positive", "positive")
_LEAF = re.compile(r"\(\d ([^()]+)\)")
_FAST_TEXT = "__label__"
_ORDER_SEED = 42


def _split(
    role: Role, result: str, names: tuple[str, ...], rows: tuple[int, int, int], classes: tuple[int, int, int]
) -> Split:
    """`names`: how its files call the split, the Hub's name first."""
    short = "dev" if "dev" in names else names[0]
    rounds = ("round01-yelp", "round02-dynabench")
    dynasent = [tuple(f"dynasent-{v}-{r}-{short}" for v in ("v1.1", "v1")) for r in rounds]
    sst = (f"trees_{short}", f"trees/{short}", f"sst_{short}")
    return Split(
        role=role,
        result=result,
        stems=tuple(f"{name}{end}" for end in ("_all", "") for name in names),
        hub=names[0],
        hub_config="default",
        parts=(
            Part(source="dynasent_r1", stems=dynasent[0], rows=rows[0]),
            Part(source="dynasent_r2", stems=dynasent[1], rows=rows[1]),
            Part(source=SST, stems=sst, rows=rows[2]),
        ),
        class_rows=classes,
    )


SENTIMENT = Task(
    name="sentiment",
    title="Sentiment",
    metric="macro_f1",
    other_metrics=("accuracy",),
    text=("sentence",),
    label=("label", "gold_label"),
    source=("source",),
    hub=_HUB,
    folders=("merged", "sentiment_merged"),
    labels=_CLASSES,
    # DynaSent marks sentences without a majority so.
    skipped_labels=(*NO_GOLD_LABEL, "mixed"),
    splits=(
        _split("train", "sentiment", ("train",), (80_488, 13_065, 8_544), (21_910, 49_148, 31_039)),
        _split("dev", "sentiment", ("validation", "val", "dev"), (3600, 720, 1101), (1868, 1669, 1884)),
        _split("dev", "sentiment-test", ("test",), (3600, 720, 2210), (2352, 1829, 2349)),
    ),
)


def published_order(number: int) -> NDArray[np.int64]:
    """Place of each row of the merged set in the sources laid end to end, R1, R2, SST.

    The published sets were shuffled by pandas with this seed, which is this permutation of NumPy.
    """
    return np.random.RandomState(_ORDER_SEED).permutation(number).astype(np.int64)


def open_treebank(path: Path) -> Table:
    """Sentences of the Treebank with three classes: trees (`(3 (2 It) …)`), or `__label__4<TAB>text`."""
    return Table(path, True, _treebank_rows(path))


def _treebank_rows(path: Path) -> Iterator[Row | BadRow]:
    for number, line in text_lines(path):
        label, text = _tree(line) if line.startswith("(") else _labelled(line)
        if label is None:
            yield BadRow(number, f"neither a tree nor {_FAST_TEXT}1 to 5, a tab and a text: {line[:40]!r}")
        else:
            yield Row(number, text, None, _OF_FIVE[label], None)


def _tree(line: str) -> tuple[int | None, str]:
    """The root's label, 0 to 4, and the words of the leaves."""
    words = [match[1] for match in _LEAF.finditer(line)]
    is_tree = bool(words) and line[1:2] in tuple("01234") and line.count("(") == line.count(")")
    return (int(line[1]), " ".join(words)) if is_tree else (None, "")


def _labelled(line: str) -> tuple[int | None, str]:
    mark, tab, text = line.partition("\t")
    number = mark.removeprefix(_FAST_TEXT)
    is_labelled = mark.startswith(_FAST_TEXT) and number in tuple("12345") and bool(tab and text)
    return (int(number) - 1, text) if is_labelled else (None, "")


def is_treebank(part: Part) -> bool:
    """Whether the part's files are the Treebank's own."""
    return part.source == SST


def missing_parts(split: Split, missing: list[Part], folder: Path) -> InputError:
    """What a split lacks: neither the whole file nor all of its sources lie in the folder."""
    wanted = "; ".join(f"{part.source}: {part.stems[0]}" for part in missing)
    whole = " or ".join(split.stems)
    return InputError(
        f"{SENTIMENT.title}: no {split.hub} file in {folder}, nor all of its sources; missing: {wanted}",
        path=folder,
        hint=f"a merged file is called {whole} with .csv; online: hf download {_HUB} --repo-type dataset "
        f"--local-dir {folder}",
    )
