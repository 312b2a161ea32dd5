"""What is wrong with the settings, as a person reads it: every problem at once, each with its place."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from electra_cli.errors import Problem
from electra_cli.project_dump import toml_value
from electra_cli.project_keys import is_secret, is_secret_value, known_keys, tables
from electra_cli.project_layers import Merged
from electra_cli.project_suggestions import did_you_mean, nearest, plain, suggest_key

LARGEST = 2**63 - 1
_SHOWN_CHARACTERS = 40
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def raw_problems(merged: Mapping[str, object]) -> dict[str, str]:
    """What no settings class can see, by dotted key: secrets, control characters, huge whole numbers."""
    found = {}
    for key, value in _everything(merged, ""):
        if is_secret(key.rpartition(".")[2]) or (isinstance(value, str) and is_secret_value(value)):
            found[key] = (
                "looks like a secret, and this file is copied into every run: "
                "take it out, and use the environment (HF_TOKEN, …)"
            )
        elif isinstance(value, str) and (control := _CONTROL.search(value)):
            found[key] = (
                f"holds the control character 0x{ord(control[0]):02x}; "
                "in single quotes a backslash is only a backslash: 'C:\\new'"
            )
        elif isinstance(value, int) and abs(value) > LARGEST:
            found[key] = f"is too large a whole number; at most {LARGEST:,}"
    return found


def _everything(value: object, key: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _everything(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        yield key, value
        for index, item in enumerate(value):
            yield from _everything(item, f"{key}.{index}")
    else:
        yield key, value


def all_problems(
    errors: Sequence[ErrorDetails], raw: Mapping[str, str], merged: Merged, use: str
) -> tuple[Problem, ...]:
    """Every problem, in the order of the file."""
    problems = [_problem(key, message, merged) for key, message in raw.items()]
    for error in errors:
        key = ".".join(str(part) for part in error["loc"])
        if any(key == other or other.startswith(f"{key}.") for other in raw):
            continue
        problems.append(_problem(key, _message(error, key, merged, use), merged))
    return tuple(sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0)))


def errors_of(error: ValidationError, table: str = "") -> list[ErrorDetails]:
    """Pydantic's findings; `table` is put in front of each place."""
    details = error.errors(include_url=False)
    for detail in details:
        detail["loc"] = (table, *detail["loc"]) if table else detail["loc"]
    return details


def _problem(key: str, message: str, merged: Merged) -> Problem:
    owner = merged.owner(key)
    value = _value_at(merged.values, key)
    while owner is not None and not owner.lines and isinstance(value, Mapping) and len(value) == 1:
        # `--set` gives one setting: name it whole, although its table is what nobody knows.
        ((name, value),) = value.items()
        key = f"{key}.{name}"
    hidden = value is _ABSENT or isinstance(value, Mapping) or "secret" in message
    return Problem(
        key=key,
        message=message,
        line=owner.line(key) if owner else None,
        source=owner.source if owner else "",
        value="" if hidden else short(value),
    )


def short(value: object) -> str:
    """A value as it was written, cut after some characters."""
    if isinstance(value, int) and abs(value) > 10 ** (_SHOWN_CHARACTERS - 1):
        return f"a number of {value.bit_length()} bits"
    text = toml_value(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


_ABSENT = object()


def _value_at(values: object, key: str) -> object:
    for part in key.split("."):
        if isinstance(values, Mapping) and part in values:
            values = values[part]
        elif isinstance(values, list) and part.isdigit() and int(part) < len(values):
            values = values[int(part)]
        else:
            return _ABSENT
    return values


def _message(error: ErrorDetails, key: str, merged: Merged, use: str) -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        return unknown_key(key, error["input"], use)
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if kind == "missing":
        return "is missing"
    if kind == "finite_number":
        return "must be finite: nan and inf are refused"
    schema_key = re.sub(r"\.\d+(?=\.|$)", "", key)
    known = known_keys(use).get(schema_key)
    if known is None:
        return f"needs a table [{key}]" if key in tables() else str(error["msg"])
    if kind == "string_pattern_mismatch":
        return "needs a name of letters, digits, - _ and . (at most 64, the first a letter or digit)"
    if kind in ("too_short", "too_long"):
        return f"needs exactly {error['ctx']['min_length' if kind == 'too_short' else 'max_length']} values"
    if schema_key != key and kind.endswith("_type") and key.rpartition(".")[2].isdigit():
        return f"needs {known.allowed}"
    quoted = isinstance(error["input"], str) and known.allowed.startswith(("a whole", "a number", "true"))
    message = f"needs {known.allowed}{', without quotes' if quoted else ''}"
    if kind == "literal_error" and isinstance(error["input"], str):
        choices = re.findall(r'"([^"]*)"', known.allowed)
        meant = did_you_mean([f'"{choice}"' for choice in nearest(error["input"], choices)], quoted=False)
        return f"{message}; {meant}" if meant else message
    return message


def unknown_key(key: str, value: object, use: str) -> str:
    """Why a key is refused that no settings class has, and which one was probably meant."""
    table, _, name = re.sub(r"\.\d+(?=\.|$)", "", key).rpartition(".")
    keys = tuple(known_keys(use))
    if plain(name) == "vocab_size" and table == "model":
        return (
            "unknown setting: the vocabulary decides the model's size, so the two cannot disagree; "
            "set [vocab] size before electra build-vocab, or name an own vocabulary in [vocab] path"
        )
    if not table:
        return _unknown_table(name, value, keys)
    names = _fitting(suggest_key(table, name, keys), table, value, use)
    if names:
        places = [f"{n.rpartition('.')[2]}` in `[{n.rpartition('.')[0]}]" if "." in n else n for n in names]
        return f"unknown setting; {did_you_mean(places)}"
    own = [k.rpartition(".")[2] for k in keys if k.rpartition(".")[0] == table]
    return f"unknown setting; [{table}] has {', '.join(own)}"


def _fitting(names: tuple[str, ...], table: str, value: object, use: str) -> tuple[str, ...]:
    """Of equally near names those whose kind the given value has, where any has it."""
    known = known_keys(use)
    fitting = [n for n in names if known[n if "." in n else f"{table}.{n}"].fits(value)]
    return tuple(fitting) or names


def _unknown_table(name: str, value: object, keys: Sequence[str]) -> str:
    if not isinstance(value, Mapping):
        names = suggest_key("", name, keys) or [k for k in keys if plain(name) == k.replace(".", "_")]
        places = [f"{n.rpartition('.')[2]}` in `[{n.rpartition('.')[0]}]" for n in names]
        return f"stands in no table; {did_you_mean(places)}".rstrip("; ")
    known = [table for table in tables() if "." not in table]
    near = nearest(name, known) or _by_content(value, keys, known)
    meant = did_you_mean([f"[{table}]" for table in near])
    return f"unknown table; {meant}" if meant else f"unknown table; there are {', '.join(known)}"


def _by_content(value: Mapping[object, object], keys: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The table that has most of the names which stand in an unknown one."""
    hits = {table: sum(f"{table}.{name}" in keys for name in value) for table in known}
    best = max(hits.values(), default=0)
    return tuple(table for table, count in hits.items() if count == best) if best else ()
