"""A corpus and tasks that we write ourselves, and settings that make every stage take seconds."""

import json
from itertools import product
from pathlib import Path
from typing import Any

SETS = (
    "model.size=toy",
    "vocab.size=320",
    "rows.sequence_length=32",
    "corpus.processes=1",
    "schedule.warmup_steps=2",
    "pretrain.steps=6",
    "pretrain.batch_size=8",
    "pretrain.log_every=2",
    "pretrain.heldout_every=3",
    "pretrain.heldout_rows=8",
    "pretrain.save_every=3",
    "evaluate.seeds=1",
    "evaluate.batch_size=8",
    "evaluate.learning_rate=0.005",
    "evaluate.layer_decay=1.0",
)
"""A whole project in the size of a test."""

TOY_ENVIRONMENT = {
    "ELECTRA_SET": " ".join(SETS),
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "120",
    "OMP_NUM_THREADS": "1",
}

_WHO = (
    "the harbour master", "an old fisherman", "her younger sister", "the keeper of the lighthouse",
    "a boy from the village", "the captain", "nobody in the street", "the schoolteacher", "my grandmother",
    "a stranger with a lantern", "the baker", "the doctor's wife",
)  # fmt: skip
_DID = (
    "remembered", "had forgotten", "described", "wrote down", "painted", "asked about", "could not explain",
    "was afraid of", "laughed at", "looked for", "dreamed of", "told us about",
)  # fmt: skip
_WHAT = (
    "the storm that broke the pier", "a letter without a name", "the ship from the north",
    "the bell under the water", "the winter of the great frost", "a map drawn on sailcloth",
    "the light beyond the islands", "the song of the rope makers", "the price of salted herring",
    "a key that opened no door", "the well behind the church", "the last ferry home",
)  # fmt: skip
_WHEN = (
    "before the tide turned", "on a Sunday morning", "when the fog had lifted", "many years later",
    "without saying a word", "as if it were yesterday", "while the kettle boiled", "in a low voice",
)  # fmt: skip


def lines_of(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics that tell of training."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["kind"] == "train"]


def sentences() -> list[str]:
    """13,824 different sentences in an order without pattern."""
    every = [
        f"{who[0].upper()}{who[1:]} {did} {what} {when}."
        for who, did, what, when in product(_WHO, _DID, _WHAT, _WHEN)
    ]
    # 5,003 is prime and no divisor of the number of sentences, so each comes once.
    return [every[5003 * number % len(every)] for number in range(len(every))]


def write_corpus(folder: Path, num_documents: int = 160) -> Path:
    """Two files, a document a paragraph of twelve sentences, a blank line between them."""
    folder.mkdir(parents=True)
    written = sentences()
    documents = [" ".join(written[12 * number : 12 * number + 12]) for number in range(num_documents)]
    half = num_documents // 2
    for name, some in (("harbour.txt", documents[:half]), ("village.txt", documents[half:])):
        (folder / name).write_text("\n\n".join(some) + "\n", encoding="utf-8")
    return folder


def write_tasks(folder: Path, num_train: int = 48, num_dev: int = 24) -> Path:
    """SST-2, MNLI, RTE, MRPC and STS-B with GLUE's own file names, columns and quirks, and merged sentiment.

    A sentence is good, and a pair fits, by what the (second) sentence's subject is.
    """
    three, two = ("entailment", "neutral", "contradiction"), ("entailment", "not_entailment")
    parses = [f"sentence{number}_{kind}" for kind in ("binary_parse", "parse") for number in (1, 2)]
    pair_meta = ["index", "promptID", "pairID", "genre", *parses, "sentence1", "sentence2"]
    score_meta = ["index", "genre", "filename", "year", "old_index", "source1", "source2"]
    for split, begin, count in (("train", 0, num_train), ("dev", num_train, num_dev)):
        chosen = sentences()[begin : begin + count]
        kind = [next(n for n, who in enumerate(_WHO) if text.lower().startswith(who)) for text in chosen]
        pairs = [[str(number), "It was told in the harbour.", text] for number, text in enumerate(chosen)]
        tables = {
            # Its sentences end with a blank.
            "SST-2": (
                ["sentence", "label"],
                [[f"{text} ", str(k % 2)] for text, k in zip(chosen, kind, strict=True)],
            ),
            "RTE": (
                ["index", "sentence1", "sentence2", "label"],
                [[*pair, two[k % 2]] for pair, k in zip(pairs, kind, strict=True)],
            ),
            "MRPC": (
                ["\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
                [[str(k % 2), "1", "2", f'"{pair[1]}', pair[2]] for pair, k in zip(pairs, kind, strict=True)],
            ),
            "STS-B": (
                [*score_meta, "sentence1", "sentence2", "score"],
                [
                    [pair[0], *"gfy123", *pair[1:], f"{k % 6}.000"]
                    for pair, k in zip(pairs, kind, strict=True)
                ],
            ),
        }
        for name, (columns, rows) in tables.items():
            _table(folder / name / f"{split}.tsv", columns, rows)
        _sentiment(folder / "sentiment", split, chosen[:12], kind)
        num_labels = 1 if split == "train" else 5
        columns = [*pair_meta, *(f"label{number + 1}" for number in range(num_labels)), "gold_label"]
        rows = [
            [pair[0], *"1234567", *pair[1:], *[three[k % 3]] * (num_labels + 1)]
            for pair, k in zip(pairs, kind, strict=True)
        ]
        for name in ("train",) if split == "train" else ("dev_matched", "dev_mismatched"):
            _table(folder / "MNLI" / f"{name}.tsv", columns, rows)
    return folder


def write_pairs(folder: Path, num_pairs: int = 12) -> Path:
    """Two sets of minimal pairs in BLiMP's layout: the subject is missing, or it stands at the end."""
    for name, term, spoil in (
        ("missing_subject", "argument_structure", lambda who, rest: rest),
        ("subject_last", "word_order", lambda who, rest: f"{rest.removesuffix('.')} {who}."),
    ):
        rows = []
        for number, text in enumerate(sentences()[:num_pairs]):
            who = next(who for who in _WHO if text.lower().startswith(who))
            pair = {"sentence_good": text, "sentence_bad": spoil(who, text[len(who) + 1 :])}
            rows.append(json.dumps({**pair, "linguistics_term": term, "UID": name, "pairID": str(number)}))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def _sentiment(folder: Path, split: str, texts: list[str], kinds: list[int]) -> None:
    classes = ("negative", "neutral", "positive")
    rows = [f'"{text}",{classes[k % 3]},sst_local\n' for text, k in zip(texts, kinds, strict=False)]
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train_all",) if split == "train" else ("val_all", "test_all"):
        (folder / f"{name}.csv").write_text("sentence,label,source\n" + "".join(rows), encoding="utf-8")


def _table(path: Path, columns: list[str], rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [columns, *rows]), encoding="utf-8")
