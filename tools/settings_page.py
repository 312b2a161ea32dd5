"""Write docs/settings.md, the list of every setting: `python tools/settings_page.py`.

It is made from the settings classes. A test compares the page with what this prints, so it cannot grow old.
"""

import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from electra_cli.models.sizes import BACKBONE_SIZES, Size
from electra_cli.project import chosen_defaults
from electra_cli.project_dump import toml_value
from electra_cli.project_keys import Key, item_class, known_keys
from electra_cli.settings import ProjectSettings, Settings
from electra_cli.settings_objectives import OBJECTIVE_SETTINGS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

INTRODUCTION = """\
# Settings

Every key that a `project.toml` may hold, with the value it has when neither the file, its recipe nor an
override sets it. `electra config explain KEY` says the same of one key and adds its present value and where
that came from; `electra config show --all --origin` lists them all.

Paths in a project file start at the file's folder. An unknown key is an error.

<!-- Written by tools/settings_page.py from electra_cli/settings.py: change a text there. -->
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    keys = known_keys()
    for table, field in ProjectSettings.model_fields.items():
        model = field.annotation
        assert isinstance(model, type) and issubclass(model, Settings)
        parts.append(_section(f"[{table}]", model, _direct(keys.values(), table)))
        if table == "model":
            parts.append(_sizes())
        if table == "objective":
            parts += [_own(use) for use in OBJECTIVE_SETTINGS if use != ProjectSettings().objective.use]
        for key in _direct(keys.values(), table):
            item = item_class(key.field)
            if item is not None:
                parts.append(_section(f"[[{key.name}]]", item, _direct(keys.values(), key.name)))
    return "\n".join(parts)


def _own(use: str) -> str:
    """The own keys of an objective that is not the default."""
    keys = [key for key in _direct(known_keys(use).values(), "objective") if key.name != "objective.use"]
    return _section(f'[objective]` with `use = "{use}"', OBJECTIVE_SETTINGS[use], keys)


def _direct(keys: Iterable[Key], table: str) -> list[Key]:
    return [key for key in keys if key.name.rpartition(".")[0] == table]


def _section(title: str, model: type[Settings], keys: list[Key]) -> str:
    doc = " ".join((model.__doc__ or "").split())
    summary = doc.partition(": ")[2] or doc
    summary = summary[:1].upper() + summary[1:]
    rows = [
        f"| `{key.name.rpartition('.')[2]}` | {_default(key)} | {_cell(key.allowed)} | {_cell(key.meaning)} |"
        for key in keys
    ]
    head = ["| key | default | may be | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## `{title}`", "", summary, "", *head, *rows, ""])


def _sizes() -> str:
    names = [field.name for field in fields(Size)]
    head = ["| size | " + " | ".join(f"`{name}`" for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    parts = []
    for backbone, sizes in BACKBONE_SIZES.items():
        rows = [
            f"| `{name}` | " + " | ".join(f"{getattr(size, column):,}" for column in names) + " |"
            for name, size in sizes.items()
        ]
        parts += [f'The sizes of `backbone = "{backbone}"`:', "", *head, *rows, ""]
    return "\n".join(parts)


def _default(key: Key) -> str:
    if key.field.is_required():
        return "required"
    if item_class(key.field) is not None:
        return "none"
    text = f"`{_cell(toml_value(key.default))}`"
    others = [
        f"`{_cell(toml_value(value))}` for {name}"
        for known in chosen_defaults(key.name).values()
        for name, value in known.items()
    ]
    return ", ".join([text, *others])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(page(), end="")
    else:
        PAGE.write_text(page(), encoding="utf-8")
