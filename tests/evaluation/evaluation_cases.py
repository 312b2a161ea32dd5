"""A model and task files that we write ourselves: small, in the official layouts, with their traps."""

import json
from pathlib import Path

from electra_cli import durable
from electra_cli.evaluation.request import Request
from electra_cli.models.backbones import build_encoder
from electra_cli.models.folders import encoder_folder, write_folder
from electra_cli.models.initial import initialise
from electra_cli.models.sizes import EncoderConfig
from electra_cli.project import Project, project_from_settings
from electra_cli.settings import BackboneName, Evaluate, ProjectSettings

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    "good",
    "bad",
    "film",
    "plot",
    "actor",
    "the",
    "a",
    "is",
    "was",
    "very",
    "same",
    "other",
    "cat",
    "dog",
]
LETTERS = list("abcdefghijklmnopqrstuvwxyz0123456789.,'\"?!-")


def write_model(
    folder: Path,
    *,
    num_layers: int = 1,
    hidden_size: int = 32,
    std: float = 0.2,
    backbone: BackboneName = "electra",
) -> Path:
    """A random encoder with a vocabulary that spells every word of ours."""
    pieces = SPECIAL + WORDS + LETTERS + [f"##{letter}" for letter in LETTERS]
    config = EncoderConfig(
        vocab_size=len(pieces),
        num_layers=num_layers,
        hidden_size=hidden_size,
        feed_forward_size=2 * hidden_size,
        num_heads=2,
        embedding_size=hidden_size if backbone == "modern" else 16,
        max_positions=64,
        num_segments=2 if backbone == "electra" else 0,
        backbone=backbone,
    )
    encoder = build_encoder(config)
    initialise(encoder, seed=0, std=std)
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, encoder_folder(encoder))
    durable.write_text(folder / "vocab.txt", "\n".join(pieces) + "\n")
    return folder


def make_project(root: Path, **evaluate: object) -> Project:
    """A project whose runs are quick and learn something."""
    settings = {"learning_rate": 5e-3, "layer_decay": 1.0, "dropout": 0.0, "seeds": 2, "batch_size": 16}
    return project_from_settings(ProjectSettings(evaluate=Evaluate.model_validate(settings | evaluate)), root)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def tsv(*rows: list[str]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def sentiment(number: int) -> tuple[str, str]:
    """A sentence and its label, "1" for good; every third is long."""
    label = number % 2
    return f"the {['film', 'plot', 'actor'][number % 3]} is {'good' if label else 'bad'}" + (
        " a very very film" * (number % 3 == 0)
    ), str(label)


def pair_of(number: int, classes: list[str]) -> tuple[str, str, str]:
    """Two sentences and the class that the second one's last word tells."""
    number_class = number % len(classes)
    return "the cat is a cat", f"the dog is {['same', 'other', 'bad'][number_class]}", classes[number_class]


def write_glue(folder: Path, num_train: int = 48, num_dev: int = 24, num_test: int = 6) -> Path:
    """All eleven files' tasks in the official layouts, test files without labels."""
    sizes = {"train": num_train, "dev": num_dev}
    for split, count in sizes.items():
        texts = [sentiment(number) for number in range(count)]
        write(folder / f"CoLA/{split}.tsv", tsv(*(["gj04", label, "", text] for text, label in texts)))
        write(
            folder / f"SST-2/{split}.tsv",
            tsv(["sentence", "label"], *([f"{text} ", label] for text, label in texts)),
        )
        for name, classes, header in (
            ("RTE", ["entailment", "not_entailment"], ["index", "sentence1", "sentence2", "label"]),
            ("QNLI", ["entailment", "not_entailment"], ["index", "question", "sentence", "label"]),
            ("WNLI", ["1", "0"], ["index", "sentence1", "sentence2", "label"]),
        ):
            rows = [[str(number), *pair_of(number, classes)] for number in range(count)]
            write(folder / f"{name}/{split}.tsv", tsv(header, *rows))
        rows = []
        for number in range(count):
            first, second, label = pair_of(number, ["1", "0"])
            rows.append([label, "1", "2", f'"{first}', second])
        header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        # A byte order mark, Windows line ends and lone quotation marks, as in the original.
        write(folder / f"MRPC/{split}.tsv", "\ufeff" + tsv(header, *rows).replace("\n", "\r\n"))
        rows = []
        for number in range(count):
            first, second, label = pair_of(number, ["1", "0"])
            rows.append([str(number), "1", "2", first, second if number else "", label])
        write(
            folder / f"QQP/{split}.tsv",
            tsv(["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], *rows),
        )
        rows = []
        for number in range(count):
            first, second, _ = pair_of(number, ["a", "b"])
            score = f"{(number % 2) * 4 + number % 5 * 0.2:.3f}"
            rows.append([str(number), "g", "f", "2012", "1", "s", "s", first, second, score])
        write(folder / f"STS-B/{split}.tsv", tsv(STS_HEADER, *rows))
    write_mnli(folder, num_train, num_dev)
    _write_tests(folder, num_test)
    return folder


_STS_META = ["index", "genre", "filename", "year", "old_index", "source1", "source2"]
STS_HEADER = [*_STS_META, "sentence1", "sentence2", "score"]
_MNLI_PARSES = [f"sentence{n}_{kind}" for kind in ("binary_parse", "parse") for n in (1, 2)]
MNLI_HEADER = ["index", "promptID", "pairID", "genre", *_MNLI_PARSES, "sentence1", "sentence2"]
THREE = ["entailment", "neutral", "contradiction"]


def write_mnli(folder: Path, num_train: int = 48, num_dev: int = 24) -> None:
    for name, count, annotators in (
        ("train", num_train, 1),
        ("dev_matched", num_dev, 5),
        ("dev_mismatched", num_dev, 5),
    ):
        header = [*MNLI_HEADER, *(f"label{n + 1}" for n in range(annotators)), "gold_label"]
        rows = []
        for number in range(count):
            first, second, label = pair_of(number, THREE)
            rows.append([str(number), *["x"] * 7, first, second, *[label] * annotators, label])
        write(folder / f"MNLI/{name}.tsv", tsv(header, *rows))


def _write_tests(folder: Path, count: int) -> None:
    pairs = [pair_of(number, THREE)[:2] for number in range(count)]
    numbered = [[str(number), *pair] for number, pair in enumerate(pairs)]
    one = tsv(["index", "sentence"], *([str(n), sentiment(n)[0]] for n in range(count)))
    write(folder / "CoLA/test.tsv", one)
    write(folder / "SST-2/test.tsv", one)
    for name in ("RTE", "WNLI"):
        write(folder / f"{name}/test.tsv", tsv(["index", "sentence1", "sentence2"], *numbered))
    write(folder / "AX/AX.tsv", tsv(["index", "sentence1", "sentence2"], *numbered))
    write(folder / "QNLI/test.tsv", tsv(["index", "question", "sentence"], *numbered))
    write(folder / "QQP/test.tsv", tsv(["id", "question1", "question2"], *numbered))
    mrpc = [[str(n), "1", "2", *pair] for n, pair in enumerate(pairs)]
    write(
        folder / "MRPC/test.tsv", "\ufeff" + tsv(["index", "#1 ID", "#2 ID", "#1 String", "#2 String"], *mrpc)
    )
    write(
        folder / "STS-B/test.tsv",
        tsv(STS_HEADER[:-1], *([str(n), *["x"] * 6, *pair] for n, pair in enumerate(pairs))),
    )
    for name in ("test_matched", "test_mismatched"):
        write(
            folder / f"MNLI/{name}.tsv",
            tsv(MNLI_HEADER, *([str(n), *["x"] * 7, *pair] for n, pair in enumerate(pairs))),
        )


def read_results(folder: Path) -> dict[str, object]:
    """results.json, refusing what is no strict JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    content = json.loads((folder / "results.json").read_text("utf-8"), parse_constant=refuse)
    assert isinstance(content, dict)
    return content


def request(folder: Path, **values: object) -> Request:
    """A request for task files below `folder`, results beside them."""
    return Request(data=folder / "glue", out=folder / "out", **values)  # type: ignore[arg-type]
