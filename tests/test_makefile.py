"""The Makefile, the CI workflow and the wheel hold what they promise."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from electra_cli import __version__
from electra_cli.project_recipes import recipe_names

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.M)

PROMISED = {
    "help", "setup", "quickstart", "check", "test", "test-long", "bench", "bench-kernel", "bench-step",
    "bench-text", "profile", "ladder", "gpu-check", "docs", "pipeline", "eval", "clean",
}  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run make without ever setting up an environment."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(
            ("MAKE", "MFLAGS", "PROJECT", "SET", "TASK", "CELL", "BUDGET", "PAIRS", "JOBS")
        )
    }
    done = subprocess.run(
        ["make", "--no-print-directory", "-o", ".venv/ready", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def test_the_promised_targets_are_there() -> None:
    assert set(TARGETS) >= PROMISED


@pytest.mark.parametrize("arguments", [(), ("help",)])
def test_help_is_the_default_and_lists_every_target(arguments: Sequence[str]) -> None:
    lines = make(*arguments).stdout.splitlines()
    # The order is that of the locale.
    assert sorted(line.split()[0] for line in lines) == sorted(TARGETS)
    for line in lines:
        assert len(line.split()) > 1, f"{line}: says nothing"


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_knows_what_to_run(target: str) -> None:
    words = ["PROJECT=project.toml"] if target == "pipeline" else []
    planned = make("-n", *words, target).stdout.strip()
    # The environment is taken for ready, so nothing is left of its set-up.
    assert planned or target == "setup"
    for script in re.findall(r"(?:tools|benchmarks)/\w+\.py", planned):
        assert (ROOT / script).is_file(), script


def test_every_phony_target_exists() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
    assert phony is not None
    # make calls a phony target without a rule done, and exits with 0.
    assert set(phony[1].split()) == set(TARGETS)


def test_setup_pins_what_it_installs() -> None:
    planned = subprocess.run(
        ["make", "--no-print-directory", "-n", "-W", "pyproject.toml", "VENV=nowhere", "setup"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    installs = [line for line in planned.splitlines() if "pip" in line and " install " in line]
    assert len(installs) == 3
    assert all("-c constraints.txt" in line for line in installs)
    assert "python3 -m venv nowhere" in planned


def test_pipeline_without_a_project_tells_its_usage() -> None:
    done = make("pipeline", check=2)
    assert "usage: make pipeline PROJECT=project.toml" in done.stdout + done.stderr


def test_pipeline_runs_the_stages_with_the_settings_given() -> None:
    planned = make("-n", "pipeline", "PROJECT=other.toml", "SET=pretrain.steps=100 model.size=tiny").stdout
    lines = [line for line in planned.splitlines() if "bin/electra " in line]
    assert [re.findall(r"bin/electra (\S+)", line)[0] for line in lines] == [
        "pretrain",
        "export",
        "eval-glue",
    ]
    for line in lines:
        assert "ELECTRA_SET='pretrain.steps=100 model.size=tiny' " in line
        assert "other.toml" in line


def test_pipeline_without_settings_leaves_those_of_the_environment() -> None:
    assert "ELECTRA_SET" not in make("-n", "pipeline", "PROJECT=other.toml").stdout


def test_eval_runs_one_task() -> None:
    assert "electra eval-glue --task mnli" in make("-n", "eval", "TASK=mnli").stdout


def test_ladder_runs_one_cell_with_what_is_given() -> None:
    planned = make("-n", "ladder", "CELL=mlm-0", "BUDGET=1e12", "TASKS=").stdout.splitlines()
    assert planned[0].split()[1:] == [
        "tools/ladder.py",
        "--cell",
        "mlm-0",
        "--budget",
        "1e12",
        "--tasks",
        "''",
    ]
    assert planned[1].endswith("tools/ladder_table.py")
    assert "--cells tuning.toml" in make("-n", "ladder", "CELLS=tuning.toml").stdout
    assert "--" not in make("-n", "ladder").stdout


def test_the_workflow_only_calls_make() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    commands = re.findall(r"^\s*(?:- )?run:\s*(.*)$", workflow, re.M)
    assert commands
    for command in commands:
        words = command.split()
        assert words[0] == "make" and set(words[1:]) <= set(TARGETS), command


def test_the_local_ci_calls_check_and_test() -> None:
    script = ROOT / ".ci/run"
    assert [line for line in script.read_text().splitlines() if line.startswith("make")] == [
        "make check",
        "make test",
    ]
    assert os.access(script, os.X_OK)


def test_the_readme_begins_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"^```console\n(.*?)^```", readme, re.M | re.S)
    assert first is not None
    assert first[1].splitlines() == ["$ make quickstart", "$ make test"]
    assert readme.index(first[0]) < 600


def test_the_version_is_said_once() -> None:
    assert PYPROJECT["project"]["version"] == __version__


def test_the_documentation_is_built_strictly_by_check() -> None:
    assert "mkdocs build --strict" in make("-n", "check").stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network from a copy of what it is made of."""
    wheel_builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("electra_cli", "pipelines"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (path,) = wheel_builder.WheelBuilder(str(source)).build(directory=str(out), versions=["standard"])
    return Path(path)


def test_the_wheel_holds_the_package_and_every_recipe(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "electra_cli").rglob("*.py")}
    assert package <= names
    assert {f"electra_cli/_pipelines/{name}.toml" for name in recipe_names()} <= names
    assert "electra_cli/py.typed" in names
    top = {name.split("/")[0] for name in names}
    # A second import package of ours would collide with folders of users.
    assert top == {"electra_cli", f"electra_cli-{__version__}.dist-info"}


def test_the_unpacked_wheel_finds_its_recipes(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-m", "electra_cli", "init", "--recipe", "electra-small"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1", "ELECTRA_SET": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "project.toml").is_file()
