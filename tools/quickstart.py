"""The whole pipeline on text that is already here: the documentation of the installed Python packages.

Run by `make quickstart`. It types the commands a user types, in the folder quickstart/, and then asks what
the training was worth: with a hundred examples of each, the pre-trained encoder, the same encoder with random
weights and a bag of words learn to tell a paragraph of documentation from one whose words were shuffled.
No network, no GPU, no data.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path("quickstart")
TASK = "word-order"
SEEDS = 3

PROJECT = f"""# What `make quickstart` runs: the recipe electra-tiny, shortened to minutes on two CPU cores.
[project]
name = "quickstart"
recipe = "electra-tiny"
[corpus]
files = ["corpus/"]
[vocab]
size = 2_048
# Half a million tokens are few. One encoder for both networks (Clark et al. 2020, section 3.2) learns from
# masked tokens too, and local layers of eight neighbours find word order soon; docs/log.md has other trials.
[model]
local_window = 8
[generator]
width = 0
depth_fraction = 1.0
sharing = "all"
[objective]
discriminator_weight = 20.0
[schedule]
warmup_steps = 50
[pretrain]
steps = 500
batch_size = 16
heldout_every = 125
heldout_rows = 256
save_every = 250
log_every = 50
[evaluate]
tasks = ["{TASK}"]
seeds = {SEEDS}
protocol = "electra-mean"
batch_size = 16
[[evaluate.task]]
name = "{TASK}"
train = "task/train.tsv"
dev = "task/dev.tsv"
metric = "accuracy"
epochs = 3
"""


def main() -> None:
    """Six numbered steps, each with its own screen; figures, quickstart.json and report at the end."""
    started = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    (FOLDER / "project.toml").write_text(PROJECT, encoding="utf-8")
    tour = Tour()
    tour.step("environment", environment)
    num_bytes = write_corpus()
    tour.step("electra build-vocab", lambda: electra("build-vocab"))
    tour.step("electra shard-corpus", lambda: electra("shard-corpus"))
    tour.step("electra pretrain", lambda: electra("pretrain", "project.toml"))
    tour.step("electra export", lambda: electra("export"))
    scores = tour.step("electra eval-glue", evaluate)
    run = (FOLDER / "runs" / "latest").resolve()
    tour.seconds["all"] = time.monotonic() - started
    result = {"scores": scores, "seconds": {name: round(value, 1) for name, value in tour.seconds.items()}}
    for folder in (FOLDER, run):
        (folder / "quickstart.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    electra("report")
    print()
    for line in summary(run, num_bytes, scores):
        print(line)
    print(f"{tour.seconds['all'] / 60:.1f} minutes      Next: electra init --recipe electra-small")
    if min(scores["pretrained"]) <= max(scores["random"]):
        sys.exit("a pre-trained score is not above every random start; docs/log.md tells what was tried")


class Tour:
    """Announces the steps and keeps their seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Do one step under its heading and return what it returns."""
        print(f"\n[{len(self.seconds) + 1}/6] {name}", flush=True)
        begin = time.monotonic()
        result = work()
        self.seconds[name] = time.monotonic() - begin
        return result


def summary(run: Path, num_bytes: int, scores: Mapping[str, Any]) -> Iterator[str]:
    """A line a stage with the figures that matter."""
    vocabulary = json.loads((FOLDER / "vocab" / "manifest.json").read_text(encoding="utf-8"))
    shards = json.loads((FOLDER / "shards" / "manifest.json").read_text(encoding="utf-8"))
    export = json.loads((run / "export" / "export.json").read_text(encoding="utf-8"))
    text = f"{num_bytes / 1e6:.1f} MB of installed documentation"
    yield f"vocabulary   {vocabulary['size']:,} pieces from {text}"
    tokens = shards["num_content_tokens"] / 1e6
    yield f"shards       {tokens:.1f} M tokens, {len(shards['shards'])} files, 0 tokens lost"
    yield f"model        {training_figures(run)}"
    yield f"export       self-check {'passed' if export['self_check'] else 'skipped: no transformers'}"
    pretrained, random = (100 * statistics.median(scores[name]) for name in ("pretrained", "random"))
    seeds = f"({SEEDS} seeds each)"
    yield f"{TASK}  pretrained {pretrained:.1f}   random start {random:.1f}   {seeds}"
    words, majority = (100 * scores[name] for name in ("bag_of_words", "majority"))
    yield f"             bag of words {words:.1f}   majority {majority:.1f}"


def environment() -> None:
    """What runs."""
    import torch

    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, {torch.get_num_threads()} threads")


def write_corpus() -> int:
    """Write the text and the task; returns the text's bytes."""
    from electra_cli.data.installed_docs import write_installed_docs

    docs = write_installed_docs(FOLDER / "corpus", FOLDER / "task")
    return docs.num_bytes


def electra(*arguments: str) -> None:
    """Run a command in the folder, with its own screen; the tour ends where one fails."""
    done = subprocess.run(
        [sys.executable, "-m", "electra_cli", *arguments],
        cwd=FOLDER,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    if done.returncode:
        raise SystemExit(done.returncode)


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
    electra("eval-glue", "--task", TASK)
    print("\nthe same from random weights")
    electra("eval-glue", "--task", TASK, "--model", "random")
    pretrained = FOLDER / "runs" / "latest" / "evaluate" / "glue"
    random = FOLDER / "evaluate" / "glue" / "random"
    return {"pretrained": task_values(pretrained), "random": task_values(random)} | baselines()


def task_values(folder: Path) -> list[float]:
    """The score of each run."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return [run["value"] for run in results["tasks"][TASK]["runs"]]


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
    encoder = objective.exports()["encoder"]
    write_folder(folder, encoder)
    write_tokenizer(
        folder,
        vocabulary,
        model_type=str(encoder.config["model_type"]),
        model_max_length=project.settings.rows.sequence_length,
    )


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
