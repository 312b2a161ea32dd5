"""A collaboration on the wire: encoder, data and endpoint joined; asked, counted, judged."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from electra_cli import durable
from electra_cli.collaboration.address import check_address
from electra_cli.collaboration.answers import Outcome, encoder_outcome
from electra_cli.collaboration.asking import Asker
from electra_cli.collaboration.cascade import Curve, curve
from electra_cli.collaboration.endpoint import Endpoint, client_library, read_key
from electra_cli.collaboration.fine_tuning import TrainingFile, write_training_files
from electra_cli.collaboration.ledger import (
    REQUESTS,
    Budget,
    RequestLog,
    claim_folder,
    read_requests,
    usd,
)
from electra_cli.collaboration.prompts import Row
from electra_cli.collaboration.reply import schema
from electra_cli.collaboration.strategies import outcome
from electra_cli.collaboration.tokens import load_counter, most_tokens
from electra_cli.errors import InputError
from electra_cli.pipeline_collaborate_data import open_encoder
from electra_cli.pipeline_collaborate_plan import CollaborateRequest, Work, prepare, read_rows, wording_of
from electra_cli.pipeline_collaborate_report import CollaborationReport, check_reference, finish
from electra_cli.progress import Progress, counted
from electra_cli.project import Project

ENCODER = "encoder"
"""The encoder alone, among the strategies."""
_ANSWER_TOKENS = 12
"""An answer in JSON, for estimates."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a strategy would send."""

    name: str
    threshold: float | None
    calls: int
    kept: int
    """Calls whose answers are there already, or are those of a strategy before it."""
    input_tokens: int
    """Of the calls that are not kept; counted, or estimated without a tokenizer."""
    output_tokens: int
    usd: float
    most_usd: float
    """Where no question is asked again."""


def estimate(project: Project, request: CollaborateRequest, progress: Progress) -> list[Estimate]:
    """What each strategy would send and cost; sends and writes nothing."""
    settings = project.settings.collaborate
    check_address(settings.base_url, may_upload=True)
    check_reference(_reference(project, request), [ENCODER, *settings.strategies])
    work = prepare(project, request, progress)
    counter = load_counter(project.resolve(settings.tokenizer) if settings.tokenizer else None)
    price = settings.price_of(settings.model)
    extra = "" if settings.constrain == "rules" else json.dumps(schema(work.answers.classes))
    known = set(read_requests(work.folder / REQUESTS).answers)
    estimates = []
    for one in work.plans:
        fresh = [question for question in one.questions if question.key not in known]
        known |= {question.key for question in fresh}
        tokens = sum(counter.chat(q.messages) + (counter.text(extra) if extra else 0) for q in fresh)
        answer_tokens = min(_ANSWER_TOKENS, settings.max_tokens) * len(fresh)
        most = sum(usd(price, most_tokens(q.messages, extra), settings.max_tokens) for q in fresh)
        estimates.append(
            Estimate(
                name=one.name,
                threshold=one.threshold,
                calls=len(one.questions),
                kept=len(one.questions) - len(fresh),
                input_tokens=tokens,
                output_tokens=answer_tokens,
                usd=usd(price, tokens, answer_tokens),
                most_usd=most,
            )
        )
    return estimates


def collaborate(project: Project, request: CollaborateRequest, progress: Progress) -> CollaborationReport:
    """Ask, within `--max-usd`, and write results; a rerun asks only what has no answer yet.

    InputError where something must not leave this machine, the folder holds another task's answers, the
    endpoint refuses, or the money is used up.
    """
    settings = project.settings.collaborate
    address = check_address(settings.base_url, may_upload=request.may_upload)
    is_priced = settings.price_of(settings.model) is not None
    if request.max_usd is not None and not is_priced and not address.is_loopback:
        raise InputError(
            f"--max-usd needs a price, and none is known for {settings.model}",
            key="collaborate.price",
            hint=f'[[collaborate.price]] with model = "{settings.model}", input and output, in $ per million',
        )
    check_reference(_reference(project, request), [ENCODER, *settings.strategies])
    # Before the encoder answers thousands of rows.
    read_key(address, settings.key_variable)
    client_library()
    work = prepare(project, request, progress)
    endpoint = Endpoint(address, settings, work.answers.classes)
    with durable.locked(work.folder, "electra collaborate", private=True):
        claim_folder(work.folder, work.facts, force=request.force)
        return _ask_and_finish(project, request, work, endpoint, progress, is_priced=is_priced)


def training_files(project: Project, request: CollaborateRequest) -> list[TrainingFile]:
    """Write fine-tuning files for the labelled rows of the data; FT-L where an encoder is named."""
    settings = project.settings.collaborate
    counter = load_counter(project.resolve(settings.tokenizer) if settings.tokenizer else None)
    encoder = open_encoder(request.encoder, project) if request.encoder else None
    data = read_rows(request, encoder, request.data)
    if not data.rows.is_labelled:
        raise InputError(f"{data.path} has no labels", path=data.path, hint="--label names their column")
    decided = [""] * len(data.rows)
    if encoder is not None:
        answers = encoder.answers(data)
        decided = [answers.classes[label] for label in answers.label_N]
    rows = [
        Row(text=text, pair=None if data.rows.pairs is None else data.rows.pairs[n], label=decided[n])
        for n, text in enumerate(data.rows.texts)
    ]
    gold = [data.classes[label] for label in data.rows.gold_N]
    variants = ("FT", "FT-M", "FT-L") if encoder is not None else ("FT", "FT-M")
    folder = request.out or project.evaluate_dir / "collaborate" / "fine-tuning"
    return write_training_files(folder, wording_of(project, data), rows, gold, counter, variants)


def _ask_and_finish(
    project: Project,
    request: CollaborateRequest,
    work: Work,
    endpoint: Endpoint,
    progress: Progress,
    *,
    is_priced: bool,
) -> CollaborationReport:
    settings = project.settings.collaborate
    kept = read_requests(work.folder / REQUESTS)
    budget = Budget(request.max_usd, kept.spent)
    log = RequestLog(work.folder / REQUESTS, kept)
    try:
        asker = Asker(endpoint, log, budget, settings, work.task.wording, kept.answers)
        outcomes = [encoder_outcome(ENCODER, work.answers)]
        for one in work.plans:
            answers = asker.ask(one.questions, progress, one.name)
            outcomes.append(outcome(one, answers, work.answers, is_priced=is_priced))
            _tell_fallbacks(outcomes[-1], progress)
    finally:
        log.close()
        endpoint.close()
    asked_alone = next((one for one in outcomes if one.name == "alone"), None)
    alone = {} if asked_alone is None else {work.answers.name: asked_alone}
    facts = {
        "endpoint": settings.base_url,
        "model": settings.model,
        "encoder": {"name": work.answers.name, "sha256": work.answers.sha256},
        "data": {"source": str(work.data.path), "sha256": work.data.sha256, "skipped": work.data.num_skipped},
        "limited": bool(request.limit),
        "prompt": settings.prompt,
        "ledger": {
            "requests": log.num_sent,
            "requests_before": kept.num_requests,
            "unfinished_before": kept.num_unfinished,
            "usd": budget.spent,
            "max_usd": request.max_usd,
        },
    }
    reference = _reference(project, request)
    report = finish(
        project,
        work.folder,
        work.data.rows,
        outcomes,
        [work.answers],
        _curves(work, outcomes),
        alone,
        facts,
        reference,
    )
    return replace(report, spent=budget.spent, num_requests=log.num_sent, is_priced=is_priced)


def _tell_fallbacks(outcome: Outcome, progress: Progress) -> None:
    if outcome.reasons:
        why = ", ".join(f"{reason}: {number:,}" for reason, number in outcome.reasons)
        progress.warning(
            f"{outcome.name}: {outcome.count('fallback'):,} of {counted(outcome.num_calls, 'call')} took the "
            f"encoder's label ({why})",
            code="fallback",
        )


def _reference(project: Project, request: CollaborateRequest) -> str:
    has_label = "label" in project.settings.collaborate.strategies
    return request.reference or ("label" if has_label else ENCODER)


def _curves(work: Work, outcomes: Sequence[Outcome]) -> list[Curve]:
    """Of every strategy that asked about all rows; of a cascade where its inner one did not."""
    if not work.data.rows.is_labelled:
        return []
    asked = {o.name for o in outcomes if o.threshold is None}
    return [
        curve(f"cascade {o.inside or o.name}", work.data.rows.gold_N, work.answers, o)
        for o in outcomes
        if o.name != ENCODER and (o.threshold is None or o.inside not in asked)
    ]
