"""The end of a collaboration, live or replayed: figures judged, written, and drawn."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_cli.collaboration.answers import EncoderAnswers, Outcome, Rows
from electra_cli.collaboration.cascade import Curve
from electra_cli.collaboration.results import Results, judge
from electra_cli.collaboration.results_file import write_answers, write_results
from electra_cli.errors import UsageError
from electra_cli.project import Project
from electra_cli.report.collaboration import write_collaboration_report


@dataclass(frozen=True, kw_only=True)
class CollaborationReport:
    """What a collaboration found, and where it stands."""

    folder: Path
    results: Results
    reference: str
    """The strategy that the others are compared with."""
    spent: float = 0.0
    """US dollars, over all runs in this folder."""
    num_requests: int = 0
    """Requests of this run."""
    is_priced: bool = False


def check_reference(reference: str, names: Sequence[str]) -> None:
    """Raise UsageError where the others would be compared with nothing."""
    if reference not in names:
        raise UsageError(
            f"--reference {reference}: no such strategy here", hint="there are: " + ", ".join(names)
        )


def finish(
    project: Project,
    folder: Path,
    rows: Rows,
    outcomes: Sequence[Outcome],
    encoders: Sequence[EncoderAnswers],
    curves: Sequence[Curve],
    alone: Mapping[str, Outcome],
    facts: Mapping[str, object],
    reference: str,
) -> CollaborationReport:
    """Judge the outcomes and write results.json, answers.tsv and report.html."""
    names = [outcome.name for outcome in outcomes]
    check_reference(reference, names)
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise UsageError(f"{twice[0]} stands for more than one strategy", hint="call one NAME=COLUMN")
    settings = project.settings
    results = judge(
        rows,
        outcomes,
        {encoder.name: encoder for encoder in encoders},
        curves,
        alone=alone,
        num_samples=settings.collaborate.resamples,
        seed=settings.project.seed,
    )
    facts = {
        **facts,
        "classes": list(encoders[0].classes),
        "rows": len(rows),
        "seed": settings.project.seed,
        "resamples": settings.collaborate.resamples,
        "reference": reference,
    }
    write_results(folder, results, facts)
    write_answers(folder, rows, outcomes, encoders)
    write_collaboration_report(folder)
    return CollaborationReport(folder=folder, results=results, reference=reference)
