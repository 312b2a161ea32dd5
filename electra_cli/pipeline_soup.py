"""`electra export --soup`: several runs become one model folder."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from electra_cli.errors import InputError, UsageError
from electra_cli.pipeline_export import Trained, load_trained, model_facts, refuse_to_replace
from electra_cli.pipeline_runs import named_run, read_json, run_facts
from electra_cli.progress import Progress
from electra_cli.project import Project

if TYPE_CHECKING:
    from torch import Tensor

    from electra_cli.evaluation.request import Request
    from electra_cli.export.model import ExportReport
    from electra_cli.export.soup import Choice, Ingredient

SOUP = "soup"
"""Folder of a soup below the project, where no other is named."""

_NOT_OF_THE_WEIGHTS = ("dropout", "attention_dropout")


@dataclass(frozen=True, kw_only=True)
class SoupReport:
    """What was exported, and which runs are in it."""

    export: "ExportReport"
    runs: tuple[str, ...]
    """Names of the runs that were taken."""
    choice: "Choice | None"
    """The scores of a greedy soup; `None` for a uniform one."""


def export_soup(
    project: Project,
    runs: Sequence[Path],
    out: Path | None,
    progress: Progress,
    *,
    greedy: "Request | None" = None,
    self_check: bool = True,
) -> SoupReport:
    """Average the weights of `runs` and write them as Hugging Face folders; `out` None: `soup/`.

    `greedy`: take the runs one by one, as long as the median dev score of this evaluation's one task does
    not fall. InputError unless all runs started from the same weights. UsageError for fewer than two runs,
    or for another number of tasks than one.
    """
    from electra_cli.export.model import export_model
    from electra_cli.export.soup import average, require_one_origin

    if len(runs) < 2:
        raise UsageError(f"a soup of {len(runs)} runs", hint="electra export --soup RUN RUN …")
    target = out if out is not None else project.root / SOUP
    refuse_to_replace(target, project)
    found = [named_run(project.runs_dir, run) if not run.exists() else run for run in runs]
    trained = [load_trained(project, run) for run in found]
    ingredients = [_ingredient(run, one) for run, one in zip(found, trained, strict=True)]
    require_one_origin(ingredients)
    choice = None if greedy is None else _choose(project, trained[0], ingredients, greedy, progress)
    taken = [ingredients[number] for number in (choice.taken if choice else range(len(ingredients)))]
    _put_in(trained[0], average(taken))
    names = tuple(one.name for one in taken)
    facts = replace(
        model_facts(project, run_facts(found[0]), trained[0]),
        run=f"a soup of {', '.join(names)}",
        tokens=sum(one.tokens for one, own in zip(trained, ingredients, strict=True) if own in taken),
        # Figures and scores of the first run are not the soup's.
        heldout={},
        scores=(),
    )
    report = export_model(
        trained[0].objective.exports(),
        trained[0].vocabulary,
        facts,
        target,
        progress,
        self_check=self_check,
    )
    return SoupReport(export=report, runs=names, choice=choice)


def _ingredient(run: Path, trained: Trained) -> "Ingredient":
    from electra_cli.export.soup import Ingredient
    from electra_cli.training.weights import module_tensors

    settings, folder = trained.objective.settings, run_facts(run).path
    values = read_json(folder / "manifest.json").get("values")
    origin: dict[str, object] = {"project.seed": settings.project.seed}
    for table, values_of in (("model", settings.model), ("generator", settings.generator)):
        for key, value in values_of.model_dump().items():
            if key not in _NOT_OF_THE_WEIGHTS:
                origin[f"{table}.{key}"] = value
    origin["pretrain.init_from (sha256)"] = (
        values.get("content.init_from", "") if isinstance(values, dict) else ""
    )
    tensors = {name: value.clone() for name, value in module_tensors(trained.objective).items()}
    return Ingredient(name=folder.name, origin=origin, tensors=tensors)


def _put_in(trained: Trained, tensors: "dict[str, Tensor]") -> None:
    from electra_cli.training.weights import load_module_tensors

    load_module_tensors(trained.objective, tensors, "the average")


def _choose(
    project: Project,
    trained: Trained,
    ingredients: "Sequence[Ingredient]",
    request: "Request",
    progress: Progress,
) -> "Choice":
    """Fine-tune each candidate in a folder of its own, and compare the medians."""
    from electra_cli.evaluation.stage import check_tasks
    from electra_cli.export.soup import average, choose_greedily

    if len(request.tasks) != 1:
        raise UsageError(
            f"a greedy soup is judged by one task, not by {len(request.tasks)}",
            hint="electra export --soup --soup-mode greedy --task sst2 RUN RUN …",
        )
    check_tasks(project, request)

    def score(numbers: tuple[int, ...]) -> float | None:
        _put_in(trained, average([ingredients[number] for number in numbers]))
        value = _dev_score(project, trained, request, progress)
        shown = "no score" if value is None else f"{100 * value:.1f}"
        progress.message(f"{' + '.join(ingredients[number].name for number in numbers)}: {shown}")
        return value

    choice = choose_greedily(len(ingredients), score)
    if choice.score is None:
        raise InputError(
            f"no run gave a score on {request.tasks[0]} to compare soups by",
            hint="electra eval-glue on one of the runs says why; another --task may do",
        )
    return choice


def _dev_score(project: Project, trained: Trained, request: "Request", progress: Progress) -> float | None:
    """The median over the seeds; `None` where no seed gave a score."""
    from electra_cli.evaluation.glue import evaluate
    from electra_cli.export.tokenizer_files import write_tokenizer
    from electra_cli.models.folders import write_folder

    with tempfile.TemporaryDirectory(prefix="electra-soup-") as scratch:
        folder = Path(scratch) / "encoder"
        encoder = trained.objective.exports()["encoder"]
        write_folder(folder, encoder)
        write_tokenizer(
            folder,
            trained.vocabulary,
            model_type=str(encoder.config["model_type"]),
            model_max_length=trained.objective.settings.rows.sequence_length,
        )
        scored = replace(request, out=Path(scratch) / "scores")
        return evaluate(project, folder, scored, progress).results.tasks[0].median
