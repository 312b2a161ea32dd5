"""The pre-training systems: one visible table, and `find`.

Importing this package imports no torch; a system's module is imported when it is found.
"""

import difflib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from electra_cli.errors import ProjectError, refusal

if TYPE_CHECKING:
    from electra_cli.objectives.base import Objective

BUILTIN = {
    "electra": "electra_cli.objectives.electra:Electra",
    "masked_lm": "electra_cli.objectives.masked_lm:MaskedLM",
    "replace_mlm": "electra_cli.objectives.replace_mlm:ReplaceMLM",
    "fast_electra": "electra_cli.objectives.fast_electra:FastElectra",
    "deberta_v3": "electra_cli.objectives.deberta_v3:DebertaV3",
    "coco_lm": "electra_cli.objectives.coco_lm:CocoLM",
    "mcl": "electra_cli.objectives.mcl:MCL",
}
"""`[objective] use` to module and class."""


def find(use: str, root: Path) -> "type[Objective]":
    """The class that `[objective] use` names: a built-in system, or `file.py:Class` relative to `root`.

    A file's code is the user's own, and is run because the project file names it.
    ProjectError says what is missing.
    """
    if use in BUILTIN:
        module_name, _, class_name = BUILTIN[use].partition(":")
        return _class_of(importlib.import_module(module_name), class_name, use)
    file_name, colon, class_name = use.rpartition(":")
    if colon and file_name.endswith(".py"):
        if not class_name.isidentifier():
            raise _problem(f'objective.use = "{use}": "{class_name}" is not the name of a class')
        return _class_of(_run_file(root / file_name, use), class_name, use)
    near = difflib.get_close_matches(use, BUILTIN, n=1, cutoff=0.5)
    raise _problem(
        f'objective.use = "{use}" is no built-in system',
        hint=f'did you mean "{near[0]}"?'
        if near
        else f'built in: {", ".join(BUILTIN)}; an own one is "file.py:Class"',
    )


def _class_of(module: ModuleType, class_name: str, use: str) -> "type[Objective]":
    from electra_cli.objectives.base import Objective

    found = getattr(module, class_name, None)
    if found is None:
        classes = [
            name
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__ and issubclass(value, Objective)
        ]
        raise _problem(
            f'objective.use = "{use}": {module.__file__} has no class {class_name}',
            hint=f"it has {', '.join(classes)}" if classes else "it has no objective at all",
        )
    if not (inspect.isclass(found) and issubclass(found, Objective)):
        raise _problem(
            f'objective.use = "{use}": {class_name} is not a subclass of Objective',
            hint="derive it from electra_cli.objectives.base.Objective",
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise _problem(f'objective.use = "{use}": {class_name} lacks {", ".join(missing)}')
    return found


def _run_file(path: Path, use: str) -> ModuleType:
    if not path.is_file():
        raise _problem(
            f'objective.use = "{use}": there is no file {path}',
            hint="the path is relative to the project file's folder",
        )
    name = f"electra_own_objective_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and type hints look their own module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError, NameError, AttributeError, TypeError, ValueError) as error:
        raise _problem(
            f'objective.use = "{use}": {path} does not run: {type(error).__name__}: {error}',
            hint="ELECTRA_DEBUG=1 shows where",
        ) from error
    return module


def _problem(message: str, *, hint: str = "") -> ProjectError:
    return refusal("objective.use", message, hint=hint)
