"""At which line of a project file each key stands: a small scanner beside tomli, which keeps no places.

It reads only what is needed to find keys: table headers, `key =`, strings over several lines and brackets.
Where it is unsure it leaves a key out; the message then names the key alone.
"""

import re

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_PARTS = re.compile(_PART)
_TOKEN = re.compile(r'''"""|\'\'\'|"(?:[^"\\]|\\.)*"|'[^']*'|[\[\]{}#]''')


def key_lines(text: str) -> dict[str, int]:
    """Line (from 1) of each dotted key and table header; an item of `[[a.b]]` is `a.b.0`, `a.b.1`, …"""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    depth = 0
    quote = ""
    for line_number, line in enumerate(text.split("\n"), start=1):
        start = 0
        if not quote and depth == 0:
            header = _HEADER.match(line)
            if header:
                table = _table_name(header[1], _dotted(header[2]), counts)
                lines.setdefault(table, line_number)
                continue
            key = _KEY.match(line)
            if key is None:
                continue
            dotted = _dotted(key[1])
            lines.setdefault(f"{table}.{dotted}" if table else dotted, line_number)
            start = key.end()
        depth, quote = _after(line, start, depth, quote)
    return lines


def _table_name(bracket: str, dotted: str, counts: dict[str, int]) -> str:
    """The header's dotted name, with the running number of each array of tables that it lies in."""
    for array, count in counts.items():
        if dotted.startswith(f"{array}."):
            return f"{array}.{count - 1}{dotted[len(array) :]}"
    if bracket == "[":
        return dotted
    counts[dotted] = counts.get(dotted, 0) + 1
    return f"{dotted}.{counts[dotted] - 1}"


def _dotted(text: str) -> str:
    return ".".join(part.strip("\"'") for part in _PARTS.findall(text))


def _after(line: str, start: int, depth: int, quote: str) -> tuple[int, str]:
    """Bracket depth and open long string at the end of the line."""
    while True:
        if quote:
            end = line.find(quote, start)
            if end < 0:
                return depth, quote
            start, quote = end + 3, ""
        token = _TOKEN.search(line, start)
        if token is None or token[0] == "#":
            return depth, ""
        start = token.end()
        if token[0] in ('"""', "'''"):
            quote = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth = max(0, depth - 1)
