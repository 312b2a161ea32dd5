"""`electra collaborate` as a person runs it: exit codes, kill -9, dry runs, the report."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from collaboration_cases import read_results, write_encoder, write_rows
from conftest import RunElectra
from stub_server import Call, Reply, in_schema, serving

from electra_cli.commands._boundary import run
from electra_cli.main import app

QUICK = ("-scollaborate.backoff_seconds=0.0", "-scollaborate.resamples=20")


def arguments(base_url: str, *more: str) -> list[str]:
    return [
        *("collaborate", "--data", "rows.csv", "--encoder", "encoder.csv:p", "--out", "out"),
        *(f"-scollaborate.base_url={base_url}", "-scollaborate.model=stub", *QUICK, *more),
    ]


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, electra: RunElectra) -> None:
    """Under 1 % of the questions are asked twice: those under way, here one of 240 at most."""
    write_rows(tmp_path, 120)
    write_encoder(tmp_path, 120)
    is_half_done, is_killed = threading.Event(), threading.Event()
    asked: Counter[str] = Counter()

    def behave(call: Call) -> Reply:
        asked[json.dumps(call.body)] += 1
        if len(asked) > 130:
            is_half_done.set()
            is_killed.wait(300)
        return in_schema("positive")

    with serving(behave) as stub:
        words = arguments(stub.base_url, "-scollaborate.concurrency=1", "--strategy", "alone,label,cascade")
        words += ["-scollaborate.budget=40", "--format", "json"]
        command = [sys.executable, "-m", "electra_cli", *words]
        running = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert is_half_done.wait(300)
        running.send_signal(signal.SIGKILL)
        running.wait()
        is_killed.set()
        assert not (tmp_path / "out" / "results.json").exists()
        electra(*words, cwd=tmp_path)
    assert len(asked) == 240
    assert sum(asked.values()) - 240 <= 1
    results = read_results(tmp_path / "out")
    ledger = results["ledger"]
    assert ledger["requests"] + ledger["requests_before"] == sum(asked.values())  # type: ignore[index]
    strategies = results["strategies"]
    assert [one["calls"] for one in strategies.values()] == [0, 120, 120, 40]  # type: ignore[attr-defined]
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") == 1
    assert "polyline" in page and "circle" in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")


def test_ctrl_c_keeps_what_was_answered(tmp_path: Path, electra: RunElectra) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    with serving(lambda call: in_schema("neutral")) as stub:
        reached = threading.Event()

        def slow(call: Call) -> Reply:
            if len(stub.calls) <= 5:
                return in_schema("neutral")
            reached.set()
            return Reply("neutral", delay=60)

        stub.behave = slow
        words = arguments(stub.base_url, "-scollaborate.concurrency=1", "--strategy", "alone")
        command = [sys.executable, "-m", "electra_cli", *words]
        running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
        assert reached.wait(300)
        start = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=30)
        assert running.returncode == 130, stderr.decode()
        assert time.monotonic() - start < 20
        stub.behave = lambda call: in_schema("neutral")
        electra(*words, cwd=tmp_path)
        assert len(stub.calls) == 6 + 7


def test_a_dry_run_shows_calls_tokens_and_price(tmp_path: Path, electra: RunElectra) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    (tmp_path / "project.toml").write_text(
        '[collaborate]\nmodel = "m"\n[[collaborate.price]]\nmodel = "m"\ninput = 0.15\noutput = 0.6\n'
    )
    words = ["collaborate", "--data", "rows.csv", "--encoder", "encoder.csv:p", "--dry-run"]
    done = electra(*words, "-scollaborate.budget=3", "--format", "json", cwd=tmp_path)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["calls"] == 24
    assert 0 < result["usd"] < result["most_usd"] < 0.1
    assert [row[1] for row in result["tables"][0]["rows"]] == [12, 12, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.csv", "project.toml", "rows.csv"]


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["-scollaborate.base_url=https://llm.example/v1"], 4, "--allow-upload"),
        (["-scollaborate.base_url=http://llm.example/v1", "--allow-upload"], 4, "plain http"),
        (["-scollaborate.base_url=https://llm.example/v1", "--allow-upload"], 4, "OPENAI_API_KEY is not set"),
        (["-scollaborate.api_key=sk-abcdefghijklmnop"], 3, "looks like a secret"),
        (["-scollaborate.model=sk-abcdefghijklmnop"], 3, "looks like a secret"),
        (["--api-key=sk-abcdefghijklmnop"], 2, "No such option"),
        (["--strategy", "guess"], 3, "there is no strategy 'guess'"),
        (["--strategy", ","], 3, "strategies is empty"),
        (["-scollaborate.inside=cascade"], 3, "inside = 'cascade': a cascade asks with one of alone, label"),
        (["--strategy", "cascade"], 2, "--validation"),
        (["--validation", "rows.csv", "--validation", "rows.csv"], 2, "--validation is given once"),
        (["--quantile", ".1"], 2, "--quantile has no effect without --replay"),
        (["--replay", "encoder.csv"], 2, "--encoder has no effect with --replay"),
        (["--fine-tuning", "--dry-run"], 2, "--dry-run has no effect with --fine-tuning"),
        (["--strategy", "examples"], 2, "--examples"),
        (["--strategy", "examples", "--examples", "rows.csv"], 4, "recording without hidden states"),
        (["--encoder", "nothing.csv"], 4, "there is no file or folder nothing.csv"),
        (["--strategy", "alone", "--reference", "best", "--dry-run"], 2, "--reference best"),
        (["--data", "ragged.csv"], 4, "correct the file\n"),
        (["--out", "rows.csv"], 4, "rows.csv is no folder"),
        (["--out", "."], 4, "did not write: encoder.csv, ragged.csv, rows.csv"),
        (["--data", "nothing.csv"], 4, "cannot read nothing.csv"),
        (["--text", "body"], 4, "has no column 'body'"),
    ],
)
def test_bad_input_has_its_exit_code_and_no_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    code: int,
    message: str,
) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    (tmp_path / "ragged.csv").write_text("text,label\na,positive\nb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    # On this machine, so that the refusal to send anything elsewhere does not come first.
    here = "-scollaborate.base_url=http://127.0.0.1:9/v1"
    words = ["collaborate", "--data", "rows.csv", "--encoder", "encoder.csv:p", here, *more]
    assert run(app, words) == code
    stdout, stderr = capsys.readouterr()
    assert message in stderr
    assert "Traceback" not in stderr
    assert "abcdefgh" not in stdout + stderr


@pytest.mark.parametrize("quantile", ["1.5", "-1", "nan", "much"])
def test_a_quantile_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], quantile: str) -> None:
    words = ["--replay-column", "m", "--encoder-column", "p", f"--quantile={quantile}"]
    assert run(app, ["collaborate", "--replay", "recorded.csv", *words]) == 2
    assert "numbers from 0 to 1" in capsys.readouterr().err


def test_security_S11_a_folder_of_something_else_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as the results of eval-glue, whose file bears the same name."""
    write_rows(tmp_path)
    write_encoder(tmp_path)
    (tmp_path / "recorded.csv").write_text("gold,m,p\nno,no,0.9 0.1\nyes,yes,0.2 0.8\n")
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "results.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    replayed = ["collaborate", "--replay", "recorded.csv", "--replay-column", "m", "--encoder-column", "p"]
    for words in (arguments("http://127.0.0.1:9/v1", "--strategy", "alone", "--force"), replayed):
        assert run(app, [*words, "--out", "scores"]) == 4
        assert "scores holds files that electra collaborate did not write: results.json" in (
            capsys.readouterr().err
        )
    assert [path.name for path in (tmp_path / "scores").iterdir()] == ["results.json"]
    assert (tmp_path / "scores" / "results.json").read_text() == "{}"


def test_a_key_in_the_project_file_is_refused(tmp_path: Path, electra: RunElectra) -> None:
    (tmp_path / "project.toml").write_text('[collaborate]\napi_key = "abcdefghijkl"\n')
    done = electra("collaborate", "--data", "x", "--encoder", "y", cwd=tmp_path, check=3)
    assert "looks like a secret" in done.stderr
    assert "abcdefgh" not in done.stderr


def test_an_unknown_reference_is_refused(tmp_path: Path, electra: RunElectra) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    with serving(lambda call: in_schema("neutral")) as stub:
        done = electra(
            *arguments(stub.base_url, "--strategy", "alone", "--reference", "best"), cwd=tmp_path, check=2
        )
        assert "there are: encoder, alone" in done.stderr
        assert stub.calls == []


def test_two_runs_in_one_folder_are_refused(tmp_path: Path, electra: RunElectra) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    with serving(lambda call: Reply("neutral", delay=60)) as stub:
        words = arguments(stub.base_url, "--strategy", "alone")
        running = subprocess.Popen(
            [sys.executable, "-m", "electra_cli", *words],
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not stub.calls and running.poll() is None:
                time.sleep(0.05)
            assert "already running" in electra(*words, cwd=tmp_path, check=4).stderr
        finally:
            running.kill()
            running.wait()
