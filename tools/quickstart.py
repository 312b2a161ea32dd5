"""The whole pipeline on text that is already here: the documentation of the installed Python packages.

Run by `make quickstart`. It types the commands a user types, in the folder quickstart/, and then asks what
the training was worth: the pre-trained encoder, the same encoder with random weights, a bag of words and the
majority class name the package that a paragraph of documentation comes from. No network, no GPU, no data.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path("quickstart")
TASK = "docs-origin"
SEEDS = 3

PROJECT = f"""# What `make quickstart` runs: the recipe electra-tiny, shortened to minutes on two CPU cores.
[project]
name = "quickstart"
recipe = "electra-tiny"
[corpus]
files = ["corpus/"]
[pretrain]
steps = 1_200
[evaluate]
tasks = ["{TASK}"]
seeds = {SEEDS}
[[evaluate.task]]
name = "{TASK}"
train = "task/train.tsv"
dev = "task/dev.tsv"
metric = "accuracy"
epochs = 3
"""


def main() -> None:
    """Six numbered steps, each with its figures; quickstart.json and report.html at the end."""
    started = time.monotonic()
    seconds: dict[str, float] = {}
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    (FOLDER / "project.toml").write_text(PROJECT, encoding="utf-8")
    say(1, "environment", environment())

    begin = time.monotonic()
    docs = write_corpus()
    vocabulary = electra("build-vocab")
    seconds["build-vocab"] = time.monotonic() - begin
    say(
        2,
        "electra build-vocab",
        f"{vocabulary['size']:,} pieces from {docs / 1e6:.1f} MB of installed documentation",
    )

    begin = time.monotonic()
    shards = electra("shard-corpus")
    seconds["shard-corpus"] = time.monotonic() - begin
    tokens = f"{shards['num_content_tokens'] / 1e6:.1f} M tokens, {shards['files']} shards, 0 tokens lost"
    say(3, "electra shard-corpus", tokens)

    begin = time.monotonic()
    electra("pretrain", "project.toml")
    seconds["pretrain"] = time.monotonic() - begin
    run = (FOLDER / "runs" / "latest").resolve()
    say(4, "electra pretrain", training_figures(run))

    begin = time.monotonic()
    exported = electra("export")
    seconds["export"] = time.monotonic() - begin
    passed = "self-check passed" if exported["differences"] else f"not checked: {exported['not_checked']}"
    say(5, "electra export", f"encoder, discriminator, generator   {passed}")

    begin = time.monotonic()
    scores = evaluate()
    seconds["eval-glue"] = time.monotonic() - begin
    pretrained, random = (statistics.median(scores[name]) for name in ("pretrained", "random"))
    shown = f"pretrained {100 * pretrained:.1f}   random start {100 * random:.1f}"
    say(6, "electra eval-glue", f"{TASK}   {shown}   ({SEEDS} seeds each)")
    words, majority = (100 * scores[name] for name in ("bag_of_words", "majority"))
    print(f"{'':<30}beside: bag of words {words:.1f}   majority {majority:.1f}")

    seconds["all"] = time.monotonic() - started
    result = {"scores": scores, "seconds": {name: round(value, 1) for name, value in seconds.items()}}
    for folder in (FOLDER, run):
        (folder / "quickstart.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    page = electra("report")
    print(f"Report: {page['report']}      {seconds['all'] / 60:.1f} minutes")
    print("Next: electra init --recipe electra-small")
    if min(scores["pretrained"]) <= max(scores["random"]):
        sys.exit("a pre-trained score is not above every random start: something is wrong, please report it")


def say(number: int, what: str, figures: str) -> None:
    """One line of the tour."""
    print(f"[{number}/6] {what:<24}{figures}", flush=True)


def environment() -> str:
    """What runs."""
    import torch

    return f"Python {sys.version.split()[0]}, torch {torch.__version__}, {torch.get_num_threads()} threads"


def write_corpus() -> int:
    """Write the text and the task; returns the text's bytes."""
    from electra_cli.data.installed_docs import write_installed_docs

    docs = write_installed_docs(FOLDER / "corpus", FOLDER / "task", train_per_package=300)
    return docs.num_bytes


def electra(*arguments: str) -> dict[str, Any]:
    """Run a command in the folder, its messages on the screen; returns its result event."""
    done = subprocess.run(
        [sys.executable, "-m", "electra_cli", *arguments, "--format", "json"],
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        problem = next((event for event in reversed(events) if event["event"] == "error"), {})
        raise SystemExit(f"electra {' '.join(arguments)} failed with exit code {done.returncode}: {problem}")
    result: dict[str, Any] = events[-1]
    return result


def training_figures(run: Path) -> str:
    """First and last figures on held-out rows."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    heldout = [record for record in records if record["kind"] == "heldout"]
    first, last = heldout[0], heldout[-1]
    return (
        f"{last['step']:,} steps   held-out mlm {first['losses']['mlm']:.1f} → {last['losses']['mlm']:.1f}   "
        f"disc AUC {first['disc_auc']:.2f} → {last['disc_auc']:.2f}"
    )


def evaluate() -> dict[str, Any]:
    """Accuracies of every seed, and of the two baselines without a network."""
    write_random_encoder(FOLDER / "random")
    pretrained, random = (
        task_values(electra("eval-glue", "--task", TASK, *more)) for more in ((), ("--model", "random"))
    )
    return {"pretrained": pretrained, "random": random} | baselines()


def task_values(result: Mapping[str, Any]) -> list[float]:
    """The score of each run."""
    return [run["value"] for run in result["results"]["tasks"][TASK]["runs"]]


def write_random_encoder(folder: Path) -> None:
    """The encoder as it was before the first step, with the same tokenizer."""
    from electra_cli.data.vocabulary import load_vocabulary
    from electra_cli.export.tokenizer_files import write_tokenizer
    from electra_cli.models.folders import write_folder
    from electra_cli.objectives import find
    from electra_cli.objectives.base import VocabularyFacts
    from electra_cli.project import load_project

    project = load_project(FOLDER / "project.toml")
    vocabulary = load_vocabulary(project.vocab_dir)
    make = find(project.settings.objective.use, project.root)
    objective = make(project.settings, VocabularyFacts.of(vocabulary))
    write_folder(folder, objective.exports()["encoder"])
    write_tokenizer(folder, vocabulary, model_max_length=project.settings.rows.sequence_length)


def baselines() -> dict[str, float]:
    """Accuracy of a logistic regression over words, and of the most frequent class."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    def read(split: str) -> tuple[list[str], list[str]]:
        lines = (FOLDER / "task" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
        texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
        return list(texts), list(labels)

    (train_texts, train_labels), (dev_texts, dev_labels) = read("train"), read("dev")
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    words = vectorizer.fit_transform(train_texts)
    model = LogisticRegression(C=10, max_iter=1000).fit(words, train_labels)
    commonest = statistics.mode(train_labels)
    return {
        "bag_of_words": float(model.score(vectorizer.transform(dev_texts), dev_labels)),
        "majority": dev_labels.count(commonest) / len(dev_labels),
    }


if __name__ == "__main__":
    main()
