"""What reaches the screen: harmless on every kind of output, whole lines off a terminal, strict JSON."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.commands import _figures, _screen_plain
from electra_cli.commands._error_text import error_lines
from electra_cli.commands._options import OutputFormat
from electra_cli.commands._safe import clock, compact, duration, number, safe, size
from electra_cli.commands._screen import Screen, has_colour, open_screen
from electra_cli.commands._table import table_lines
from electra_cli.commands._task import Task
from electra_cli.errors import CorruptError, ElectraError, Problem, ProjectError

# Tricks against terminals, and text that markup languages would swallow.
PAYLOADS = [
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "\x1b]52;c;aGk=\x07",
    "\x9b31m",
    "\x90q\x9c",
    "a\rb",
    "a\x08b\x7f",
    "abc\u202etxt.exe",
    "\u2066x\u2069\u200f\u061c",
    "\udcff\udc80",
    "line\u2028line\u2029line",
    "nul\0nul",
    "\x1bc",
    "[unused0] [mask] [/foo] [bold]x[/bold] [link=http://x]",
    ":smile: {x} %s \\n",
    "\N{RIGHT-TO-LEFT ISOLATE}",
]
OWN_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FORBIDDEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
TRAIN = {
    "step": 1000,
    "loss": 9.812,
    "losses": {"mlm": 6.104, "rtd": 0.0742},
    "sampled_accuracy": 0.182,
    "replaced_fraction": 0.121,
    "disc_auc": 0.781,
    "disc_recall": 0.214,
    "lr": 5e-5,
    "clock": {"tokens_per_second": 1.12e6, "peak_bytes": 3_000_000_000, "eta_seconds": 108_000.0},
}


def show_everything(screen: Screen, text: str) -> None:
    screen.message(text)
    screen.warning(text, code="code")
    screen.begin(text, 2, text)
    screen.advance(1, note=text)
    screen.advance(1)
    screen.end()
    screen.figures("train", TRAIN | {"losses": {text: 1.0}})
    screen.figures("heldout", TRAIN | {"losses": {text: 1.0}})
    screen.figures(text, {text: text})
    screen.table(text, (text, "n"), [(text, 1), (None, 2.5)])
    screen.error(CorruptError(text, hint=text, path=text, line=3, key=text))
    problem = Problem(text, text, None, text, value=text)
    screen.error(ProjectError(text, problems=(problem,)))
    screen.result({text: text}, [text], text)


@pytest.mark.parametrize("output", list(OutputFormat))
@pytest.mark.parametrize("payload", PAYLOADS)
def test_security_S07_case_G06_no_control_byte_of_data_reaches_the_screen(
    payload: str, output: OutputFormat, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with open_screen("test", output) as screen:
        show_everything(screen, f"a{payload}z")
    for shown in capsys.readouterr():
        assert not FORBIDDEN.search(OWN_COLOURS.sub("", shown))


@pytest.mark.parametrize("output", [OutputFormat.PLAIN, OutputFormat.RICH])
@pytest.mark.parametrize("text", ["[unused0]", "a[/foo].txt", "[mask]", ":smile:", "[bold]x[/bold]"])
def test_case_G05_brackets_are_printed_as_they_are(
    text: str, output: OutputFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_screen("test", output) as screen:
        show_everything(screen, text)
    out, err = capsys.readouterr()
    assert out.count(text) >= 4
    assert err.count(text) >= 8


@settings(max_examples=100, derandomize=True, deadline=None)
@given(text=st.text(max_size=40))
def test_property_P30_safe_text_holds_no_control(text: str) -> None:
    assert not FORBIDDEN.search(safe(text))
    assert "\n" not in safe(text, one_line=True)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    text=st.text(
        st.characters(
            codec="utf-8",
            exclude_categories=["Cc", "Cs", "Zl", "Zp"],
            exclude_characters="\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
        )
    )
)
def test_property_P35_safe_leaves_printable_text_alone(text: str) -> None:
    assert safe(text) == text


def test_plain_output_is_whole_lines_results_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with open_screen("test", OutputFormat.PLAIN) as screen:
        screen.message("a fact")
        screen.begin("count", 10, "files")
        screen.advance(10)
        screen.end()
        screen.result({}, ["the result"], "electra next")
    out, err = capsys.readouterr()
    assert out == "the result\n"
    assert err.splitlines()[0] == "a fact"
    assert "100 %  10/10 files" in err
    assert "Next: electra next" in err
    assert "\r" not in out + err
    assert "\x1b" not in out + err


def test_a_silent_task_still_gives_signs_of_life(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _screen_plain.SECONDS_OF_SILENCE + _screen_plain.SECONDS_BETWEEN_LOOKS < 30
    monkeypatch.setattr(_screen_plain, "SECONDS_OF_SILENCE", 0.0)
    monkeypatch.setattr(_screen_plain, "SECONDS_BETWEEN_LOOKS", 0.01)
    with open_screen("test", OutputFormat.PLAIN) as screen:
        screen.begin("merge")
        for _ in range(500):
            if capsys.readouterr().err.startswith("merge"):
                break
            time.sleep(0.01)
        else:
            pytest.fail("no sign of life")


def test_json_events_are_strict_and_end_with_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    with open_screen("test", OutputFormat.JSON) as screen:
        show_everything(screen, "x")
        screen.result({"a": float("nan"), "path": Path("b"), "c": [1, (2.5, None)]})
    out, err = capsys.readouterr()
    assert err == ""
    events = [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]
    assert {event["event"] for event in events} == {"progress", "result", "warning", "error"}
    assert all(event["command"] == "test" for event in events)
    assert events[-1] | {"tables": 0} == {
        "event": "result",
        "command": "test",
        "a": None,
        "path": "b",
        "c": [1, [2.5, None]],
        "tables": 0,
    }
    error = next(event for event in events if event["event"] == "error")
    assert {"code", "exit_code", "message", "path", "line", "key", "hint"} <= error.keys()
    assert (error["code"], error["exit_code"]) == ("corrupt", 5)


def test_other_processes_of_a_run_show_errors_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with open_screen("test", OutputFormat.PLAIN) as screen:
        show_everything(screen, "x")
    out, err = capsys.readouterr()
    assert out == ""
    assert all(line.startswith(("✗", " ")) for line in err.splitlines())


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_the_table_of_a_run_fits_the_screen(width: int) -> None:
    columns = _figures.columns_for(TRAIN, width)
    assert max(len(_figures.header(columns)), len(_figures.row(columns, TRAIN))) <= width
    assert {"step", "loss"} <= {column.title for column in columns}


def test_the_table_of_a_run_reads_like_the_manual() -> None:
    columns = _figures.columns_for(TRAIN, 200)
    shown = " ".join(_figures.row(columns, TRAIN).split())
    assert shown == "1,000 9.812 6.104 0.0742 18.2 % 12.1 % 0.781 0.214 5.0e-05 1.12 M 3.0 GB 30 h"
    assert _figures.heldout_line(TRAIN).startswith(" held-out 1,000   mlm 6.104  rtd 0.0742")


def test_an_unknown_figure_is_a_dash() -> None:
    columns = _figures.columns_for(TRAIN, 200)
    assert "–" in _figures.row(columns, TRAIN | {"disc_auc": None})


def test_numbers_stand_right_and_words_left() -> None:
    assert table_lines("", ("task", "acc"), [("mnli", 81.1), ("x", 7)]) == [
        "task   acc",
        "mnli  81.1",
        "x        7",
    ]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(30_522), "30,522"),
        (number(None), "–"),
        (number(0.12345), "0.1235"),
        (number(12345.678), "12,345.7"),
        (compact(13_500_000), "13.5 M"),
        (compact(9_999), "9,999"),
        (compact(22_900), "22.9 k"),
        (size(11_800_000_000), "11.8 GB"),
        (duration(-5), "0.0 s"),
        (duration(111_600), "31 h"),
        (clock(33.2), "0:00:33"),
        (clock(68_522), "19:02:02"),
    ],
)
def test_figures_read_easily(shown: str, expected: str) -> None:
    assert shown == expected


def test_problems_are_aligned_under_the_message() -> None:
    problems = (
        Problem("pretrain.stepz", "unknown setting", 8, "project.toml", value="10"),
        Problem("rows.x", "is missing", 12, "project.toml"),
    )
    assert error_lines(ProjectError("project.toml has 2 problems", problems=problems, hint="look")) == [
        "✗ project.toml has 2 problems",
        "  line 8    pretrain.stepz = 10   unknown setting",
        "  line 12   rows.x                is missing",
        "  look",
    ]


def test_an_error_names_its_place_once() -> None:
    assert error_lines(ElectraError("a.txt is bad", path="a.txt")) == ["✗ a.txt is bad"]
    assert error_lines(ElectraError("a.txt is bad", path="/deep/a.txt")) == ["✗ a.txt is bad"]
    assert error_lines(ElectraError("bad byte", path="a.txt", line=3)) == ["✗ bad byte   (a.txt line 3)"]
    assert error_lines(ElectraError("bad\nworse", path="a.txt")) == ["✗ bad   (a.txt)", "  worse"]


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour_follows_the_environment(
    environment: dict[str, str], is_terminal: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert has_colour(is_terminal) is expected


SCRIPT = """
from electra_cli.commands._screen import open_screen
with open_screen("test") as screen:
    screen.begin("count", 3, "files")
    for _ in range(3):
        screen.advance(1, note="x" * 200)
    screen.end()
    screen.warning("mind")
    screen.result({}, ["done"])
"""


def on_a_terminal(**environment: str) -> str:
    """What the script shows on a terminal of 60 columns."""
    ours, theirs = pty.openpty()
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=inherited | {"TERM": "xterm", "COLUMNS": "60"} | environment,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:
            break
        if not block:
            break
        shown += block
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()


def test_a_terminal_gets_bars_that_fit_its_columns() -> None:
    shown = on_a_terminal()
    assert "━" in shown
    assert "\x1b[33m! mind" in shown
    for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n").split("\n"):
        assert len(line) <= 60


def test_no_colour_keeps_the_bars_and_drops_the_colours() -> None:
    shown = on_a_terminal(NO_COLOR="1")
    assert "━" in shown
    assert not re.search(r"\x1b\[(3|9)\d", shown)


def test_a_dumb_terminal_gets_plain_lines() -> None:
    assert "\x1b" not in on_a_terminal(TERM="dumb")


def test_the_last_line_of_a_task_is_complete() -> None:
    task = Task("count", 12, "B", done=11, started=0.0)
    task.complete()
    assert task.line().startswith("count      100 %  11 B of 11 B") and "eta" not in task.line()


@pytest.mark.parametrize(("done", "rate"), [(3, "1.5 files/s"), (1, "30 files/min")])
def test_slow_rates_are_told_by_the_minute(done: int, rate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra_cli.commands._task.time.monotonic", lambda: 2.0)
    assert rate in Task("tokenize", 9, "files", done=done, started=0.0).facts()
