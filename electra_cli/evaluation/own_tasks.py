"""Tasks of one's own: `[[evaluate.task]]` of the project file as a `Task`."""

from collections.abc import Callable
from pathlib import Path

from electra_cli.errors import ProjectError
from electra_cli.evaluation.tasks import NO_GOLD_LABEL, Role, Split, Task
from electra_cli.settings import OwnTask

_REGRESSION_METRICS = ("spearman", "pearson")


def own_task(settings: OwnTask, resolve: Callable[[str], Path]) -> Task:
    """A task of `[[evaluate.task]]`; `resolve` makes the paths of the project file absolute."""
    is_regression = settings.metric in _REGRESSION_METRICS
    if is_regression and settings.labels:
        raise ProjectError(
            f"evaluate.task {settings.name}: metric = {settings.metric!r} compares scores, "
            "so labels must be empty",
            key="evaluate.task",
            hint="remove labels, or choose accuracy, f1, macro_f1 or matthews",
        )
    if len(set(settings.labels)) != len(settings.labels) or len(settings.labels) == 1:
        raise ProjectError(
            f"evaluate.task {settings.name}: labels = {settings.labels} must be at least two different names",
            key="evaluate.task",
        )
    named = [("train", settings.train), ("dev", settings.dev), ("test", settings.test)]
    roles: dict[str, Role] = {"train": "train", "dev": "dev", "test": "test"}
    return Task(
        name=settings.name,
        title=settings.name,
        metric=settings.metric,
        text=(settings.text,),
        pair=(settings.pair,) if settings.pair else (),
        label=(settings.label,),
        source=() if "source" in (settings.text, settings.pair, settings.label) else ("source",),
        labels=tuple(settings.labels),
        is_regression=is_regression,
        positive=settings.labels[-1] if settings.labels else "",
        epochs=settings.epochs if "epochs" in settings.model_fields_set else 0,
        # `mixed` marks DynaSent sentences without a majority; it is a class only where it is named as one.
        skipped_labels=tuple(
            mark
            for mark in (*NO_GOLD_LABEL, *(("mixed",) if settings.labels else ()))
            if mark not in settings.labels
        ),
        splits=tuple(
            Split(role=roles[role], result=settings.name, stems=(), hub="", path=resolve(text))
            for role, text in named
            if text
        ),
    )
