"""What the reader of a score must know about its data: other numbers than published, texts on both sides."""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from electra_cli.evaluation.examples import Examples
from electra_cli.evaluation.tasks import Split


def remarks_on(loaded: Mapping[Split, Examples]) -> tuple[str, ...]:
    """Of the splits with published numbers: each count that differs, with both values, and shared texts."""
    published = {split: examples for split, examples in loaded.items() if split.class_rows}
    remarks = [remark for split, examples in published.items() for remark in _other_counts(split, examples)]
    return (*remarks, *_shared_texts(published))


def _other_counts(split: Split, examples: Examples) -> Iterator[str]:
    wanted = {part.source: part.rows for part in split.parts}
    found: Mapping[str, int] = Counter(examples.sources or ())
    if not set(found) <= set(wanted) or not found:
        wanted, found = {"": sum(wanted.values())}, {"": len(examples)}
    for source in dict.fromkeys((*wanted, *found)):
        if wanted[source] != found.get(source, 0):
            name = f" of {source}" if source else ""
            number = found.get(source, 0)
            yield f"{split.hub}: {number:,} rows{name}, the published set has {wanted[source]:,}"
    if examples.target_N is not None:
        count_C = np.bincount(examples.target_N.astype(np.int64), minlength=len(split.class_rows))
        if tuple(count_C.tolist()) != split.class_rows:
            ours, theirs = (" / ".join(f"{n:,}" for n in counts) for counts in (count_C, split.class_rows))
            yield f"{split.hub}: {ours} rows of the classes, the published set has {theirs}"


def _shared_texts(loaded: Mapping[Split, Examples]) -> Iterator[str]:
    train = next((set(examples.texts) for split, examples in loaded.items() if split.role == "train"), set())
    for split, examples in loaded.items():
        shared = sum(text in train for text in examples.texts) if split.role != "train" else 0
        if shared:
            yield f"{split.hub}: {shared:,} of its texts are training texts too"
