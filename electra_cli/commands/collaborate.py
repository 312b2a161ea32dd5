"""`electra collaborate`: a language model beside a fine-tuned encoder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from electra_cli.commands._options import FormatOption, OutputFormat, ProjectOption, SetOption
from electra_cli.commands._screen import Screen, open_screen
from electra_cli.commands._sigterm import sigterm_stops

if TYPE_CHECKING:
    from electra_cli.pipeline_collaborate_plan import CollaborateRequest
    from electra_cli.pipeline_collaborate_report import CollaborationReport
    from electra_cli.project import Project

Names = list[str] | None

_ONLY_REPLAY = ("replay_column", "encoder_column", "compare", "quantile")
_NOT_IN_REPLAY = (
    *("encoder", "examples", "text", "label", "classes", "strategy", "limit", "dry_run", "max_usd"),
    *("allow_upload", "fine_tuning", "force"),
)
_NOT_IN_FINE_TUNING = (
    *("validation", "examples", "strategy", "dry_run", "max_usd", "allow_upload", "reference", "force"),
)


def collaborate(
    context: typer.Context,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE", help="Texts to classify, with or without labels.")
    ] = None,
    encoder: Annotated[
        str,
        typer.Option("--encoder", metavar="DIR|FILE", help="A fine-tuned folder, or its recorded answers."),
    ] = "",
    validation: Annotated[
        Names,
        typer.Option("--validation", metavar="FILE[:COLUMN]", help="Validation data for the threshold."),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option("--examples", metavar="FILE", help="Training data that examples are taken from."),
    ] = None,
    text: Annotated[str, typer.Option("--text", metavar="COLUMN", help="Column of the text.")] = "",
    label: Annotated[str, typer.Option("--label", metavar="COLUMN", help="Column of the label.")] = "",
    classes: Annotated[
        Names,
        typer.Option("--classes", metavar="NAME[,NAME]", help="Classes, where nothing else names them."),
    ] = None,
    strategy: Annotated[
        Names, typer.Option("--strategy", metavar="NAME[,NAME]", help="Default: collaborate.strategies.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="N", help="Use the first N rows.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show calls, tokens and price; send nothing.")
    ] = False,
    max_usd: Annotated[
        float | None, typer.Option("--max-usd", min=0, metavar="USD", help="Spend at most this much.")
    ] = None,
    allow_upload: Annotated[
        bool, typer.Option("--allow-upload", help="Let texts leave this machine.")
    ] = False,
    fine_tuning: Annotated[
        bool, typer.Option("--fine-tuning", help="Write the provider's training files for --data and stop.")
    ] = False,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Answers recorded earlier; asks nobody.")
    ] = None,
    replay_column: Annotated[
        Names, typer.Option("--replay-column", metavar="[NAME=]COLUMN", help="A model's recorded answers.")
    ] = None,
    encoder_column: Annotated[
        Names, typer.Option("--encoder-column", metavar="[NAME=]COLUMN", help="Recorded probabilities.")
    ] = None,
    compare: Annotated[
        Names, typer.Option("--compare", metavar="[NAME=]COLUMN", help="Other recorded answers to score.")
    ] = None,
    quantile: Annotated[
        str, typer.Option("--quantile", metavar="Q[,Q]", help="Quantiles of a replay's cascades.")
    ] = "",
    reference: Annotated[
        str, typer.Option("--reference", metavar="NAME", help="Strategy that the others are compared with.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where results go.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Drop the answers that --out holds.")] = False,
    project: ProjectOption = None,
    sets: SetOption = None,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Ask a language model with the encoder's help, or only where the encoder is unsure; count the cost."""
    from electra_cli.errors import UsageError
    from electra_cli.pipeline_collaborate_plan import CollaborateRequest
    from electra_cli.project import load_project

    with open_screen("collaborate", output) as screen, sigterm_stops("answers so far are kept"):
        _refuse_idle(context, is_replay=replay is not None, is_fine_tuning=fine_tuning)
        chosen = [f"collaborate.strategies={_listed(strategy)}"] if strategy else []
        loaded = load_project(project, [*(sets or []), *chosen])
        if replay is not None:
            columns = (replay_column, encoder_column, validation, compare)
            _replay(screen, loaded, replay, columns, quantile, data, out, reference)
            return
        if data is None or not (encoder or fine_tuning):
            raise UsageError(
                "collaborate needs --data and --encoder, or --replay",
                hint="electra collaborate --data FILE --encoder DIR --dry-run",
            )
        if validation is not None and len(validation) > 1:
            raise UsageError("--validation is given once, but for --replay with several encoders")
        request = CollaborateRequest(
            data=data,
            encoder=encoder,
            validation=validation[0] if validation else "",
            examples=examples,
            classes=tuple(_listed(classes or [])),
            text=text,
            label=label,
            out=out,
            limit=limit,
            max_usd=max_usd,
            may_upload=allow_upload,
            force=force,
            reference=reference,
        )
        if fine_tuning:
            _fine_tuning(screen, loaded, request)
        elif dry_run:
            _dry_run(screen, loaded, request)
        else:
            from electra_cli.pipeline_collaborate import collaborate as run

            _show(screen, run(loaded, request, screen))


def _refuse_idle(context: typer.Context, *, is_replay: bool, is_fine_tuning: bool) -> None:
    """UsageError for an option that the chosen way would leave without effect."""
    from electra_cli.errors import UsageError

    way = "without --replay"
    idle: tuple[str, ...] = _ONLY_REPLAY
    if is_replay:
        way, idle = "with --replay", _NOT_IN_REPLAY
    elif is_fine_tuning:
        way, idle = "with --fine-tuning", (*_ONLY_REPLAY, *_NOT_IN_FINE_TUNING)
    for name in idle:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} has no effect {way}", hint=f"leave {option} out")


def _listed(texts: list[str]) -> list[str]:
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def _replay(
    screen: Screen,
    project: "Project",
    file: Path,
    columns: tuple[Names, Names, Names, Names],
    quantiles: str,
    data: Path | None,
    out: Path | None,
    reference: str,
) -> None:
    from electra_cli.errors import UsageError
    from electra_cli.pipeline_replay import ReplayRequest, replay

    try:
        wanted = tuple(float(text) for text in _listed([quantiles]))
    except ValueError:
        wanted = (-1.0,)
    if not all(0 <= quantile <= 1 for quantile in wanted):
        raise UsageError(f"--quantile {quantiles}: numbers from 0 to 1", hint="--quantile .1,.2")
    models, encoders, validation, compared = (tuple(names or ()) for names in columns)
    request = ReplayRequest(
        file=file,
        columns=models,
        encoder_columns=encoders,
        validation=validation,
        compare=compared,
        quantiles=wanted,
        data=data,
        out=out,
        reference=reference,
    )
    _show(screen, replay(project, request))


def _fine_tuning(screen: Screen, project: "Project", request: "CollaborateRequest") -> None:
    from electra_cli.pipeline_collaborate import training_files

    settings = project.settings.collaborate
    price = settings.price_of(settings.model)
    files = training_files(project, request)
    rate = price.training if price is not None else 0.0
    screen.table(
        f"training files for {settings.model}, one epoch"
        + ("" if settings.tokenizer else "; tokens estimated from bytes"),
        ("file", "examples", "bytes", "tokens", "USD"),
        [
            (
                str(f.path),
                f.num_examples,
                f.num_bytes,
                f.num_tokens,
                _usd(rate * f.num_tokens / 1e6, rate > 0),
            )
            for f in files
        ],
    )
    screen.result({"files": {f.variant: str(f.path) for f in files}})


def _dry_run(screen: Screen, project: "Project", request: "CollaborateRequest") -> None:
    from electra_cli.pipeline_collaborate import estimate

    settings = project.settings.collaborate
    is_priced = settings.price_of(settings.model) is not None
    found = estimate(project, request, screen)
    screen.table(
        f"what would be sent to {settings.base_url} for {settings.model}; nothing was"
        + ("" if settings.tokenizer else "; tokens estimated from bytes"),
        ("strategy", "calls", "kept", "input tokens", "output tokens", "USD", "USD at most, asked once"),
        [
            (
                e.name,
                e.calls,
                e.kept,
                e.input_tokens,
                e.output_tokens,
                _usd(e.usd, is_priced),
                _usd(e.most_usd, is_priced),
            )
            for e in found
        ],
    )
    total, most = (sum(values) for values in zip(*((e.usd, e.most_usd) for e in found), strict=True))
    calls = sum(e.calls - e.kept for e in found)
    price = (
        f"about ${total:.4f}, at most ${most:.4f} if nothing is asked twice; --max-usd sets a limit"
        if is_priced
        else "no price known: [[collaborate.price]]"
    )
    screen.result(
        {"calls": calls, "usd": total if is_priced else None, "most_usd": most if is_priced else None},
        [f"{calls:,} calls, {price}"],
    )


def _usd(value: float, is_known: bool) -> str:
    return f"{value:.4f}" if is_known else "?"


def _show(screen: Screen, report: "CollaborationReport") -> None:
    results = report.results
    is_labelled = any(one.macro_f1 is not None for one in results.strategies)
    rows: list[list[object]] = []
    for one in results.strategies:
        outcome = one.outcome
        row: list[object] = [
            outcome.name,
            outcome.num_calls,
            f"{outcome.num_calls / len(outcome.label_N):.4f}",
        ]
        row += [outcome.count("fallback")]
        if is_labelled and one.macro_f1 is not None and one.interval is not None:
            against = results.compared(outcome.name, report.reference)
            row += [f"{one.macro_f1:.4f}", f"{one.interval.low:.4f} … {one.interval.high:.4f}"]
            row += (
                ["", "", ""]
                if against is None
                else [
                    f"{against.difference:+.4f}",
                    f"{against.interval.low:+.4f} … {against.interval.high:+.4f}",
                    f"{against.mcnemar.p_value:.2g}",
                ]
            )
        if report.is_priced:
            row += [
                _usd(outcome.usd or 0.0, True),
                "–" if one.usd_per_point is None else f"{one.usd_per_point:.6f}",
            ]
        rows.append(row)
    columns = ["strategy", "calls", "share", "fallbacks"]
    columns += ["macro-F1", "95 %", "difference", "95 %", "McNemar p"] if is_labelled else []
    columns += ["USD", "USD a point"] if report.is_priced else []
    title = f"differences to {report.reference}" if is_labelled else "no labels, so no scores"
    screen.table(title, columns, rows)
    money = f", ${report.spent:.4f} spent in all" if report.is_priced else ""
    screen.result(
        {"folder": str(report.folder), "requests": report.num_requests, "usd": report.spent},
        [f"{report.folder}/results.json  answers.tsv  report.html   {report.num_requests:,} requests{money}"],
    )
