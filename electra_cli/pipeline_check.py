"""`electra check`: what can be known of a run before its first step, each fact on a line of its own."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from electra_cli.errors import ElectraError, ProjectError, StorageError
from electra_cli.pipeline import ensure_shards, ensure_vocabulary
from electra_cli.progress import Progress
from electra_cli.project import Project

if TYPE_CHECKING:
    from electra_cli.data.shards import ShardSet
    from electra_cli.data.vocabulary import Vocabulary
    from electra_cli.training.contract import Contract
    from electra_cli.training.dry_run import DryRun

_ROOM_FOR_CHECKPOINTS = 2.2


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    is_good: bool
    text: str


@dataclass(frozen=True)
class CheckReport:
    """All findings; `error` is the first that stops a run, with its exit code."""

    findings: tuple[Finding, ...]
    error: ElectraError | None
    rehearsal: "DryRun | None"


def check_project(project: Project, progress: Progress) -> CheckReport:
    """Look at project, vocabulary and data, then rehearse the run; builds nothing and leaves nothing."""
    findings = [_project(project)]
    vocabulary: Vocabulary | None = None
    shards: ShardSet | None = None
    rehearsal: DryRun | None = None
    error: ElectraError | None = None
    name = "vocabulary"
    try:
        vocabulary = ensure_vocabulary(project, progress, build=False)
        name = "data"
        _, shards = ensure_shards(project, progress, build=False)
        findings.append(Finding("vocabulary", True, f"{vocabulary.size:,} pieces, matches the shards"))
        name = "model"
        from electra_cli.training.dry_run import dry_run

        rehearsal = dry_run(project, vocabulary, shards, progress)
    except ElectraError as caught:
        error = caught
        if name == "data" and vocabulary is not None:
            findings.append(Finding("vocabulary", True, f"{vocabulary.size:,} pieces"))
        hint = f"; {caught.hint}" if caught.hint else ""
        findings.append(Finding(name, False, f"{caught.message}{hint}"))
    if rehearsal is not None:
        findings += rehearsal_findings(rehearsal)
        for concern in rehearsal.concerns:
            progress.warning(concern.text, code=concern.code)
        error = _failure(findings)
    return CheckReport(tuple(findings), error, rehearsal)


def _project(project: Project) -> Finding:
    overrides = sum(place in ("--set", "ELECTRA_SET") for place in project.origins.values())
    file = project.path.name if project.path is not None else "no project file"
    count = f", {overrides} override{'s' if overrides > 1 else ''}" if overrides else ""
    return Finding("project", True, f"{file} + recipe {project.settings.project.recipe}{count}")


def rehearsal_findings(seen: "DryRun") -> list[Finding]:
    """What a rehearsal measured, in words."""
    from electra_cli.training.weights import in_words

    needed = _ROOM_FOR_CHECKPOINTS * seen.checkpoint_bytes
    hours = seen.total_seconds / 3600
    duration = f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:,.1f} min"
    if seen.total_seconds < 60:
        duration = f"{seen.total_seconds:,.1f} s"
    epochs = f"{seen.epochs:,.1f}" if seen.epochs >= 1 else f"{seen.epochs:.2g}"
    smoke = "losses identical" if seen.is_resume_identical else "losses differ"
    # Only a processor promises the same bits.
    is_exact = seen.is_resume_identical or not seen.engine.startswith("cpu")
    return [
        Finding("data", True, f"{seen.num_tokens:,} tokens, ≈{epochs} epochs"),
        Finding("model", True, f"{in_words(seen.parameters)} · sampler: {seen.sampler}"),
        *_contract(seen.contract),
        Finding(
            "memory",
            True,
            f"{seen.peak_bytes / 1e9:.1f} GB at micro-batch {seen.micro_batch_size} ({seen.precision}), "
            "measured by a step",
        ),
        Finding(
            "time",
            True,
            f"about {duration} at {seen.tokens_per_second:,.0f} tok/s, {seen.steps_timed} steps timed",
        ),
        Finding(
            "disk",
            seen.free_bytes >= needed,
            f"{seen.keep_checkpoints} checkpoints × {seen.checkpoint_bytes / 1e6:,.1f} MB, "
            f"{seen.free_bytes / 1e9:,.1f} GB free",
        ),
        Finding("smoke", is_exact, f"2 steps, save, resume: {smoke}"),
    ]


def _contract(contract: "Contract") -> list[Finding]:
    """The promises that the objective breaks, or one line that says it keeps them."""
    if contract.breaches:
        return [Finding("objective", False, breach.text()) for breach in contract.breaches]
    silent = contract.without_gradient
    shown = ", ".join(silent[:3]) + (f" and {len(silent) - 3} more" if len(silent) > 3 else "")
    unreached = f"; no gradient reaches {shown}" if silent else ""
    return [Finding("objective", True, f"keeps its contract on {contract.num_rows} rows{unreached}")]


def _failure(findings: list[Finding]) -> ElectraError | None:
    for finding in findings:
        if finding.name == "disk" and not finding.is_good:
            return StorageError(
                f"there is no room for two checkpoints: {finding.text}",
                hint="make room; a checkpoint is written before an old one is removed",
            )
        if finding.name == "objective" and not finding.is_good:
            return ProjectError(
                f"the objective breaks its contract: {finding.text}",
                key="objective.use",
                hint="docs/write-an-objective.md explains each promise",
            )
        if not finding.is_good:
            return ElectraError(f"{finding.name}: {finding.text}", hint="this is a bug; please report it")
    return None
