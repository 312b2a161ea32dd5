"""What the settings classes say about each key: whether it exists, its kind, its range, its meaning."""

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from electra_cli.settings import ProjectSettings, Settings
from electra_cli.settings_objectives import OBJECTIVE_SETTINGS


@dataclass(frozen=True)
class Key:
    """One setting."""

    name: str
    """Dotted; the keys of an array of tables stand under the array's name: `corpus.source.weight`."""
    field: FieldInfo
    meaning: str

    @property
    def default(self) -> object:
        """The value without any file; `None` where there is none."""
        if self.field.is_required():
            return None
        return self.field.get_default(call_default_factory=True, validated_data={})

    @property
    def allowed(self) -> str:
        """What may stand there: `a whole number of at least 1`."""
        return _allowed(self.field.annotation, tuple(self.field.metadata))

    def fits(self, value: object) -> bool:
        """Whether a value is of the right kind, its range aside."""
        annotation = self.field.annotation
        if get_origin(annotation) is list:
            of_tables = item_class(self.field) is not None
            return isinstance(value, list) and all(isinstance(item, dict) == of_tables for item in value)
        if isinstance(value, bool) or annotation is bool:
            return isinstance(value, bool) and annotation is bool
        if annotation in (int, float):
            return isinstance(value, int if annotation is int else (int, float))
        return isinstance(value, str)


@cache
def tables() -> tuple[str, ...]:
    """All tables, in the file's order, the arrays of tables included."""
    names = list(ProjectSettings.model_fields)
    return tuple(names + [key.name for key in known_keys().values() if item_class(key.field)])


@cache
def known_keys(use: str = "electra") -> Mapping[str, Key]:
    """Every setting by its dotted name; `use` decides which objective's own keys are among them."""
    keys: dict[str, Key] = {}
    for table, field in ProjectSettings.model_fields.items():
        for key in _keys_of(table, _settings_class(field.annotation)):
            keys[key.name] = key
        if table == "objective" and use in OBJECTIVE_SETTINGS:
            for key in _keys_of(table, OBJECTIVE_SETTINGS[use]):
                keys[key.name] = key
    return keys


def item_class(field: FieldInfo) -> type[Settings] | None:
    """The class of the items where the setting is an array of tables."""
    arguments = get_args(field.annotation)
    if get_origin(field.annotation) is list and arguments:
        argument = arguments[0]
        if isinstance(argument, type) and issubclass(argument, Settings):
            return argument
    return None


def _keys_of(table: str, settings: type[Settings]) -> Iterator[Key]:
    for name, field in settings.model_fields.items():
        yield Key(f"{table}.{name}", field, field.description or "")
        item = item_class(field)
        if item is not None:
            yield from _keys_of(f"{table}.{name}", item)


def _settings_class(annotation: object) -> type[Settings]:
    assert isinstance(annotation, type) and issubclass(annotation, Settings)
    return annotation


def _allowed(annotation: object, metadata: tuple[object, ...]) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return "one of " + ", ".join(f'"{value}"' for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        return " or ".join(_allowed(part, ()) for part in get_args(annotation))
    if origin is list:
        return f"a list of {_plural(get_args(annotation)[0])}"
    if annotation is bool:
        return "true or false"
    if annotation is int:
        return f"a whole number{_range(metadata)}"
    if annotation is float:
        return f"a number{_range(metadata)}"
    if annotation is str:
        return 'text in quotes, "…"'
    return "a table"


def _plural(annotation: object) -> str:
    names = {str: "texts in quotes", int: "whole numbers", float: "numbers"}
    return names.get(annotation, "tables") if isinstance(annotation, type) else "values"


def _range(metadata: tuple[object, ...]) -> str:
    low, high = "", ""
    for bound in metadata:
        if isinstance(bound, Ge):
            low = f"at least {_bound(bound.ge)}"
        elif isinstance(bound, Gt):
            low = f"above {_bound(bound.gt)}"
        elif isinstance(bound, Le):
            high = f"at most {_bound(bound.le)}"
        elif isinstance(bound, Lt):
            high = f"below {_bound(bound.lt)}"
    both = " and ".join(part for part in (low, high) if part)
    return f" of {both}" if both.startswith("at") else f" {both}" if both else ""


def _bound(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value}"


_SECRET = re.compile(
    r"(^|_)(api_?key|access_?key|private_?key|secret|secrets|token|password|passwd|credentials?)$"
)
_SECRET_VALUE = re.compile(r"\b(hf_|sk-|ghp_|gho_|github_pat_|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}")


def is_secret(name: str) -> bool:
    """Whether a key's last name is that of something which must not lie in a file."""
    return bool(_SECRET.search(re.sub(r"[^a-z0-9]+", "_", name.lower())))


def is_secret_value(text: str) -> bool:
    """Whether a text has the form of a known service's key."""
    return bool(_SECRET_VALUE.search(text))
