"""What a setting means, from the settings classes themselves, and the JSON schema for editors."""

from dataclasses import dataclass

from electra_cli.errors import UsageError
from electra_cli.project import Project, chosen_defaults
from electra_cli.project_dump import toml_value
from electra_cli.project_keys import Key, known_keys, tables
from electra_cli.project_problems import unknown_key
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import OBJECTIVE_SETTINGS


@dataclass(frozen=True)
class Explanation:
    """For a program and for a person."""

    values: dict[str, object]
    lines: list[str]


def explanation(key: str, project: Project) -> Explanation:
    """Of a setting, or of all settings of a table. UsageError with the nearest name for an unknown one."""
    use = project.settings.objective.use
    keys = known_keys(use)
    if key in keys:
        return _of_setting(keys[key], project)
    if key in tables():
        inside = {name: known for name, known in keys.items() if name.rpartition(".")[0] == key}
        width = max(len(name) for name in inside)
        lines = [f"{name:<{width}}   {known.meaning}" for name, known in inside.items()]
        return Explanation({name: known.meaning for name, known in inside.items()}, [f"[{key}]", *lines])
    raise UsageError(
        f"{key}: {unknown_key(key, None, use)}", hint="electra config show --all lists everything"
    )


def _of_setting(key: Key, project: Project) -> Explanation:
    value = _value(key.name, project)
    default = key.default
    values: dict[str, object] = {
        "key": key.name,
        "meaning": key.meaning,
        "allowed": key.allowed,
        "default": default if not isinstance(default, list) else list(default),
    }
    others = chosen_defaults(key.name)
    values |= {f"by_{choice}": known for choice, known in others.items()}
    lines = [f"{key.name}   {key.meaning}", f"  allowed   {key.allowed}"]
    if default is not None:
        lines.append(f"  default   {toml_value(default)}")
    for choice, known in others.items():
        lines += [f"            {toml_value(value)} for {choice} {name}" for name, value in known.items()]
    if key.name in project.origins:
        values |= {"value": value, "origin": project.origins[key.name]}
        lines.append(f"  now       {toml_value(value)}   from {project.origins[key.name]}")
    return Explanation(values, lines)


def _value(name: str, project: Project) -> object:
    table, _, key = name.partition(".")
    values = project.settings.model_dump().get(table)
    return values.get(key) if isinstance(values, dict) else None


def json_schema() -> dict[str, object]:
    """JSON schema of a project file, with the own settings of the built-in objectives."""
    document = ProjectSettings.model_json_schema()
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    document["title"] = "electra project file"
    objective = document["$defs"]["ObjectiveTable"]["properties"]
    for settings in OBJECTIVE_SETTINGS.values():
        objective |= settings.model_json_schema()["properties"]
    return document
