"""Settings from several places, one over the other, each value remembering where it came from."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tomli

from electra_cli.errors import Problem, ProjectError
from electra_cli.project_lines import key_lines
from electra_cli.project_overrides import Override

_KEY_AT_START = re.compile(r"[A-Za-z0-9_.-]{1,40}")
MAX_FILE_BYTES = 1 << 20
"""A project file is a few kilobytes; a larger one is something else."""


@dataclass(frozen=True)
class Layer:
    """The settings of one place."""

    values: Mapping[str, object]
    source: str
    """`recipe electra-small`, the project file's name, `--set` or `ELECTRA_SET`."""
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, key: str) -> str:
        """`project.toml line 8`; the source alone where no line is known."""
        line = self.line(key)
        return f"{self.source} line {line}" if line is not None else self.source

    def line(self, key: str) -> int | None:
        """Line of a key, or of the nearest thing around it."""
        while key:
            if key in self.lines:
                return self.lines[key]
            key = key.rpartition(".")[0]
        return None


@dataclass
class Merged:
    """All layers in one nested table."""

    values: dict[str, object] = field(default_factory=dict)
    owners: dict[str, Layer] = field(default_factory=dict)
    """The layer that set each dotted key."""

    def add(self, layer: Layer) -> None:
        """Lay another layer over what is there; lists and arrays of tables are replaced whole."""
        for path, value in leaves(layer.values):
            self._put(path, value)
            self.owners[".".join(path)] = layer

    def drop(self, key: str) -> None:
        """Forget a dotted key."""
        *tables, name = key.split(".")
        table: object = self.values
        for part in tables:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(name, None)
        self.owners.pop(key, None)

    def get(self, key: str) -> object:
        """The value of a dotted key; `None` where nobody set it."""
        value: object = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def owner(self, key: str) -> Layer | None:
        """The layer that set a key or the nearest thing around or, for a table, inside it."""
        start = key
        while key:
            if key in self.owners:
                return self.owners[key]
            key = key.rpartition(".")[0]
        return next((o for name, o in reversed(self.owners.items()) if name.startswith(f"{start}.")), None)

    def _put(self, path: Sequence[str], value: object) -> None:
        table = self.values
        for part in path[:-1]:
            below = table.get(part)
            if not isinstance(below, dict):
                below = table[part] = {}
            table = below
        if value == {} and isinstance(table.get(path[-1]), dict):
            return
        table[path[-1]] = value


def leaves(
    values: Mapping[str, object], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value that is no table, with the names that lead to it; an empty table counts as a value."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def layer_of(override: Override) -> Layer:
    """The layer of one `--set` or one entry of `ELECTRA_SET`."""
    value = override.value
    for part in reversed(override.key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return Layer(value, override.source)


def read_file(path: Path, shown: str, source: str = "") -> Layer:
    """The layer of a TOML file; `shown` names it in messages. Raises `ProjectError`."""
    text = _read_text(path, shown)
    try:
        values = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        problem = Problem(key="", message=_syntax_message(error, text), line=error.lineno, source=shown)
        raise ProjectError(
            f"{shown} is not valid TOML", problems=(problem,), path=shown, line=error.lineno
        ) from error
    except (RecursionError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ProjectError(f"{shown} cannot be read: {reason}", path=shown) from error
    return Layer(values, source or shown, key_lines(text.replace("\r\n", "\n")))


def _read_text(path: Path, shown: str) -> str:
    if path.is_dir():
        raise ProjectError(
            f"{shown} is a folder, not a project file",
            path=shown,
            hint=f"name the file inside it, such as {path.name}/project.toml",
        )
    if not path.exists():
        raise ProjectError(
            f"there is no project file {shown}",
            path=shown,
            hint="electra init writes one; is the name right?",
        )
    if not path.is_file():
        raise ProjectError(f"{shown} is no regular file", path=shown)
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise ProjectError(f"{shown} cannot be read: {error.strerror}", path=shown) from error
    if size > MAX_FILE_BYTES:
        raise ProjectError(
            f"{shown} has {size:,} bytes; a project file has at most {MAX_FILE_BYTES:,}",
            path=shown,
            hint="is this a text of the corpus?",
        )
    return _decode(content, shown)


def _decode(content: bytes, shown: str) -> str:
    if content.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        problem = Problem(key="", message="begins with a byte order mark", line=1, source=shown)
        raise ProjectError(
            f"{shown} is not plain UTF-8",
            problems=(problem,),
            path=shown,
            line=1,
            hint="save it as UTF-8 without a byte order mark",
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = f"byte {error.start} (0x{content[error.start]:02x}) is not UTF-8"
        problem = Problem(key="", message=wrong, line=line, source=shown)
        raise ProjectError(
            f"{shown} is not UTF-8", problems=(problem,), path=shown, line=line, hint="save it as UTF-8"
        ) from error


def _syntax_message(error: tomli.TOMLDecodeError, text: str) -> str:
    lines = text.split("\n")
    written = lines[error.lineno - 1].strip() if error.lineno <= len(lines) else ""
    # Only the key is repeated: a value may be a secret.
    key = _KEY_AT_START.match(written)
    message = f"column {error.colno}{f', at {key[0]}' if key else ''}: {error.msg}"
    if "overwrite" in error.msg or "twice" in error.msg:
        message += "; is it set twice?"
    if "\\" in written and ("escape" in error.msg or "hex" in error.msg):
        message += "; a backslash needs single quotes, 'C:\\new'"
    return message
