"""results.json and answers.tsv of a collaboration, in the names of docs/collaborate.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from electra_cli import durable
from electra_cli.collaboration.answers import NO_GOLD, EncoderAnswers, Outcome, Rows
from electra_cli.collaboration.cascade import Curve
from electra_cli.collaboration.compare import Interval
from electra_cli.collaboration.results import FORMAT, Comparison, Results, StrategyResult

JSON_NAME, ANSWERS_NAME = "results.json", "answers.tsv"


def write_results(folder: Path, results: Results, facts: Mapping[str, object]) -> None:
    """Write results.json: `facts` about encoder, model and data, then the figures."""
    content = {
        "format": FORMAT,
        **facts,
        "strategies": {one.outcome.name: _strategy(one) for one in results.strategies},
        "comparisons": [_comparison(one) for one in results.comparisons],
        "curves": [_curve(one) for one in results.curves],
    }
    durable.write_json(folder / JSON_NAME, content, private=True)


def write_answers(
    folder: Path, rows: Rows, outcomes: Sequence[Outcome], encoders: Sequence[EncoderAnswers]
) -> None:
    """Write answers.tsv: a line a row with its index, gold label, and each label with its status; no text."""
    classes = encoders[0].classes
    header = ["index", "gold"]
    columns = [
        list(rows.indices),
        ["" if gold == NO_GOLD else classes[gold] for gold in rows.gold_N],
    ]
    for encoder in encoders:
        header.append(f"{encoder.name}:confidence")
        columns.append([f"{value:.6f}" for value in encoder.confidence_N])
    for outcome in outcomes:
        header += [outcome.name, f"{outcome.name}:status"]
        columns += [[classes[label] for label in outcome.label_N], outcome.status_N.tolist()]
    lines = ["\t".join(_cell(cell) for cell in line) for line in (header, *zip(*columns, strict=True))]
    durable.write_text(folder / ANSWERS_NAME, "\n".join(lines) + "\n", private=True)


def _cell(text: str) -> str:
    plain = "".join(character if character.isprintable() else " " for character in text)
    # A spreadsheet would run what begins like a formula.
    return f"'{plain}" if plain[:1] in ("=", "+", "-", "@") else plain


def _strategy(one: StrategyResult) -> dict[str, object]:
    outcome = one.outcome
    return {
        "encoder": outcome.encoder,
        "inside": outcome.inside,
        "threshold": outcome.threshold,
        "rows": len(outcome.label_N),
        "calls": outcome.num_calls,
        "labels": outcome.count("label"),
        "fallbacks": outcome.count("fallback"),
        "reasons": dict(outcome.reasons),
        "input_tokens": outcome.input_tokens,
        "output_tokens": outcome.output_tokens,
        "usd": outcome.usd,
        "usd_per_point": one.usd_per_point,
        "macro_f1": one.macro_f1,
        "interval": _pair(one.interval),
        "accuracy": one.accuracy,
        "sources": dict(one.sources),
        "agreement": one.agreement,
        "followed": None
        if one.followed is None
        else {"rows": one.followed.rows, "with_encoder": one.followed.with_encoder},
    }


def _comparison(one: Comparison) -> dict[str, object]:
    test = one.mcnemar
    return {
        "first": one.first,
        "second": one.second,
        "difference": one.difference,
        "interval": _pair(one.interval),
        "mcnemar": {
            "only_first": test.only_first,
            "only_second": test.only_second,
            "statistic": test.statistic,
            "p_value": test.p_value,
        },
    }


def _curve(one: Curve) -> dict[str, object]:
    points = [
        {"threshold": p.threshold, "calls_fraction": p.calls_fraction, "macro_f1": p.macro_f1}
        for p in one.points
    ]
    return {"name": one.name, "encoder": one.encoder, "inside": one.inside, "points": points}


def _pair(spread: Interval | None) -> list[float] | None:
    return None if spread is None else [spread.low, spread.high]
