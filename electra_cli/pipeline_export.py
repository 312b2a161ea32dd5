"""From a run to a model folder: its weights, its objective and its vocabulary become an export."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra_cli.errors import InputError
from electra_cli.pipeline_runs import (
    RunFacts,
    find_runs,
    flat_figures,
    last_record,
    newest_run,
    read_json,
    run_facts,
)
from electra_cli.progress import Progress, Silent
from electra_cli.project import Project, changed_settings, expanded_path, real_path

if TYPE_CHECKING:
    from electra_cli.data.vocabulary import Vocabulary
    from electra_cli.export.facts import ModelFacts
    from electra_cli.export.model import ExportReport
    from electra_cli.objectives.base import Objective


def export_run(
    project: Project,
    run: Path | None,
    out: Path | None,
    progress: Progress,
    *,
    self_check: bool = True,
) -> "ExportReport":
    """Write the networks of a run, or of one of its checkpoints, as Hugging Face folders.

    `run` None: the newest; `out` None: `export/` in the run. InputError when the vocabulary is another one.
    """
    from electra_cli.export.model import export_model

    source = run if run is not None else newest_run(project)
    facts = run_facts(source)
    target = expanded_path(out) if out is not None else facts.path / "export"
    refuse_to_replace(target, project)
    trained = load_trained(project, source, progress)
    return export_model(
        trained.objective.exports(),
        trained.vocabulary,
        model_facts(project, facts, trained),
        target,
        progress,
        self_check=self_check,
    )


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a checkpoint holds, ready to be exported."""

    objective: "Objective"
    vocabulary: "Vocabulary"
    step: int
    tokens: int


def load_trained(project: Project, run: Path, progress: Progress | None = None) -> Trained:
    """The networks of a run or checkpoint in evaluation mode, with their vocabulary.

    `progress` hears of damaged checkpoints that were passed over.

    InputError where the project's vocabulary is another one, CorruptError where the weights do not fit.
    """
    from electra_cli.data.vocabulary import load_vocabulary
    from electra_cli.objectives import find
    from electra_cli.objectives.base import VocabularyFacts
    from electra_cli.training.checkpoint import chosen_checkpoint, load_weights, read_state
    from electra_cli.training.weights import load_module_tensors

    folder = chosen_checkpoint(run, progress or Silent())
    state = read_state(folder)
    vocabulary = load_vocabulary(project.vocab_dir)
    if vocabulary.sha256 != state.vocabulary_sha256:
        raise InputError(
            f"{run} was trained with the vocabulary {state.vocabulary_sha256[:12]}…, "
            f"but {project.vocab_dir} holds {vocabulary.sha256[:12]}…",
            path=project.vocab_dir,
            hint="put the run's own vocabulary back, or train with this one",
        )
    weights = load_weights(folder)
    objective = find(weights.settings.objective.use, project.root)(
        weights.settings,
        VocabularyFacts.of(vocabulary, whole_word=weights.settings.masking.whole_word),
    )
    load_module_tensors(objective, weights.tensors, str(folder))
    objective.eval()
    return Trained(objective=objective, vocabulary=vocabulary, step=state.step, tokens=state.tokens)


def evaluation_model(project: Project, model: Path | None, progress: Progress) -> Path:
    """The folder to evaluate: `model`, else the newest export, else an export of the newest finished run.

    `model` may be a Hugging Face folder, an export, or a run, which is exported first.
    """
    if model is not None:
        return _folder_of(project, model, progress)
    for run in find_runs(project.runs_dir):
        if run.is_finished or run.has_export:
            return _exported(project, run, progress)
    raise InputError(
        f"there is no model to evaluate: no export and no finished run in {project.runs_dir}",
        path=project.runs_dir,
        hint="run electra pretrain first, or name a folder with --model",
    )


def _folder_of(project: Project, model: Path, progress: Progress) -> Path:
    if (model / "config.json").is_file():
        return model
    if (model / "encoder" / "config.json").is_file():
        return model / "encoder"
    if (model / "checkpoints").is_dir():
        return _exported(project, run_facts(model), progress)
    reason = "holds no config.json, no encoder/ and no checkpoints/" if model.is_dir() else "is not there"
    raise InputError(
        f"--model {model} {reason}", path=model, hint="name a run, an export or a Hugging Face folder"
    )


def _exported(project: Project, run: RunFacts, progress: Progress) -> Path:
    if run.has_export and run.export_step == run.checkpoint_step:
        return run.path / "export" / "encoder"
    if run.has_export and not run.is_finished:
        progress.warning(
            f"{run.path / 'export'} is of step {run.export_step or 0:,}, the run is at "
            f"{run.checkpoint_step or 0:,}; electra export brings it up to date",
            code="stale-export",
        )
        return run.path / "export" / "encoder"
    progress.message(f"exporting {run.path}, as electra export does")
    return export_run(project, run.path, None, progress).folder / "encoder"


def refuse_to_replace(out: Path, project: Project) -> None:
    """Refuse an output folder whose replacement would destroy something that is not ours.

    InputError for the root, the home folder, a repository, the project itself and the corpus.
    """
    folder = real_path(expanded_path(out))
    corpus = [real_path(project.resolve(text)) for text in corpus_files(project) if "://" not in text]
    reason = ""
    if folder == Path(folder.anchor):
        reason = "is the root of the file system"
    elif folder == real_path(expanded_path(Path("~"))):
        reason = "is your home folder"
    elif (folder / ".git").exists():
        reason = "is a git repository"
    elif real_path(project.root).is_relative_to(folder):
        reason = "holds the project"
    elif any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in corpus):
        reason = "is part of the corpus, or holds it"
    if reason:
        raise InputError(
            f"{out} {reason}: nothing is written there", path=out, hint="name another folder with --out"
        )


def corpus_files(project: Project) -> list[str]:
    """The files and folders that the project names as its corpus."""
    corpus = project.settings.corpus
    return [text for source in corpus.source for text in source.files] if corpus.source else corpus.files


def model_facts(project: Project, run: RunFacts, trained: Trained) -> "ModelFacts":
    """What the model card says of a run."""
    from electra_cli.export.facts import ChangedSetting, ModelFacts, Score

    settings = trained.objective.settings
    changed = changed_settings(settings)
    scores = read_json(run.path / "evaluate" / "glue" / "results.json").get("tasks")
    return ModelFacts(
        name=settings.project.name,
        recipe=settings.project.recipe,
        objective=settings.objective.use,
        run=run.path.name,
        step=trained.step,
        steps=settings.pretrain.steps,
        tokens=trained.tokens,
        sequence_length=settings.rows.sequence_length,
        language=settings.project.language,
        license=settings.project.license,
        changed_settings=[
            ChangedSetting(key=key, value=value, origin=project.origins.get(key, "the run"))
            for key, value in changed.items()
        ],
        data=read_json(project.shards_dir / "manifest.json"),
        heldout=flat_figures(last_record(run.path, "heldout")),
        scores=[
            Score(
                task=str(name),
                metric=str(task["metric"]),
                value=task["median"],
                num_runs=task["num_ok"],
                statistic="median",
            )
            for name, task in (scores.items() if isinstance(scores, dict) else ())
            if isinstance(task, dict) and isinstance(task.get("median"), float)
        ],
        left_out=trained.objective.left_out(),
        versions=run.versions,
    )
