"""An error as the person at the terminal reads it: what, where, and what to do."""

from pathlib import Path

from electra_cli.commands._safe import safe
from electra_cli.errors import ElectraError, Problem, ProjectError

CROSS = "✗"


def error_lines(error: ElectraError) -> list[str]:
    """The message behind a cross, then one line a problem or the place, then the hint.

    A single problem that the message already tells is not told twice.
    """
    first, *more = safe(error.message).split("\n")
    place = "" if isinstance(error, ProjectError) and error.problems else _place_of(error)
    lines = [f"{CROSS} {first}{place}", *(f"  {line}" for line in more)]
    if isinstance(error, ProjectError) and [one.message for one in error.problems] != [error.message]:
        lines += problem_lines(error.problems)
    if error.hint:
        lines += [f"  {line}" for line in safe(error.hint).split("\n")]
    return lines


def _place_of(error: ElectraError) -> str:
    """The file and line, where the message does not name them itself."""
    if not error.path:
        return ""
    is_named = Path(error.path).name in error.message
    if is_named and (error.line is None or f"line {error.line}" in error.message):
        return ""
    line = "" if error.line is None else f" line {error.line}"
    return f"   ({safe(error.path, one_line=True)}{line})"


def problem_lines(problems: tuple[Problem, ...]) -> list[str]:
    """One aligned line a problem: its place, what stands there, what is wrong with it."""
    places = [_place(problem) for problem in problems]
    written = [_written(problem) for problem in problems]
    width = max((len(place) for place in places), default=0)
    # One long value must not push every message off the screen.
    gap = max((len(text) for text in written if len(text) <= 40), default=0)
    lines = []
    for problem, place, text in zip(problems, places, written, strict=True):
        first, *more = safe(problem.message).split("\n")
        lines.append(
            f"  {place:<{width}}   {text:<{gap}}   {first}".rstrip() if gap else f"  {place}   {first}"
        )
        lines += [f"  {'':<{width + gap}}      {line}" for line in more]
    return lines


def _place(problem: Problem) -> str:
    if problem.line is not None:
        return f"line {problem.line}"
    return safe(problem.source, one_line=True)


def _written(problem: Problem) -> str:
    key = safe(problem.key, one_line=True)
    return f"{key} = {safe(problem.value, one_line=True)}" if problem.value else key
