"""report.html of a collaboration: scores against calls or cost, and every figure of results.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from electra_cli import durable
from electra_cli.report.chart import Series, line_chart
from electra_cli.report.page import document
from electra_cli.report.reading import Record, read_object
from electra_cli.report.text import table

NAME = "report.html"


def write_collaboration_report(folder: Path) -> Path:
    """Draw the results.json of `folder` and return the page's path."""
    path = folder / NAME
    durable.write_text(path, collaboration_html(folder.name, read_object(folder / "results.json")))
    return path


def collaboration_html(name: str, results: Record) -> str:
    """The whole page; texts from data are escaped."""
    strategies = cast(Mapping[str, Record], results.get("strategies") or {})
    reference = str(results.get("reference", ""))
    comparisons = cast(Sequence[Record], results.get("comparisons") or [])
    parts = [
        '<h2>Score against calls</h2><div class="charts">',
        *_charts(strategies, cast(Sequence[Record], results.get("curves") or [])),
        "</div><h2>Strategies</h2>",
        table(
            ["strategy", "calls", "fallbacks", "macro-F1", "95 %", "agreement", "USD", "USD a point"],
            [_row(title, one) for title, one in strategies.items()],
        ),
        "<h2>By source</h2>",
        _sources(strategies),
        "<h2>Comparisons</h2>",
        table(
            [
                "strategy",
                "less",
                "difference",
                "95 %",
                "only the first right",
                "only the second",
                "McNemar p",
            ],
            [_comparison(one) for one in comparisons if reference in (one.get("first"), one.get("second"))],
        ),
    ]
    about = f"{results.get('rows', '?')} rows, compared with {reference}"
    return document(name, about, parts)


def _charts(strategies: Mapping[str, Record], curves: Sequence[Record]) -> list[str]:
    points, priced = [], []
    for name, one in strategies.items():
        score, calls, rows, usd = (one.get(key) for key in ("macro_f1", "calls", "rows", "usd"))
        if isinstance(score, float) and isinstance(calls, int) and isinstance(rows, int) and rows:
            points.append(Series(name, [(100 * calls / rows, score)]))
            if isinstance(usd, int | float):
                priced.append(Series(name, [(float(usd), score)]))
    lines = [Series(str(curve.get("name")), _points(curve)) for curve in curves]
    charts = [line_chart("macro-F1", [*lines, *points], x_label="% of rows asked")]
    if any(series.points[0][0] > 0 for series in priced):
        charts.append(line_chart("macro-F1 and cost", priced, x_label="US dollars"))
    return charts


def _points(curve: Record) -> list[tuple[float, float]]:
    found = []
    for point in cast(Sequence[Record], curve.get("points") or []):
        share, score = point.get("calls_fraction"), point.get("macro_f1")
        if isinstance(share, int | float) and isinstance(score, int | float):
            found.append((100.0 * share, float(score)))
    return found


def _row(title: str, one: Record) -> Sequence[object]:
    return [
        title,
        one.get("calls"),
        one.get("fallbacks"),
        _four(one.get("macro_f1")),
        _interval(one.get("interval")),
        _four(one.get("agreement")),
        _dollars(one.get("usd")),
        _dollars(one.get("usd_per_point")),
    ]


def _sources(strategies: Mapping[str, Record]) -> str:
    tables = {name: cast(Mapping[str, object], one.get("sources") or {}) for name, one in strategies.items()}
    names = list(dict.fromkeys(source for found in tables.values() for source in found))
    if not names:
        return "<p>the data name no sources</p>"
    rows = [[name, *(_four(found.get(source)) for source in names)] for name, found in tables.items()]
    return table(["strategy", *names], rows)


def _comparison(one: Record) -> Sequence[object]:
    test = cast(Mapping[str, object], one.get("mcnemar") or {})
    p_value = test.get("p_value")
    return [
        one.get("first"),
        one.get("second"),
        _four(one.get("difference"), signed=True),
        _interval(one.get("interval"), signed=True),
        test.get("only_first"),
        test.get("only_second"),
        f"{p_value:.2g}" if isinstance(p_value, int | float) else "–",
    ]


def _interval(value: object, *, signed: bool = False) -> str:
    if not isinstance(value, Sequence) or len(value) != 2:
        return "–"
    return " … ".join(_four(end, signed=signed) for end in value)


def _four(value: object, *, signed: bool = False) -> str:
    if not isinstance(value, int | float):
        return "–"
    return f"{value:+.4f}" if signed else f"{value:.4f}"


def _dollars(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "–"
