"""`eval-glue` as one call: fine-tune and score, answer files, pack a submission."""

from dataclasses import dataclass, replace
from pathlib import Path

from electra_cli.errors import InputError, UsageError
from electra_cli.evaluation.builtin_tasks import choose
from electra_cli.evaluation.glue import (
    MODELS,
    Report,
    arithmetic_of,
    evaluate,
    folder_of,
    own_tasks,
    place_of,
)
from electra_cli.evaluation.layer_rates import choose_rates, rate_factors
from electra_cli.evaluation.predict import predict_file
from electra_cli.evaluation.request import Request
from electra_cli.evaluation.saved import MARK, load_fine_tuned
from electra_cli.evaluation.submission import SUBMITTED, load_test_files, write_submission
from electra_cli.models.folder_files import CONFIG, read_json
from electra_cli.models.folder_formats import encoder_config
from electra_cli.progress import Progress
from electra_cli.project import Project

SUBMISSION = "submission.zip"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What eval-glue did."""

    report: Report | None
    """`None` where only a file was answered."""
    predictions: Path | None
    num_predictions: int
    submission: Path | None


def check_tasks(project: Project, request: Request) -> None:
    """UsageError for a task that there is not; costs nothing, while a model may have to be exported first."""
    choose(request.tasks or project.settings.evaluate.tasks, own_tasks(project))


def eval_glue(project: Project, model: Path, request: Request, progress: Progress) -> Outcome:
    """Do what `request` asks for; what can be refused is refused before anything long starts."""
    if request.submit:
        return _submit(project, model, request, progress)
    only_answers = request.predict is not None and not request.save_models
    report = None if only_answers else evaluate(project, model, request, progress)
    if request.predict is None:
        return Outcome(report=report, predictions=None, num_predictions=0, submission=None)
    out, number = _predict(project, model, request, request.predict)
    return Outcome(report=report, predictions=out, num_predictions=number, submission=None)


def _submit(project: Project, model: Path, request: Request, progress: Progress) -> Outcome:
    if request.tasks or request.limit or request.predict:
        raise UsageError(
            "--submit needs every task whole: it goes with neither --task, --limit nor --predict",
            hint="electra eval-glue --submit",
        )
    tests = load_test_files(place_of(project, request))
    report = evaluate(project, model, replace(request, tasks=SUBMITTED, save_models=True), progress)
    out = report.folder / SUBMISSION
    write_submission(report.folder / MODELS, tests, out, arithmetic_of(project), progress)
    return Outcome(report=report, predictions=None, num_predictions=0, submission=out)


def _predict(project: Project, model: Path, request: Request, file: Path) -> tuple[Path, int]:
    folder = folder_of(project, model, request)
    if (model / MARK).is_file() and not request.save_models:
        fine_tuned = model
    else:
        tasks = choose(request.tasks, own_tasks(project))
        if len(tasks) != 1:
            raise UsageError(
                "--predict answers for one task", hint="electra eval-glue --task mnli --predict FILE"
            )
        fine_tuned = folder / MODELS / tasks[0].name
        if not (fine_tuned / MARK).is_file():
            raise InputError(
                f"no fine-tuned model of {tasks[0].title} in {fine_tuned}",
                path=fine_tuned,
                hint=f"electra eval-glue --task {tasks[0].name} --save-model makes one",
            )
    loaded = load_fine_tuned(fine_tuned)
    stem = file.name.removesuffix(".gz").rpartition(".")[0] or file.name
    out = folder / "predictions" / f"{loaded.facts.task.name}-{stem}.tsv"
    answers = predict_file(loaded, file, out, arithmetic_of(project), skip_bad=request.skip_bad)
    return out, len(answers.names)


@dataclass(frozen=True)
class RateRow:
    """One learning rate."""

    group: str
    factor: float
    learning_rate: float


def list_rates(project: Project, model: Path) -> list[RateRow]:
    """The peak learning rate of every group of parameters, from the head down; trains nothing."""
    config = encoder_config(read_json(model / CONFIG), model / CONFIG)
    rates = choose_rates(project.settings.evaluate, config)
    return [
        RateRow(group, factor, factor * rates.learning_rate)
        for group, factor in rate_factors(config.num_layers, rates)
    ]
