"""The contract of the command line: help, exit codes, streams, errors, and what is refused."""

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from conftest import RunElectra

from electra_cli import main
from electra_cli.commands import _boundary
from electra_cli.commands._help import SECTIONS
from electra_cli.errors import CorruptError, ElectraError, ExitCode, MemoryShortError, StorageError

GOLDEN = Path(__file__).parent / "golden" / "help.txt"
COMMANDS = [
    *([name] for names in SECTIONS.values() for name in names),
    *(["config", name] for name in ("show", "explain", "schema")),
    *(["runs", name] for name in ("list", "compare")),
]
HEAVY = ("torch", "transformers", "datasets", "pyarrow", "numpy", "tokenizers", "rich")
CANARY = "canary-9f3a"


def test_acceptance_2_help_is_the_golden_text(electra: RunElectra) -> None:
    assert electra("--help", env={"COLUMNS": "80"}).stdout == GOLDEN.read_text(encoding="utf-8")


def test_acceptance_2_every_help_is_narrow_and_imports_nothing_heavy() -> None:
    # One process: what any sub-help imported would still be there at the end.
    script = (
        "import sys\n"
        "from electra_cli import main\n"
        "from electra_cli.commands import _boundary\n"
        f"for words in {COMMANDS}:\n"
        "    assert _boundary.run(main.app, [*words, '--help']) == 0, words\n"
        f"print(*(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)\n"
    )
    environment = os.environ | {"COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == ""
    assert done.stdout.count("Usage: electra") == len(COMMANDS)
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_a_help_text_names_no_type_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    for words in COMMANDS:
        _boundary.run(main.app, [*words, "--help"])
    shown = capsys.readouterr().out
    assert "CORPUS" in shown
    assert not re.findall(r"list\[|\bTEXT\b|\bstr\b|None\b|<(?!\w+\|)[^>]*>", shown)


@pytest.mark.parametrize(
    "module", ["electra_cli.main", "typer", "electra_cli.commands.status", "electra_cli.project", "pydantic"]
)
def test_ctrl_c_while_modules_are_imported_ends_like_any_other(module: str, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "class Press:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
        "sys.argv = ['electra', 'config', 'show']\n"
        "from electra_cli.__main__ import run\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (ExitCode.INTERRUPTED, "")
    assert "stopped by Ctrl-C" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_background_job_that_ignores_ctrl_c_keeps_ignoring_it(tmp_path: Path) -> None:
    script = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "sys.argv = ['electra', '--version']\n"
        "from electra_cli.__main__ import run\n"
        "try:\n"
        "    run()\n"
        "finally:\n"
        "    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True)


def test_brackets_in_a_help_text_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert _boundary.run(main.app, ["export", "--help"]) == 0
    assert "[RUN]" in capsys.readouterr().out


def test_the_version_is_told(electra: RunElectra) -> None:
    assert re.fullmatch(r"electra \d+\.\d+\.\d+\n", electra("--version").stdout)


@pytest.mark.parametrize(
    "words",
    [
        ["--nope"],
        ["nope"],
        ["init", "x"],
        ["init", "--recipe"],
        ["init", "--recipe", "elektra-small"],
        ["config", "nope"],
        ["config", "explain"],
        ["config", "explain", "pretrain.stepz"],
        ["config", "show", "--format", "xml"],
        ["config", "show", "-s", "pretrain.steps"],
        ["runs", "compare", "a"],
        ["--format", "json", "init"],
    ],
)
def test_a_wrong_command_line_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _boundary.run(main.app, words) == ExitCode.USAGE
    out, err = capsys.readouterr()
    if "json" in words:
        out, err = "", f"✗ {json.loads(out)['message']}"
    assert out == ""
    assert err.startswith("✗ ")
    assert "Traceback" not in err and "Value error" not in err


def test_the_board_is_an_event_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _boundary.run(main.app, ["--format", "json"]) == ExitCode.OK
    event = json.loads(capsys.readouterr().out)
    assert (event["event"], event["command"], event["stages"]) == ("result", "electra", {})


@pytest.mark.parametrize("command", ["build-vocab", "shard-corpus"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf://nobody", "hf://nobody is no data set"),
        ("", "an empty name"),
        ("a\nb\x1b", "no setting can hold"),
    ],
)
def test_odd_names_of_a_corpus_are_refused_as_they_were_typed(
    command: str,
    name: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own.txt"
    own.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    words = [command, name, *(["-s", f"vocab.path={own}"] if command == "shard-corpus" else [])]
    assert _boundary.run(main.app, words) == ExitCode.INPUT
    out, err = capsys.readouterr()
    assert said in err and "\x1b" not in err and not out


def test_a_wrong_command_line_is_an_event_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert _boundary.run(main.app, ["config", "show", "--format", "json", "--nope"]) == ExitCode.USAGE
    event = json.loads(capsys.readouterr().out)
    assert (event["event"], event["code"], event["exit_code"]) == ("error", "usage", 2)


def test_init_writes_a_project_that_loads_and_never_overwrites_one(
    electra: RunElectra, tmp_path: Path
) -> None:
    done = electra("init", "--recipe", "electra-base", cwd=tmp_path)
    assert "Next: electra check" in done.stderr
    written = (tmp_path / "project.toml").read_text()
    shown = json.loads(electra("config", "show", "--format", "json", cwd=tmp_path).stdout)
    assert shown["settings"]["project"]["recipe"] == "electra-base"
    assert (
        shown["settings"]["pretrain"] | {"steps": 766_000, "batch_size": 256} == shown["settings"]["pretrain"]
    )
    assert shown["origins"]["pretrain.steps"].startswith("project.toml line ")
    electra("init", cwd=tmp_path, check=4)
    assert (tmp_path / "project.toml").read_text() == written


def test_acceptance_7_and_8_a_broken_project_is_exit_3_in_plain_lines(
    electra: RunElectra, tmp_path: Path
) -> None:
    (tmp_path / "project.toml").write_text('[pretrain]\nstepz = 10\nbatch_size = "x\\u001b[2J"\n')
    done = electra("config", "show", cwd=tmp_path, check=3)
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "✗ project.toml has 2 problems"
    assert "line 2   pretrain.stepz = 10" in done.stderr
    assert "did you mean `steps`?" in done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stderr)
    event = json.loads(electra("config", "show", "--format", "json", cwd=tmp_path, check=3).stdout)
    assert [problem["line"] for problem in event["problems"]] == [2, 3]
    assert event["path"] == "project.toml"


def test_acceptance_10_origins_are_shown(electra: RunElectra, tmp_path: Path) -> None:
    (tmp_path / "project.toml").write_text("[pretrain]\nsteps = 10\n")
    done = electra(
        "config",
        "show",
        "--origin",
        "-s",
        "rows.sequence_length=64",
        cwd=tmp_path,
        env={"ELECTRA_SET": "project.seed=3"},
    )
    shown = re.sub(" +", " ", done.stdout)
    assert "steps = 10 # project.toml line 2" in shown
    assert "sequence_length = 64 # --set" in shown
    assert "seed = 3 # ELECTRA_SET" in shown
    assert "weight_decay = 0.01 # recipe electra-small" in shown


def test_the_status_board_tells_the_one_next_command(electra: RunElectra, tmp_path: Path) -> None:
    start = electra(cwd=tmp_path)
    assert "No project.toml here." in start.stdout
    assert "electra init" in start.stdout
    (tmp_path / "project.toml").write_text("")
    board = electra(cwd=tmp_path)
    assert [line.split()[1] for line in board.stdout.splitlines()[2:]] == [
        "vocabulary",
        "shards",
        "model",
        "export",
        "scores",
    ]
    assert board.stderr == "Next: electra build-vocab\n"


def test_acceptance_8_a_command_in_a_pipe_gives_plain_lines_or_events(
    electra: RunElectra, tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("some words of a short text\n\n" * 50)
    words = ["build-vocab", "corpus/", "-s", "vocab.size=100"]
    done = electra(*words, cwd=tmp_path, env={"TERM": "xterm"})
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", done.stdout + done.stderr)
    assert "vocab/tokenizer.json" in done.stdout
    assert "Next: electra shard-corpus" in done.stderr
    again = electra(*words, "--format", "json", cwd=tmp_path)
    events = [json.loads(line) for line in again.stdout.splitlines()]
    assert again.stderr == ""
    assert (events[-1]["event"], events[-1]["is_fresh"]) == ("result", False)
    assert all(event["command"] == "build-vocab" for event in events)


def test_a_setting_is_explained(electra: RunElectra, tmp_path: Path) -> None:
    shown = electra("config", "explain", "generator.width", cwd=tmp_path).stdout
    assert "a whole number of at least 0" in shown
    assert "256 for size base" in shown


def test_the_schema_knows_every_table(electra: RunElectra, tmp_path: Path) -> None:
    schema = json.loads(electra("config", "schema", cwd=tmp_path).stdout)
    assert {"project", "corpus", "evaluate"} <= schema["properties"].keys()
    assert schema["$defs"]["ObjectiveTable"]["properties"]["discriminator_weight"]["default"] == 50.0


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["shard-corpus"], "build-vocab"),
        (["pretrain", "--no-build"], "build-vocab"),
        (["check"], "build-vocab"),
        (["export"], "pretrain"),
        (["eval-glue", "--task", "mnli"], "pretrain"),
        (["report"], "pretrain"),
    ],
)
def test_pitfall_K30_a_command_too_early_names_the_one_that_is_missing(
    electra: RunElectra, tmp_path: Path, words: list[str], missing: str
) -> None:
    done = electra(*words, cwd=tmp_path, check=4)
    assert f"electra {missing}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", ["stdout", "stderr"])
def test_a_closed_pipe_is_no_failure_to_talk_about(failure: str, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {failure: write}
    done = subprocess.run(
        [sys.executable, "-m", "electra_cli", "init", "--list"], cwd=tmp_path, check=False, **streams
    )
    os.close(write)
    assert done.returncode in (0, _boundary.CLOSED_PIPE)
    assert b"Traceback" not in (done.stderr or b"") + (done.stdout or b"")


def failing(error: BaseException) -> Callable[..., object]:
    """An application whose one command fails."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptError("shard-00001.arrow is damaged"), 5),
        (StorageError("disk full"), 6),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 6),
        (MemoryError(), 8),
        (MemoryShortError("too much"), 8),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("a bug"), 1),
        (ElectraError("a self-check failed"), 1),
    ],
)
def test_each_failure_has_its_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _boundary.run(failing(error), []) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("✗ ")
    assert "Traceback" not in err
    assert _boundary.run(failing(error), ["--format", "json"]) in (code, 2)


def test_a_bug_leaves_a_note_that_only_its_owner_reads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert _boundary.run(failing(ZeroDivisionError("oh")), []) == ExitCode.BUG
    (note,) = tmp_path.glob("electra-crash-*/crash.txt")
    assert str(note) in capsys.readouterr().err
    assert "ZeroDivisionError: oh" in note.read_text()
    assert note.parent.stat().st_mode & 0o077 == 0


def test_a_traceback_comes_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELECTRA_DEBUG", "1")
    _boundary.run(failing(CorruptError("bad \x1b[2J")), [])
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "\x1b" not in err


def test_property_P30_a_secret_never_comes_back(electra: RunElectra, tmp_path: Path) -> None:
    (tmp_path / "project.toml").write_text(f'[project]\napi_key = "{CANARY}"\nname = "hf_{CANARY}"\n')
    for words in (["config", "show"], ["config", "show", "-s", f"llm.token={CANARY}"], []):
        done = electra(*words, cwd=tmp_path, check=3)
        assert CANARY not in done.stdout + done.stderr
