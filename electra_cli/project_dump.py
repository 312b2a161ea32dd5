"""Settings as TOML, such that reading it back gives the same settings."""

import datetime
import re
from collections.abc import Mapping

from electra_cli.settings import ProjectSettings

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def dump_toml(settings: ProjectSettings) -> str:
    """Every setting, table by table."""
    blocks = []
    for table, values in settings.model_dump().items():
        plain = {name: value for name, value in values.items() if not _is_table_array(value)}
        blocks.append("\n".join([f"[{table}]", *_entries(plain)]))
        for name, value in values.items():
            if value and _is_table_array(value):
                header = f"[[{table}.{_key(name)}]]"
                blocks += ["\n".join([header, *_entries(item)]) for item in value]
    return "\n\n".join(blocks) + "\n"


def toml_value(value: object) -> str:
    """One value as a TOML literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(_character(character) for character in value) + '"'
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(str(name))} = {toml_value(item)}" for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    raise TypeError(f"TOML has no value for {type(value).__name__}")


def _is_table_array(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _entries(values: Mapping[str, object]) -> list[str]:
    return [f"{_key(name)} = {toml_value(value)}" for name, value in values.items()]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else toml_value(name)


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x20 or code == 0x7F else character


def setting_lines(
    settings: ProjectSettings, origins: Mapping[str, str], *, with_origins: bool = False
) -> list[str]:
    """The settings named in `origins` as TOML, each with its origin as a comment if wanted."""
    lines: list[str] = []
    for table, values in settings.model_dump().items():
        shown = {name: value for name, value in values.items() if f"{table}.{name}" in origins}
        entries = {f"{_key(name)} = {toml_value(value)}": f"{table}.{name}" for name, value in shown.items()}
        if entries:
            width = max(len(entry) for entry in entries)
            lines += [""] * bool(lines) + [f"[{table}]"]
            lines += [
                f"{entry:<{width}}  # {origins[key]}" if with_origins else entry
                for entry, key in entries.items()
            ]
    return lines
