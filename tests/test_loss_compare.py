"""`tools/loss_compare`: two commits of a repository of its own, and what counts as equal."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from electra_cli.objectives import BUILTIN, find
from electra_cli.objectives.base import VocabularyFacts
from electra_cli.project import load_project

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("loss_compare", ROOT / "tools" / "loss_compare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_objective_is_compared(tool: ModuleType, tmp_path: Path) -> None:
    uses = {key.removeprefix("objective.use=") for system in tool.SYSTEMS.values() for key in system}
    assert set(BUILTIN) <= uses
    (tmp_path / "project.toml").write_text("", encoding="utf-8")
    for system in tool.SYSTEMS.values():
        settings = load_project(tmp_path / "project.toml", [*tool.COMMON, *system], environ={}).settings
        facts = VocabularyFacts(size=320, padding_id=0, unknown_id=1, cls_id=2, sep_id=3, mask_id=4)
        assert find(settings.objective.use, tmp_path)(settings, facts).updates


@pytest.mark.parametrize(
    ("first", "second", "largest", "step"),
    [
        ({1: {"mlm": 2.0}, 2: {"mlm": 1.0}}, {1: {"mlm": 2.0}, 2: {"mlm": 1.0}}, 0.0, None),
        ({1: {"mlm": 2.0}, 2: {"mlm": 1.0}}, {1: {"mlm": 2.0}, 2: {"mlm": 1.5}}, 0.5, 2),
        ({1: {"mlm": 2.0}, 2: {"mlm": 1.0}}, {1: {"mlm": 2.0}}, float("inf"), 2),
        ({1: {"mlm": 2.0}}, {1: {"mlm": 2.0, "rtd": 1.0}}, float("inf"), 1),
        ({1: {"mlm": None}}, {1: {"mlm": None}}, 0.0, None),
        ({1: {"mlm": None}}, {1: {"mlm": 1.0}}, float("inf"), 1),
    ],
)
def test_a_difference_is_found_where_it_begins(tool, first, second, largest, step) -> None:
    found = tool.compare("electra", tool.Outcome(first), tool.Outcome(second))
    assert (found.largest, found.first_step, found.is_equal) == (largest, step, step is None)


def test_a_run_that_failed_is_never_equal(tool: ModuleType) -> None:
    for sides in (("exit 3: no", "exit 3: no"), ("", "exit 3: no")):
        found = tool.compare(
            "electra", *(tool.Outcome({} if one else {1: {"mlm": 1.0}}, one) for one in sides)
        )
        assert not found.is_equal and "B: exit 3: no" in tool.table([found])
    assert not tool.compare("electra", tool.Outcome({}), tool.Outcome({})).is_equal


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits of this package; the second has another weight of ELECTRA's discriminator."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("repository")
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("electra_cli", "pipelines"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    (folder / "tools").mkdir()
    for name in ("loss_compare", "loss_compare.py"):
        shutil.copy(ROOT / "tools" / name, folder / "tools" / name)

    def git(*words: str) -> None:
        who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    path = folder / "electra_cli" / "objectives" / "electra.py"
    text = path.read_text(encoding="utf-8")
    changed = text.replace('"rtd": own.discriminator_weight', '"rtd": own.discriminator_weight + 1', 1)
    assert changed != text
    path.write_text(changed, encoding="utf-8")
    git("commit", "--quiet", "-am", "two")
    return folder


def run_tool(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(repository / "tools" / "loss_compare.py"), *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_a_changed_weight_is_seen(repository: Path) -> None:
    different = run_tool(repository, "HEAD~1", "HEAD", "--steps", "2", "--only", "electra")
    assert different.returncode == 1, different.stderr
    row = different.stdout.splitlines()[2].split()
    assert (row[:2], row[3:]) == (["electra", "2"], ["1", "different"]) and float(row[2]) > 0.5
    assert not (repository / "runs").exists() and not (repository / "corpus").exists()


@pytest.mark.long
def test_what_a_change_does_not_touch_is_equal(repository: Path) -> None:
    equal = run_tool(repository, "HEAD~1", ".", "--steps", "2", "--only", "masked_lm")
    assert equal.returncode == 0, equal.stdout + equal.stderr
    assert equal.stdout.splitlines()[2].split() == ["masked_lm", "2", "0", "-", "equal"]


def test_an_unknown_revision_is_named(repository: Path) -> None:
    done = run_tool(repository, "HEAD", "nowhere", "--steps", "1")
    assert done.returncode == 1 and "nowhere is no revision" in done.stderr
