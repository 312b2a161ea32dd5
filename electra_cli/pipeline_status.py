"""What is up to date, stale (and why) or missing: read from the manifests alone, without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from electra_cli.pipeline import STAGES, Stage
from electra_cli.pipeline_manifests import input_change, setting_differences
from electra_cli.pipeline_runs import RunFacts, find_runs, read_json
from electra_cli.project import Project


class Condition(StrEnum):
    """How a stage stands."""

    CURRENT = "up to date"
    STALE = "stale"
    UNFINISHED = "unfinished"
    MISSING = "missing"


@dataclass(frozen=True)
class StageState:
    """One line of the status board."""

    stage: Stage
    condition: Condition
    detail: str
    """Why it is stale, or what is there."""


def stage_states(project: Project) -> tuple[StageState, ...]:
    """The state of each stage, in pipeline order. A stage over a stale one is stale, too."""
    vocabulary = read_json(project.vocab_dir / "manifest.json")
    shards = read_json(project.shards_dir / "manifest.json")
    runs = find_runs(project.runs_dir)
    run = runs[0] if runs else None
    found = (
        _vocabulary(project, vocabulary),
        _shards(project, shards, _tokenizer_sha256(vocabulary)),
        _model(run, _tokenizer_sha256(vocabulary)),
        _export(run),
        _scores(run),
    )
    states: list[StageState] = []
    for stage, (condition, detail) in zip(STAGES, found, strict=True):
        before = states[-1] if states else None
        if condition is Condition.CURRENT and before and before.condition is Condition.STALE:
            condition, detail = Condition.STALE, f"made before the {before.stage.name} became stale"
        states.append(StageState(stage, condition, detail))
    return tuple(states)


def next_command(states: tuple[StageState, ...]) -> str:
    """The one command that brings the pipeline further; empty when all is up to date."""
    for state in states:
        if state.condition is not Condition.CURRENT:
            again = state.condition is Condition.STALE and state.stage.name in ("vocabulary", "shards")
            return state.stage.command + (" --force" if again else "")
    return ""


Found = tuple[Condition, str]


def _vocabulary(project: Project, manifest: Mapping[str, object]) -> Found:
    if not manifest:
        return Condition.MISSING, ""
    for key, old, new in setting_differences(manifest, "vocab", project.settings.vocab):
        return Condition.STALE, f"{key} was {old}, is {new}"
    # A vocabulary of one's own does not depend on the corpus.
    changed = "" if project.settings.vocab.path else input_change(project, manifest)
    if changed:
        return Condition.STALE, changed
    size = manifest.get("size")
    return Condition.CURRENT, f"{size:,} pieces" if isinstance(size, int) else ""


def _shards(project: Project, manifest: Mapping[str, object], vocabulary_sha256: str) -> Found:
    if not manifest:
        return Condition.MISSING, ""
    if manifest.get("vocab_sha256") != vocabulary_sha256:
        return Condition.STALE, "made with another vocabulary"
    for key, old, new in setting_differences(manifest, "corpus", project.settings.corpus):
        return Condition.STALE, f"{key} was {old}, is {new}"
    changed = input_change(project, manifest)
    if changed:
        return Condition.STALE, changed
    tokens = manifest.get("num_content_tokens")
    return Condition.CURRENT, f"{tokens:,} tokens" if isinstance(tokens, int) else ""


def _model(run: RunFacts | None, vocabulary_sha256: str) -> Found:
    if run is None:
        return Condition.MISSING, ""
    place = f"step {run.step:,} of {run.steps:,}"
    if vocabulary_sha256 and run.vocabulary_sha256 != vocabulary_sha256:
        return Condition.STALE, f"{run.path.name}: trained with another vocabulary"
    if run.is_finished:
        return Condition.CURRENT, f"{run.path.name}, {place}"
    return Condition.UNFINISHED, f"{run.path.name}, {run.state} at {place}"


def _export(run: RunFacts | None) -> Found:
    if run is None or run.export_step is None:
        return Condition.MISSING, ""
    if run.export_step != run.checkpoint_step:
        newest = run.checkpoint_step or 0
        return Condition.STALE, f"of step {run.export_step:,}; the run has step {newest:,}"
    return Condition.CURRENT, f"step {run.export_step:,}"


def _scores(run: RunFacts | None) -> Found:
    results = read_json(run.path / "evaluate" / "glue" / "results.json") if run is not None else {}
    tasks = results.get("tasks")
    if run is None or not isinstance(tasks, dict) or not tasks:
        return Condition.MISSING, ""
    step = results.get("checkpoint_step")
    if step != run.export_step:
        return Condition.STALE, f"of step {step}; the export is of step {run.export_step}"
    return Condition.CURRENT, ", ".join(str(task) for task in tasks)


def _tokenizer_sha256(manifest: Mapping[str, object]) -> str:
    hashes = manifest.get("sha256")
    return str(hashes.get("tokenizer.json", "")) if isinstance(hashes, dict) else ""
