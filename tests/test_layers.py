"""The house rules that a machine can read off the sources: who imports whom, and what nobody may do."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "electra_cli"

# A room may import itself and any room of a strictly lower number; equal numbers do not import each other.
LEVEL = {
    "errors": 0,
    "progress": 0,
    "keyed": 0,
    "distributed": 0,
    "settings": 0,
    "durable": 1,
    "project": 2,
    "data": 3,
    "corruption": 4,
    "kernels": 0,
    "models": 5,
    "objectives": 6,
    "optimization": 7,
    "training": 8,
    "evaluation": 8,
    "export": 8,
    "report": 8,
    "collaboration": 8,
    "pipeline": 9,
    "commands": 10,
    "main": 11,
}
SOURCES = sorted(PACKAGE.rglob("*.py"))
RELATIVE = [str(path.relative_to(PACKAGE)) for path in SOURCES]


def imported_modules(tree: ast.AST) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            names += (
                [f"{module}.{alias.name}" for alias in node.names] if module == "electra_cli" else [module]
            )
    return names


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    stem = first.removesuffix(".py")
    # `project_lines.py` belongs to the room `project`.
    return next((room for room in LEVEL if stem == room or stem.startswith(f"{room}_")), stem)


@pytest.mark.parametrize("path", SOURCES, ids=RELATIVE)
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    if path.name in ("__init__.py", "__main__.py") and path.parent == PACKAGE:
        return
    assert room in LEVEL, f"{path}: which room is this?"
    for name in imported_modules(ast.parse(path.read_text())):
        if not name.startswith("electra_cli."):
            continue
        other = room_of(PACKAGE / name.split(".")[1])
        allowed = other == room or other == "__version__" or LEVEL[other] < LEVEL[room]
        assert allowed, f"{room} may not import {name}"


@pytest.mark.parametrize("path", SOURCES, ids=RELATIVE)
def test_forbidden_libraries_stay_out(path: Path) -> None:
    room = room_of(path)
    for name in imported_modules(ast.parse(path.read_text())):
        top = name.split(".")[0]
        assert top not in {"click", "pickle", "evaluate", "dill", "cloudpickle", "yaml"}, f"imports {name}"
        assert not name.startswith("typer._"), f"imports {name}"
        if room not in ("commands", "main"):
            assert top not in {"typer", "rich"}, f"{room} imports {name}"
        if room == "data" and path.name != "batches.py":
            assert top != "torch", "data imports torch only in batches.py"
        if room == "kernels":
            assert top != "electra_cli" or name.startswith("electra_cli.kernels"), "kernels import torch only"


@pytest.mark.parametrize("path", SOURCES, ids=RELATIVE)
def test_nothing_is_unpickled_evaluated_or_written_aside(path: Path) -> None:
    room = room_of(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        assert called not in {"torch.load", "torch.save", "eval", "exec", "np.load", "numpy.load"}, called
        assert called != "print" or room in ("commands", "main"), "the library never prints"
        if room != "durable":
            aside = called.endswith((".write_text", ".write_bytes")) and not called.startswith("durable.")
            assert not aside, f"{called}: write through durable"
            if called == "open" or called.endswith(".open"):
                mode = next(
                    (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)),
                    "r",
                )
                if re.fullmatch(r"[rwaxbt+]{1,3}", mode):
                    assert not set(mode) & set("wax+"), f"{called}({mode!r}): write through durable"
        for keyword in node.keywords:
            unsafe = keyword.arg in ("shell", "trust_remote_code") and ast.unparse(keyword.value) != "False"
            assert not unsafe, ast.unparse(node)
