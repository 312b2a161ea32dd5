"""Finding an objective by name or in a file."""

import subprocess
import sys
from pathlib import Path

import pytest

from electra_cli.errors import ProjectError
from electra_cli.objectives import BUILTIN, find
from electra_cli.objectives.base import Objective
from electra_cli.objectives.electra import Electra

OWN = """
from electra_cli.objectives.electra import Electra
from electra_cli.objectives.base import Objective


class Mine(Electra):
    pass


class Unfinished(Objective):
    def counts(self, batch):
        return {}


class Unrelated:
    pass
"""


@pytest.fixture
def ideas(tmp_path: Path) -> Path:
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "mine.py").write_text(OWN)
    return tmp_path


def refusal(use: str, root: Path) -> ProjectError:
    with pytest.raises(ProjectError) as caught:
        find(use, root)
    assert caught.value.key == "objective.use"
    assert [problem.key for problem in caught.value.problems] == ["objective.use"]
    return caught.value


def test_every_built_in_system_is_found(tmp_path):
    assert find("electra", tmp_path) is Electra
    for use in BUILTIN:
        assert issubclass(find(use, tmp_path), Objective)


def test_an_own_objective_is_found_relative_to_the_project(ideas):
    found = find("ideas/mine.py:Mine", ideas)
    assert issubclass(found, Electra) and found is not Electra
    assert find(f"{ideas}/ideas/mine.py:Mine", Path("/")).__name__ == "Mine"


def test_a_wrong_name_gets_the_nearest_one(tmp_path):
    error = refusal("elektra", tmp_path)
    assert "elektra" in error.message and '"electra"' in error.hint
    assert "file.py:Class" in refusal("word2vec", tmp_path).hint


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("ideas/other.py:Mine", "there is no file"),
        ("ideas:Mine", "no built-in system"),
        ("ideas/mine.py", "no built-in system"),
        ("ideas/mine.py:", "not the name of a class"),
        ("ideas/mine.py:a b", "not the name of a class"),
        ("ideas/mine.py:Theirs", "has no class Theirs"),
        ("ideas/mine.py:Unrelated", "not a subclass of Objective"),
        ("ideas/mine.py:OWN", "has no class OWN"),
        ("ideas/mine.py:Unfinished", "lacks exports, forward, summarise"),
    ],
)
def test_what_cannot_be_used_is_said(ideas, use, said):
    assert said in refusal(use, ideas).message


def test_the_classes_of_a_file_are_offered(ideas):
    assert refusal("ideas/mine.py:Theirs", ideas).hint == "it has Mine, Unfinished"


@pytest.mark.parametrize("text", ["import nothing_of_this_name\n", "def broken(:\n", "undefined_name\n"])
def test_a_file_that_does_not_run_is_an_error_of_the_project(tmp_path, text):
    (tmp_path / "mine.py").write_text(text)
    error = refusal("mine.py:Mine", tmp_path)
    assert "does not run" in error.message and error.__cause__ is not None


def test_looking_at_the_table_imports_no_torch():
    program = "import sys, electra_cli.objectives as o; o.BUILTIN; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
