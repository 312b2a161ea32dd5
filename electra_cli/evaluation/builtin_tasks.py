"""The tasks that are known by name, and the choice among them."""

from collections.abc import Sequence
from difflib import get_close_matches

from electra_cli.errors import UsageError
from electra_cli.evaluation.sentiment import SENTIMENT
from electra_cli.evaluation.tasks import GLUE, Task, plain

BUILTIN: dict[str, Task] = GLUE | {SENTIMENT.name: SENTIMENT}


def choose(names: Sequence[str], own: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks of these names, in their order, without repeats; `mnli-m` and `mnli-mm` mean `mnli`.

    Raises UsageError for an unknown name, with the nearest known one.
    """
    known = {plain(name): task for name, task in BUILTIN.items()} | {plain(task.name): task for task in own}
    known |= {"mnlim": GLUE["mnli"], "mnlimm": GLUE["mnli"]}
    chosen: dict[str, Task] = {}
    for name in names:
        task = known.get(plain(name))
        if task is None:
            near = get_close_matches(plain(name), known, n=1)
            raise UsageError(
                f"there is no task {name!r}",
                hint=(f"did you mean {known[near[0]].name}? " if near else "")
                + "known tasks: "
                + ", ".join(sorted({task.name for task in known.values()})),
            )
        chosen[task.name] = task
    return tuple(chosen.values())
