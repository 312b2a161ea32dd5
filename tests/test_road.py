"""From a folder of text to scores: the commands as a person types them, each in a process of its own."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import RunElectra
from small_project import SETS, TOY_ENVIRONMENT, write_corpus, write_tasks
from tokenizers import Tokenizer

RUN_FILES = ("project.toml", "resolved.toml", "manifest.json", "status.json", "metrics.jsonl", "log.txt")
STAGES = ("vocabulary", "shards", "model", "export", "scores")


@dataclass
class Walk:
    """A project folder and what each command said there."""

    folder: Path
    said: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    trace: Path | None = None
    """The connections that were tried, one a line; `None` without strace."""

    def electra(self, *words: str, name: str = "") -> subprocess.CompletedProcess[str]:
        """Run one command without a network, where strace can take it away; exit code 0 must come."""
        command: Sequence[str] = (sys.executable, "-m", "electra_cli", *words)
        if self.trace is not None:
            options = ["-f", "--seccomp-bpf", "-qq", "-A", "-o", str(self.trace), "-e", "trace=connect"]
            command = ("strace", *options, "-e", "inject=connect:error=ENETUNREACH", *command)
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("ELECTRA_", "HF_"))
        }
        done = subprocess.run(
            command,
            cwd=self.folder,
            # Without HF_HUB_OFFLINE: whoever asks the Hub shows in the trace.
            env=environment | TOY_ENVIRONMENT | {"HF_HUB_OFFLINE": "0", "HF_HOME": str(self.folder / "hf")},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"electra {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        self.said[name or " ".join(words)] = done
        return done

    def json(self, name: str) -> dict[str, object]:
        content: dict[str, object] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return content


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    options = ["-f", "--seccomp-bpf", "-qq", "-o", os.devnull, "-e", "trace=connect"]
    return subprocess.run(["strace", *options, "true"], capture_output=True, check=False).returncode == 0


def digest(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """The whole road on text of our own, and the commands that build a second time."""
    folder = tmp_path_factory.mktemp("road")
    walk = Walk(folder, trace=folder.parent / "connections" if can_trace() else None)
    write_corpus(folder / "corpus")
    write_tasks(folder / "data" / "glue")
    for words in (
        "build-vocab corpus/", "shard-corpus", "init --recipe electra-small", "check",
        "pretrain project.toml", "export --no-check", "eval-glue --task sst2,mnli --offline", "report",
    ):  # fmt: skip
        walk.electra(*words.split())
        if words == "check":
            assert not (folder / "runs").exists(), "a check leaves nothing behind"
    walk.electra(name="board")
    before = digest(folder / "vocab") | digest(folder / "shards")
    for words in ("build-vocab corpus/", "shard-corpus", "pretrain project.toml"):
        walk.electra(*words.split(), name=f"{words} again")
    assert digest(folder / "vocab") | digest(folder / "shards") == before
    return walk


def test_the_vocabulary_begins_with_the_special_pieces(walk: Walk) -> None:
    pieces = (walk.folder / "vocab" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(pieces) == walk.json("vocab/manifest.json")["size"] == 320


def test_the_shards_hold_the_tokens_that_the_tokenizer_counts(walk: Walk) -> None:
    tokenizer = Tokenizer.from_file(str(walk.folder / "vocab" / "tokenizer.json"))
    texts = [path.read_text(encoding="utf-8") for path in (walk.folder / "corpus").iterdir()]
    documents = [document for text in texts for document in text.split("\n\n")]
    counted = sum(len(tokenizer.encode(document, add_special_tokens=False)) for document in documents)
    manifest = walk.json("shards/manifest.json")
    assert manifest["num_content_tokens"] == counted
    assert manifest["dropped"] == {}
    assert "0 tokens lost" in walk.said["shard-corpus"].stdout


def test_the_check_rehearses_the_run(walk: Walk) -> None:
    marks = [line.split()[:2] for line in walk.said["check"].stdout.splitlines() if line[:1] in "✓✗"]
    found = [name for _, name in marks]
    assert found == ["project", "vocabulary", "data", "model", "objective", "memory", "time", "disk", "smoke"]
    assert {mark for mark, _ in marks} == {"✓"}


def test_the_run_directory_is_whole(walk: Walk) -> None:
    run = walk.folder / "runs" / "latest"
    assert all((run / name).is_file() for name in RUN_FILES)
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(r["kind"], r["step"]) for r in records if r["kind"] != "warning"] == [
        ("train", 2), ("heldout", 3), ("train", 4), ("train", 6), ("heldout", 6),
    ]  # fmt: skip
    assert {path.name for path in (run / "checkpoints").iterdir()} >= {"step-00000003", "step-00000006"}


def test_the_export_is_three_model_folders(walk: Walk) -> None:
    for name, architecture in (
        ("encoder", "ElectraModel"),
        ("discriminator", "ElectraForPreTraining"),
        ("generator", "ElectraForMaskedLM"),
    ):
        folder = f"runs/latest/export/{name}"
        assert walk.json(f"{folder}/config.json")["architectures"] == [architecture]
        for file in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"):
            assert (walk.folder / folder / file).is_file(), f"{folder}/{file}"


def test_the_scores_hold_both_sides_of_mnli(walk: Walk) -> None:
    results = walk.json("runs/latest/evaluate/glue/results.json")
    tasks = results["tasks"]
    assert isinstance(tasks, dict) and set(tasks) == {"sst2", "mnli-m", "mnli-mm"}
    assert results["checkpoint_step"] == 6
    for task in tasks.values():
        (run,) = task["runs"]
        assert 0 <= run["value"] <= 1 and run["seed"] == 0
        assert task["published"] and all(entry["source"] for entry in task["published"])


def test_the_report_fetches_nothing(walk: Walk) -> None:
    page = (walk.folder / "runs" / "latest" / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//|@import|url\(", page)
    assert "<svg" in page and "mnli-mm" in page


def test_the_board_shows_every_stage_up_to_date(walk: Walk) -> None:
    board = walk.said["board"]
    for stage in STAGES:
        assert re.search(rf"✓ {stage} +up to date", board.stdout), board.stdout
    assert "Next:" not in board.stdout + board.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("build-vocab corpus/", "vocab/ is up to date"),
        ("shard-corpus", "shards/ is up to date"),
        ("pretrain project.toml", "already finished"),
    ],
)
def test_a_second_run_finds_its_work_done(walk: Walk, words: str, expected: str) -> None:
    done = walk.said[f"{words} again"]
    assert expected in done.stdout + done.stderr
    assert len(list((walk.folder / "runs").iterdir())) == 2, "one run, and latest"


def test_each_command_names_the_next(walk: Walk) -> None:
    chain = {
        "build-vocab corpus/": "electra shard-corpus",
        "shard-corpus": "electra pretrain",
        "init --recipe electra-small": "electra check",
        "check": "electra pretrain project.toml",
        "pretrain project.toml": "electra export",
        "export --no-check": "electra eval-glue",
    }
    for words, following in chain.items():
        done = walk.said[words]
        assert f"Next: {following}" in done.stdout + done.stderr, words


def test_off_a_terminal_no_line_holds_a_control_byte(walk: Walk) -> None:
    for words, done in walk.said.items():
        found = set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f]", done.stdout + done.stderr))
        assert not found, f"{words}: {found}"


def test_nothing_half_made_is_left(walk: Walk) -> None:
    for path in walk.folder.rglob("*"):
        assert not re.search(r"\.(tmp|part|partial)\b|\.work-", path.name), path


def test_the_whole_road_opens_no_connection(walk: Walk) -> None:
    if walk.trace is None:
        pytest.skip("strace is not installed, or may not trace here: connections cannot be watched")
    tried = walk.trace.read_text().splitlines()
    assert [line for line in tried if "AF_INET" in line] == []


def as_mnli(sick: Path, folder: Path, num_train: int, num_dev: int) -> None:
    """Write nli-sick's entailment pairs with MNLI's columns and file names."""
    folder.mkdir(parents=True)
    with gzip.open(sick, "rt", encoding="utf-8") as file:
        header, *rows = [line.rstrip("\n").split("\t") for line in file]
    first, second, label = (
        header.index(name) for name in ("sentence_A", "sentence_B", "entailment_judgment")
    )
    parses = [f"sentence{number}_{kind}" for kind in ("binary_parse", "parse") for number in (1, 2)]
    columns = [
        "index",
        "promptID",
        "pairID",
        "genre",
        *parses,
        "sentence1",
        "sentence2",
        "label1",
        "gold_label",
    ]
    begin = 0
    for name, count in (("train", num_train), ("dev_matched", num_dev), ("dev_mismatched", num_dev)):
        lines = ["\t".join(columns)]
        for row in rows[begin : begin + count]:
            gold = row[label].lower()
            lines.append("\t".join([row[0], *"1234567", row[first], row[second], gold, gold]))
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        begin += count


def test_the_road_on_a_book(data_folder: Path, electra: RunElectra, tmp_path: Path) -> None:
    """The commands in the order of the first project: the vocabulary first, shards made by pretrain."""
    book = data_folder / "corpus-quickstart" / "h-g-wells--the-war-of-the-worlds.txt.gz"
    (tmp_path / "corpus").mkdir()
    shutil.copy(book, tmp_path / "corpus" / "book.txt.gz")
    as_mnli(next((data_folder / "nli-sick").glob("*train.txt.gz")), tmp_path / "data/glue/MNLI", 150, 60)
    shutil.copytree(data_folder / "glue" / "SST-2", tmp_path / "data/glue/SST-2")
    environment = TOY_ENVIRONMENT | {
        "ELECTRA_SET": " ".join(
            (
                *SETS,
                "vocab.size=1000",
                "pretrain.steps=30",
                "pretrain.batch_size=16",
                "schedule.warmup_steps=5",
            )
        )
    }

    def run(command: str) -> str:
        done = electra(*command.split(), cwd=tmp_path, env=environment)
        return done.stdout + done.stderr

    def scored(words: str) -> set[str]:
        run(f"eval-glue --task {words}")
        results = json.loads((tmp_path / "runs/latest/evaluate/glue/results.json").read_text())
        return set(results["tasks"])

    assert "1,000 pieces" in run("build-vocab corpus/")
    run("init --recipe electra-small")
    assert "building it, as electra shard-corpus does" in run("pretrain project.toml")
    run("export --no-check")
    assert scored("mnli") == {"mnli-m", "mnli-mm"}
    assert "sst2" in scored("sst2 --seeds 1 --limit 100")
    folder = tmp_path / "runs" / "latest"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [record["losses"]["mlm"] for record in records if record["kind"] == "heldout"]
    assert losses[-1] < losses[0]
