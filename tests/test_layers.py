"""The house rules that a machine can read off the sources: who imports whom, and what nobody may do."""

import ast
import re
from collections.abc import Callable, Iterator
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
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


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


def refusals(check: Callable[[str, Path, ast.AST], Iterator[str]]) -> list[str]:
    """What one rule has against any file, each with the file's name."""
    return [
        f"{path.relative_to(PACKAGE)}: {text}"
        for path, tree in TREES.items()
        for text in check(room_of(path), path, tree)
    ]


def against_the_order(room: str, path: Path, tree: ast.AST) -> Iterator[str]:
    if path.name in ("__init__.py", "__main__.py") and path.parent == PACKAGE:
        return
    if room not in LEVEL:
        yield "which room is this?"
        return
    for name in imported_modules(tree):
        if name.startswith("electra_cli."):
            other = room_of(PACKAGE / name.split(".")[1])
            if other not in (room, "__version__") and LEVEL[other] >= LEVEL[room]:
                yield f"{room} may not import {name}"


def forbidden_libraries(room: str, path: Path, tree: ast.AST) -> Iterator[str]:
    for name in imported_modules(tree):
        top = name.split(".")[0]
        if top in {"click", "pickle", "evaluate", "dill", "cloudpickle", "yaml"} or name.startswith(
            "typer._"
        ):
            yield f"imports {name}"
        if room not in ("commands", "main") and top in {"typer", "rich"}:
            yield f"{room} imports {name}"
        if room == "data" and path.name != "batches.py" and top == "torch":
            yield "data imports torch only in batches.py"
        if room == "kernels" and top == "electra_cli" and not name.startswith("electra_cli.kernels"):
            yield f"kernels import torch only, not {name}"


def forbidden_calls(room: str, path: Path, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in {"torch.load", "torch.save", "eval", "exec", "np.load", "numpy.load"}:
            yield f"{called} may run what a file says"
        if called == "print" and room not in ("commands", "main"):
            yield "the library never prints"
        if room != "durable" and writes_aside(node, called):
            yield f"{called}: write through durable"
        for keyword in node.keywords:
            if keyword.arg in ("shell", "trust_remote_code") and ast.unparse(keyword.value) != "False":
                yield ast.unparse(node)


def writes_aside(call: ast.Call, called: str) -> bool:
    if called.endswith((".write_text", ".write_bytes")):
        return not called.startswith("durable.")
    if called != "open" and not called.endswith(".open"):
        return False
    texts = (a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
    mode = next(texts, "r")
    return bool(re.fullmatch(r"[rwaxbt+]{1,3}", mode) and set(mode) & set("wax+"))


def test_imports_go_one_way() -> None:
    assert refusals(against_the_order) == []


def test_forbidden_libraries_stay_out() -> None:
    assert refusals(forbidden_libraries) == []


def test_nothing_is_unpickled_evaluated_or_written_aside() -> None:
    assert refusals(forbidden_calls) == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("data", "from electra_cli.commands import status"),
        ("training", "import electra_cli.evaluation.glue"),
        ("data", "import torch"),
        ("data", "from rich.text import Text"),
        ("commands", "import click"),
        ("kernels", "import electra_cli.keyed"),
        ("models", "torch.load(path)"),
        ("models", "print(1)"),
        ("models", "path.write_text('x')"),
        ("models", "path.open('w')"),
        ("models", "open(path, 'rb+')"),
        ("models", "subprocess.run(command, shell=True)"),
    ],
)
def test_the_rules_see_what_they_forbid(room: str, source: str) -> None:
    path, tree = PACKAGE / room / "x.py", ast.parse(source)
    rules = (against_the_order, forbidden_libraries, forbidden_calls)
    assert [text for rule in rules for text in rule(room, path, tree)]
