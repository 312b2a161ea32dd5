"""The project file and everything laid over it: loaded, checked whole, each value with its origin.

Layers, the later over the earlier: defaults, the recipe, the project file, `ELECTRA_SET`, `--set`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from electra_cli.errors import Problem, ProjectError
from electra_cli.project_dump import dump_toml, toml_value
from electra_cli.project_keys import known_keys
from electra_cli.project_layers import Layer, Merged, layer_of, read_file
from electra_cli.project_overrides import Override, read_flags, read_variable
from electra_cli.project_problems import all_problems, errors_of, raw_problems
from electra_cli.project_recipes import is_recipe_file, nearest_recipes, recipe_names, recipe_path
from electra_cli.project_suggestions import did_you_mean, nearest
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import OBJECTIVE_SETTINGS
from electra_cli.settings_protocols import PROTOCOLS

__all__ = [
    "Project",
    "changed_settings",
    "chosen_defaults",
    "dump_toml",
    "expanded_path",
    "load_project",
    "project_from_settings",
    "real_path",
    "recipe_settings",
]

DEFAULT_NAME = "project.toml"

SIZE_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "toy": {"generator.width": 16},
    "tiny": {"generator.width": 64},
    "base": {"generator.width": 256},
    "large": {"generator.width": 256, "masking.fraction": 0.25},
}
"""Settings that follow from `model.size` where nobody set them (Clark et al. 2020, Table 6)."""

CHOICE_DEFAULTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "model.size": SIZE_DEFAULTS,
    "evaluate.protocol": {
        name: {f"evaluate.{key}": value for key, value in protocol.defaults.items()}
        for name, protocol in PROTOCOLS.items()
    },
}
"""Settings whose values bring defaults for others."""


def chosen_defaults(key: str) -> dict[str, dict[str, object]]:
    """Other defaults of a setting: {"size": {"large": 0.25}}, by the choice that brings them."""
    found = {
        choice.rpartition(".")[2]: {name: values[key] for name, values in known.items() if key in values}
        for choice, known in CHOICE_DEFAULTS.items()
    }
    return {choice: values for choice, values in found.items() if values}


_PATH_KEYS = frozenset(
    {
        "corpus.files",
        "corpus.source.files",
        "vocab.path",
        "objective.use",
        "objective.auxiliary",
        "objective.samples",
        "pretrain.init_from",
        "evaluate.data",
        "evaluate.task.train",
        "evaluate.task.dev",
        "evaluate.task.test",
        "collaborate.tokenizer",
    }
)
"""Settings that hold a path, or may."""


@dataclass(frozen=True)
class Project:
    """Settings, and where they came from."""

    settings: ProjectSettings
    path: Path | None
    """The project file; `None`: defaults and overrides alone."""
    root: Path
    """Folder that relative paths start at."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each dotted key was set: `project.toml line 8`, `recipe electra-small`, `default`, `--set`, …"""

    def resolve(self, text: str) -> Path:
        """The absolute path that a setting means."""
        return _absolute_path(self.root / _expanded(text))

    @property
    def vocab_dir(self) -> Path:
        """Where build-vocab writes."""
        return self.root / "vocab"

    @property
    def shards_dir(self) -> Path:
        """Where shard-corpus writes."""
        return self.root / "shards"

    @property
    def runs_dir(self) -> Path:
        """Where each run gets a folder."""
        return self.root / "runs"

    @property
    def data_dir(self) -> Path:
        """Where task data lies."""
        return self.root / "data"

    @property
    def evaluate_dir(self) -> Path:
        """Results of models that are no run of this project."""
        return self.root / "evaluate"


def project_from_settings(settings: ProjectSettings, root: Path) -> Project:
    """A project without a file, for library use."""
    return Project(settings, None, _absolute_path(root), {})


def load_project(
    path: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Project:
    """Read and check a project file with all that lies over it.

    Without a path it is `./project.toml` where that exists, else the defaults.
    Raises `ProjectError` with every problem at once, `UsageError` for a malformed `--set`.
    """
    here = _absolute_path(cwd or Path.cwd())
    default = here / DEFAULT_NAME
    if path is None and (default.exists() or default.is_symlink()):
        path = default
    flags = read_flags(overrides)
    variables = read_variable(environ.get("ELECTRA_SET", ""))
    root, file_layer, shown = here, None, ""
    if path is not None:
        path = _absolute_path(here / path)
        root = here if is_recipe_file(path) else path.parent
        shown = str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
        file_layer = read_file(path, shown)
    outer = [layer_of(_from_working_folder(o, here, root)) for o in (*variables, *flags)]
    layers = [layer for layer in (file_layer, *outer) if layer is not None]
    merged, problems = _merge(layers)
    _fill_choice_defaults(merged)
    settings, found = _validate(merged)
    problems += found
    problems.sort(key=lambda problem: (problem.line is None, problem.line or 0))
    if problems or settings is None:
        raise _project_error(tuple(problems), shown, path)
    return Project(settings, path, root, _origins(settings, merged))


def recipe_settings(name: str) -> ProjectSettings:
    """The settings of a ready-made pipeline, untouched; the defaults where there is none of that name."""
    merged, _ = _merge([Layer({"project": {"recipe": name}}, "")] if recipe_path(name) else [])
    _fill_choice_defaults(merged)
    settings, problems = _validate(merged)
    assert settings is not None and not problems, "a recipe is valid: a test loads each"
    return settings


def changed_settings(settings: ProjectSettings) -> dict[str, str]:
    """The settings, `[project]` aside, that differ from the recipe: TOML values by dotted name."""
    recipe = recipe_settings(settings.project.recipe).model_dump()
    changed = {}
    for table, values in settings.model_dump().items():
        for name, value in values.items():
            if table != "project" and value != recipe[table].get(name):
                changed[f"{table}.{name}"] = toml_value(value)
    return changed


def _from_working_folder(override: Override, here: Path, root: Path) -> Override:
    """Paths given by `--set` start at the working directory, unlike those in the file."""
    if here == root:
        return override
    return Override(override.key, _rebased(override.key, override.value, here), override.source)


def _rebased(key: str, value: object, here: Path) -> object:
    if isinstance(value, list):
        return [_rebased(key, item, here) for item in value]
    if isinstance(value, dict):
        return {name: _rebased(f"{key}.{name}", item, here) for name, item in value.items()}
    if key not in _PATH_KEYS or not isinstance(value, str) or not value or "://" in value:
        return value
    if key in ("pretrain.init_from", "objective.use") and not (here / value.partition(":")[0]).exists():
        # A model of the Hub, or a built-in objective.
        return value
    return str(_absolute_path(here / _expanded(value)))


def expanded_path(path: Path) -> Path:
    """With the home folder for a leading `~`; as it is where nobody has that name, or no home folder."""
    return Path(_expanded(str(path)))


def real_path(path: Path) -> Path:
    """The absolute path without links; a link that leads to itself stays."""
    # Path.resolve raises for such a link.
    return Path(os.path.realpath(path))


def _expanded(text: str) -> str:
    # Path.expanduser raises where nobody has that name, or no home directory.
    return os.path.expanduser(text)  # noqa: PTH111


def _absolute_path(path: Path) -> Path:
    # Path.resolve would follow symbolic links, and names in messages would no longer be those typed.
    return Path(os.path.abspath(path))  # noqa: PTH100


def _merge(layers: Sequence[Layer]) -> tuple[Merged, list[Problem]]:
    """All layers over the recipe that they name."""
    above = Merged()
    for layer in layers:
        above.add(layer)
    name = above.get("project.recipe")
    name = "electra-small" if name is None else name
    problems = []
    merged = Merged()
    recipe = recipe_path(name) if isinstance(name, str) else None
    if recipe is not None:
        base = read_file(recipe, f"recipe {name}")
        values = {table: value for table, value in base.values.items() if table != "project"}
        if _differs(above.get("objective.use"), base.values, "objective", "use"):
            values.pop("objective", None)
        if _differs(above.get("model.size"), base.values, "model", "size"):
            values = _without_sizes(values)
        if _differs(above.get("evaluate.protocol"), base.values, "evaluate", "protocol", default="electra"):
            values.pop("evaluate", None)
        merged.add(Layer(values, base.source))
    elif isinstance(name, str):
        meant = did_you_mean(nearest_recipes(name)) or f"there are {', '.join(recipe_names())}"
        owner = above.owner("project.recipe")
        assert owner is not None
        line = owner.line("project.recipe")
        text = f"unknown recipe; {meant}"
        problems.append(Problem("project.recipe", text, line, owner.source, value=f'"{name}"'))
    for layer in layers:
        merged.add(layer)
    return merged, problems


def _without_sizes(values: Mapping[str, object]) -> dict[str, object]:
    """A recipe's tables without what belongs to its size; a width of 0, the discriminator's, stays."""
    kept = dict(values)
    for key in {key for defaults in SIZE_DEFAULTS.values() for key in defaults}:
        table, _, name = key.partition(".")
        held = kept.get(table)
        if isinstance(held, dict) and held.get(name) != 0:
            kept[table] = {other: value for other, value in held.items() if other != name}
    return kept


def _differs(
    wanted: object, recipe: Mapping[str, object], table: str, name: str, *, default: object = None
) -> bool:
    """Whether the person chose another objective, size or protocol than the recipe, whose values then go."""
    values = recipe.get(table)
    own = values.get(name, default) if isinstance(values, dict) else None
    return None not in (wanted, own) and wanted != own


def _fill_choice_defaults(merged: Merged) -> None:
    for choice, known in CHOICE_DEFAULTS.items():
        chosen = merged.get(choice)
        for key, value in known.get(chosen if isinstance(chosen, str) else "", {}).items():
            table = merged.values.get(key.partition(".")[0], {})
            if merged.get(key) is None and isinstance(table, dict):
                word = choice.rpartition(".")[2]
                merged.add(layer_of(Override(key, value, f"default for {word} {chosen}")))


def _validate(merged: Merged) -> tuple[ProjectSettings | None, list[Problem]]:
    raw = raw_problems(merged.values)
    use = merged.get("objective.use")
    use = use if isinstance(use, str) else "electra"
    errors = []
    values = dict(merged.values)
    table = values.get("objective", {})
    if isinstance(table, dict):
        own = {key: value for key, value in table.items() if key != "use"}
        settings_class = OBJECTIVE_SETTINGS.get(use)
        if settings_class is not None:
            try:
                own = settings_class.model_validate(own).model_dump()
            except ValidationError as error:
                errors += errors_of(error, "objective")
        elif ".py:" not in use:
            known = tuple(OBJECTIVE_SETTINGS)
            meant = did_you_mean(nearest(use, known)) or f"there are {', '.join(known)}, or file.py:Class"
            raw["objective.use"] = f"unknown objective; {meant}"
        values["objective"] = {**table, **own}
    settings = None
    try:
        settings = ProjectSettings.model_validate(values)
    except ValidationError as error:
        errors += errors_of(error)
    return settings, list(all_problems(errors, raw, merged, use))


def _project_error(problems: tuple[Problem, ...], shown: str, path: Path | None) -> ProjectError:
    count = len(problems)
    is_of_file = path is not None and any(problem.source == shown for problem in problems)
    return ProjectError(
        f"{f'{shown} has' if is_of_file else 'the settings have'} {count} problem{'s' if count > 1 else ''}",
        problems=problems,
        path=shown if is_of_file else None,
        line=problems[0].line if count == 1 else None,
        key=problems[0].key if count == 1 else "",
    )


def _origins(settings: ProjectSettings, merged: Merged) -> dict[str, str]:
    """The origin of every setting, the objective's own keys included."""
    names = [name for name in known_keys(settings.objective.use) if name.count(".") == 1]
    names += [f"objective.{name}" for name in settings.objective.model_extra or {}]
    origins = {}
    for name in dict.fromkeys(names):
        owner = merged.owners.get(name) or _table_owner(name, merged)
        origins[name] = owner.place(name) if owner else "default"
    return origins


def _table_owner(name: str, merged: Merged) -> Layer | None:
    return next((o for key, o in reversed(merged.owners.items()) if key.startswith(f"{name}.")), None)
