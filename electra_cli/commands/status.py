"""Bare `electra`: how each stage stands, and the one next command."""

import os
from pathlib import Path

from electra_cli import __version__
from electra_cli.commands._options import OutputFormat
from electra_cli.commands._screen import open_screen

MARKS = {"up to date": "✓", "stale": "!", "unfinished": "…", "missing": "–"}

START = """\
No project.toml here.
  Start one    electra init                      electra-small, asks nothing
               electra init --recipe NAME        recipes: electra init --list
  Have text?   electra build-vocab corpus/
  Help         electra --help"""


def status(output: OutputFormat = OutputFormat.AUTO) -> None:
    """Show the status board of the project in the working directory."""
    from electra_cli.pipeline_status import Condition, next_command, stage_states
    from electra_cli.project import load_project

    with open_screen("electra", output) as screen:
        project = load_project()
        states = stage_states(project)
        lines = [machine()]
        if project.path is None:
            lines += START.split("\n")
        else:
            settings = project.settings.project
            lines.append(f"{project.path.name}   {settings.name}, recipe {settings.recipe}")
        has_begun = any(state.condition is not Condition.MISSING for state in states)
        if project.path is None and not has_begun:
            states = ()
        for state in states:
            mark = MARKS[state.condition]
            line = f"  {mark} {state.stage.name:<12} {state.condition.value:<12} {state.detail}"
            lines.append(line.rstrip())
        facts = {state.stage.name: [state.condition.value, state.detail] for state in states}
        screen.result({"stages": facts}, lines, next_command(states))


def machine() -> str:
    """`electra 0.1.0   torch 2.13.0 (cpu, 2 cores)   no GPU`, found without importing torch."""
    # Takes a tenth of a second to import, and no other command needs it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        torch, _, build = version("torch").partition("+")
    except PackageNotFoundError:
        torch, build = "missing", ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    count = f"{cores} core{'s' if cores > 1 else ''}"
    inside = f"{build}, {count}" if build else count
    gpu = f"{gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "no GPU"
    return f"electra {__version__}   torch {torch} ({inside})   {gpu}"
