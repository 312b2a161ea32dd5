"""The stage `eval-glue`: fine-tune one encoder on tasks, with several seeds, and write what came out."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from electra_cli import durable
from electra_cli.evaluation.answers_file import ENDING, write_answers
from electra_cli.evaluation.builtin_tasks import choose
from electra_cli.evaluation.estimate import Work, estimate_seconds, in_words
from electra_cli.evaluation.finetune import measure_pace, num_steps
from electra_cli.evaluation.kept import KeptRuns
from electra_cli.evaluation.own_tasks import own_task
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.precision import Arithmetic, choose_arithmetic
from electra_cli.evaluation.predict import Answers, labels_of
from electra_cli.evaluation.request import Request, check_threshold_names
from electra_cli.evaluation.results import DataFacts, Results, RunScore, TaskResult
from electra_cli.evaluation.results_file import write_results
from electra_cli.evaluation.setup import Setup
from electra_cli.evaluation.sources import TaskData, load_task
from electra_cli.evaluation.subject import load_start, load_subject, results_folder
from electra_cli.evaluation.task_runs import is_saved, prepare, prepare_training, run_seed, save_if_best
from electra_cli.evaluation.tasks import GLUE, Task
from electra_cli.optimization.device import resolve_device
from electra_cli.optimization.memory import naming_memory_shortage
from electra_cli.progress import Progress
from electra_cli.project import Project

MODELS, RUNS, ANSWERS = "fine_tuned", "runs", "answers"
"""Folders of the fine-tuned models, the finished runs and their answers, below the results."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What an evaluation wrote, and what it asked for."""

    folder: Path
    results: Results
    """Everything that stands in results.json."""
    asked: tuple[str, ...]
    """Names of the results of this evaluation."""


def place_of(project: Project, request: Request) -> Place:
    """Where the data are looked for."""
    folder = request.data if request.data is not None else project.resolve(project.settings.evaluate.data)
    return Place(folder=folder, is_offline=request.is_offline, skip_bad=request.skip_bad, limit=request.limit)


def folder_of(project: Project, model: Path, request: Request) -> Path:
    """Where results, finished runs and fine-tuned models of this model lie."""
    return request.out if request.out is not None else results_folder(model, project)


def own_tasks(project: Project) -> list[Task]:
    """The tasks of `[[evaluate.task]]`."""
    return [own_task(task, project.resolve) for task in project.settings.evaluate.task]


def arithmetic_of(project: Project) -> Arithmetic:
    """Device and precision of the project."""
    pretrain = project.settings.pretrain
    return choose_arithmetic(pretrain.precision, resolve_device(pretrain.device))


def load_setup(project: Project, model: Path, request: Request) -> Setup:
    """The model and all that its runs share."""
    settings = project.settings.evaluate
    subject = load_subject(model, project, dropout=settings.dropout)
    arithmetic = arithmetic_of(project)
    subject.encoder.to(arithmetic.device)
    models = folder_of(project, model, request) / MODELS
    start = load_start(request.init_from, models, subject) if request.init_from else None
    return Setup(settings=settings, subject=subject, arithmetic=arithmetic, start=start)


def evaluate(project: Project, model: Path, request: Request, progress: Progress) -> Report:
    """Fine-tune `model` on every task with every seed that is not finished yet; write the results.

    All data are read before the first step, so that a missing or damaged file costs no hours. A finished
    (task, seed) pair is kept at once; the same call continues behind it.
    """
    folder = folder_of(project, model, request)
    wanted = choose(request.tasks or project.settings.evaluate.tasks, own_tasks(project))
    loaded = _load(wanted, place_of(project, request), progress)
    check_threshold_names(request.thresholds, [name for data in loaded for name in data.dev])
    setup = load_setup(project, model, request)
    seeds = request.seeds or tuple(range(project.settings.evaluate.seeds))
    with durable.locked(folder, "electra eval-glue"):
        evaluation = _Evaluation(setup, request, folder, seeds, progress)
        _describe(loaded, setup, request, progress)
        evaluation.say_how_long(loaded)
        finished = [result for data in loaded for result in evaluation.run_task(data)]
        results = Results(
            model=setup.subject.name,
            model_sha256=setup.subject.sha256,
            checkpoint_step=setup.subject.step,
            protocol=project.settings.evaluate.protocol,
            settings=setup.facts(),
            arithmetic=setup.arithmetic_name,
            tasks=tuple(finished),
        )
        results = write_results(folder, results)
    return Report(folder=folder, results=results, asked=tuple(result.name for result in finished))


def _load(wanted: Sequence[Task], place: Place, progress: Progress) -> list[TaskData]:
    """All examples of all tasks. AX has no training set of its own: MNLI's model answers it."""
    diagnostic = next((task for task in wanted if task.name == "ax"), None)
    tasks = [task for task in wanted if task is not diagnostic]
    if diagnostic is not None and GLUE["mnli"] not in tasks:
        tasks.append(GLUE["mnli"])
    progress.begin("read", len(tasks), "tasks")
    loaded = []
    for task in tasks:
        loaded.append(load_task(task, place, extra=diagnostic if task.name == "mnli" else None))
        progress.advance(note=task.title)
    progress.end()
    return loaded


def _describe(loaded: Sequence[TaskData], setup: Setup, request: Request, progress: Progress) -> None:
    """What is evaluated on what, before any of it costs time."""
    subject, config, arithmetic = setup.subject, setup.subject.encoder.config, setup.arithmetic
    rates = setup.recipe(loaded[0].task).rates
    step = "" if subject.step is None else f", step {subject.step:,}"
    progress.message(f"model  {subject.name} ({config.num_layers} × {config.hidden_size}{step})")
    progress.message(f"       {setup.arithmetic_name}: {arithmetic.reason}")
    progress.message(
        f"rates  {rates.learning_rate:g} at the head, × {rates.layer_decay:g} a layer; --print-lrs lists them"
    )
    if setup.max_length < setup.settings.sequence_length:
        progress.message(f"inputs are cut to the model's {setup.max_length} positions")
    for data in loaded:
        dev = " + ".join(f"{len(examples):,}" for examples in data.dev.values())
        limited = " (limited)" if request.limit else ""
        progress.message(
            f"data   {data.task.title}: {data.source}   {len(data.train):,} train · {dev} dev{limited}"
        )
        for examples in (data.train, *data.dev.values()):
            for reason, number in examples.skipped.items():
                progress.message(f"       {examples.source}: {number:,} rows left out, {reason}")
        for remark in data.remarks:
            progress.warning(f"{data.task.title}, {remark}", code="data-remark")


class _Evaluation:
    """Runs tasks and keeps what is finished."""

    def __init__(
        self, setup: Setup, request: Request, folder: Path, seeds: tuple[int, ...], progress: Progress
    ) -> None:
        durable.remove_leftovers(folder)
        durable.remove_leftovers(folder / RUNS)
        durable.remove_leftovers(folder / MODELS)
        durable.remove_leftovers(folder / ANSWERS)
        self.setup, self.request, self.folder = setup, request, folder
        self.seeds, self.progress = seeds, progress
        self.kept = KeptRuns(folder / RUNS)

    def finished(self, data: TaskData, seed: int) -> dict[str, RunScore] | None:
        """A kept run, unless its model or its answers are asked for and nowhere on disk."""
        scores = self.kept.load(data.task.name, seed, self.setup.key(data, seed))
        if scores is None or set(scores) != set(data.dev):
            return None
        models = self.folder / MODELS / data.task.name
        if self.request.save_models and not is_saved(models, data, self.setup, scores):
            return None
        is_failed = any(score.status == "failed" for score in scores.values())
        if self.setup.protocol.keeps_answers and not is_failed:
            paths = [self.answers_path(data, name, seed) for name in data.dev]
            if not all(path.is_file() for path in paths):
                return None
        return scores

    def answers_path(self, data: TaskData, split: str, seed: int) -> Path:
        """Where the answers of a run to one dev split are kept."""
        key = self.setup.key(data, seed)
        return self.folder / ANSWERS / f"{split}-{seed}-{key[:16]}{ENDING}"

    def say_how_long(self, loaded: Sequence[TaskData]) -> None:
        """Time a few steps on the first task and tell what all pending runs will take."""
        works: list[Work] = []
        num_runs = 0
        for data in loaded:
            pending = sum(self.finished(data, seed) is None for seed in self.seeds)
            epochs = self.setup.recipe(data.task).epochs
            passes = pending * epochs * (2 if self.setup.is_swapped(data.task) else 1)
            dev = list(data.dev.values())
            num_scorings = pending * (epochs if self.setup.protocol.patience else 1)
            works.append(Work(train=data.train, dev=dev, num_passes=passes, num_scorings=num_scorings))
            num_runs += pending
        num_kept = len(self.seeds) * len(loaded) - num_runs
        if num_kept:
            self.progress.message(f"kept   {num_kept} finished runs from {self.folder / RUNS}")
        if not num_runs:
            return
        first, recipe = loaded[0], self.setup.recipe(loaded[0].task)
        sample = replace(first, train=first.train.first(16 * recipe.batch_size))
        training, _ = prepare_training(sample, self.setup)
        with fitting_into_memory(self.setup):
            pace = measure_pace(self.setup.classifier(first.task), training, recipe, self.setup.arithmetic)
        seconds = estimate_seconds(works, self.setup.subject.text_encoder, self.setup.max_length, pace)
        runs = "1 run" if num_runs == 1 else f"{num_runs} runs"
        about = "at most about" if self.setup.protocol.patience else "about"
        self.progress.message(f"time   {about} {in_words(seconds)} for {runs} (3 steps timed)")

    def run_task(self, data: TaskData) -> list[TaskResult]:
        """Every seed of a task, and a result for each of its dev splits."""
        task = data.task
        prepared = None
        by_seed: dict[int, Mapping[str, RunScore]] = {}
        for seed in self.seeds:
            scores: Mapping[str, RunScore] | None = self.finished(data, seed)
            if scores is None:
                prepared = prepare(data, self.setup) if prepared is None else prepared
                steps = num_steps(len(prepared.training.encoded), self.setup.recipe(task))
                self.progress.begin(f"{task.title} seed {seed}", steps, "steps")
                with fitting_into_memory(self.setup):
                    outcome = run_seed(prepared, self.setup, seed, self.progress.advance)
                scores = outcome.scores
                self.progress.end()
                self._keep_answers(data, seed, outcome.answers)
                if self.request.save_models:
                    save_if_best(self.folder / MODELS / task.name, prepared, self.setup, seed, scores)
                self.kept.save(task.name, seed, self.setup.key(data, seed), scores)
            by_seed[seed] = scores
            self._report(seed, scores)
        return [
            TaskResult(
                name=name,
                metric=task.metric,
                runs=tuple(by_seed[seed][name] for seed in self.seeds),
                data=_data_facts(data, name, self.request.limit),
            )
            for name in data.dev
        ]

    def _keep_answers(self, data: TaskData, seed: int, answers: Mapping[str, Answers]) -> None:
        for split, one in answers.items():
            labels = labels_of(data.task, data.dev[split])
            key = self.setup.key(data, seed)
            stored = one.stored(task=data.task.name, split=split, model=key, labels=labels)
            write_answers(self.answers_path(data, split, seed), stored)

    def _report(self, seed: int, scores: Mapping[str, RunScore]) -> None:
        for name, score in scores.items():
            figures = {"task": name, "seed": seed, "value": score.value, "status": score.status}
            self.progress.figures("evaluation", figures)
            if score.status != "ok":
                self.progress.warning(
                    f"{name}, seed {seed}: {score.status}, not in the statistics: {score.reason}",
                    code=score.status,
                )


def fitting_into_memory(setup: Setup) -> AbstractContextManager[None]:
    """MemoryShortError, with what to change, where the block runs out of memory."""
    return naming_memory_shortage(
        f"evaluate.batch_size = {setup.settings.batch_size}, inputs of up to {setup.max_length} tokens",
        key="evaluate.batch_size",
        hint="a smaller evaluate.batch_size or evaluate.sequence_length needs less; both change the scores",
    )


def _data_facts(data: TaskData, name: str, limit: int) -> DataFacts:
    files = (data.train, data.dev[name])
    skipped: dict[str, int] = {}
    for examples in files:
        for reason, number in examples.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + number
    return DataFacts(
        source=data.source,
        sha256=f"{data.train.sha256}+{data.dev[name].sha256}",
        num_train=len(data.train),
        num_dev=len(data.dev[name]),
        skipped=skipped,
        bad_rows={examples.source: examples.bad_rows for examples in files if examples.bad_rows},
        limit=limit,
        remarks=data.remarks,
    )
