"""The scanner finds the line of each key, and is not misled by what only looks like one."""

import time

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.project_dump import toml_value
from electra_cli.project_lines import key_lines

TRICKY = '''\
# [comment] key = 1
top = 1
[project]   # a table
name = "a # b = [c" # text
  seed=2
"quoted key" = 3
text = """
[not.a.table]
nor = "a key"
"""
raw = \'\'\'one line\'\'\'
list = [
  "[x]", # closing ] in a comment
  'y = 1',
]
after = true
inline = { a = 1, b = { c = "}" } }
dotted.name . deep = 4
[ corpus . more ]
files = []
[[corpus.source]]
name = "one"
[[corpus.source]]
name = "two"
[corpus.source.extra]
weight = 1
'''
EXPECTED = {
    "top": 2,
    "project": 3,
    "project.name": 4,
    "project.seed": 5,
    "project.quoted key": 6,
    "project.text": 7,
    "project.raw": 11,
    "project.list": 12,
    "project.after": 16,
    "project.inline": 17,
    "project.dotted.name.deep": 18,
    "corpus.more": 19,
    "corpus.more.files": 20,
    "corpus.source.0": 21,
    "corpus.source.0.name": 22,
    "corpus.source.1": 23,
    "corpus.source.1.name": 24,
    "corpus.source.1.extra": 25,
    "corpus.source.1.extra.weight": 26,
}


def test_keys_are_found_and_lookalikes_are_not() -> None:
    tomli.loads(TRICKY)
    assert key_lines(TRICKY) == EXPECTED


names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.one_of(text, st.integers(), st.booleans()), lambda inner: st.lists(inner, max_size=3), max_leaves=6
)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(tables=st.dictionaries(names, st.dictionaries(names, values, max_size=4), max_size=4), data=st.data())
def test_every_key_of_any_document_has_its_own_line(
    tables: dict[str, dict[str, object]], data: st.DataObject
) -> None:
    lines: list[str] = []
    expected: dict[str, int] = {}
    for table, entries in tables.items():
        lines += ["# comment"] * data.draw(st.integers(0, 2)) + [f"[{table}]"]
        expected[table] = len(lines)
        for name, value in entries.items():
            literal = toml_value(value)
            if isinstance(value, list) and data.draw(st.booleans()):
                literal = literal[:-1] + "\n] # ["
            lines.append(f"{name} = {literal}")
            expected[f"{table}.{name}"] = len(lines)
            lines = "\n".join(lines).split("\n")
    document = "\n".join(lines)
    assert tomli.loads(document).keys() == tables.keys()
    assert key_lines(document) == expected


@pytest.mark.parametrize(
    "line", ["[" + " " * 500_000, '"' * 500_000, "a." * 250_000, "x = [" + "[" * 500_000]
)
def test_a_hostile_line_costs_no_time(line: str) -> None:
    start = time.process_time()
    key_lines(line)
    assert time.process_time() - start < 5
