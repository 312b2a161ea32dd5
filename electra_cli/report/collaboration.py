"""report.html of a collaboration: scores against calls or cost, and every figure of results.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from electra_cli import durable
from electra_cli.report.chart import Series, line_chart
from electra_cli.report.page import document
from electra_cli.report.reading import Record, read_object
from electra_cli.report.text import safe, table

NAME = "report.html"


def write_collaboration_report(folder: Path) -> Path:
    """Draw the results.json of `folder` and return the page's path."""
    path = folder / NAME
    durable.write_text(
        path, collaboration_html(folder.name, read_object(folder / "results.json")), private=True
    )
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
        _figures(strategies),
        *_reasons(strategies),
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
            [
                _comparison(_turned(one) if one.get("first") == reference else one)
                for one in comparisons
                if reference in (one.get("first"), one.get("second"))
            ],
        ),
    ]
    rows = results.get("rows")
    about = f"{rows:,} rows, compared with {reference}" if isinstance(rows, int) else ""
    return document(name, about, parts)


def _charts(strategies: Mapping[str, Record], curves: Sequence[Record]) -> list[str]:
    """A cascade is a line over its threshold, and each threshold of it that was run a dot on the line."""
    points, priced = [], []
    marks: dict[tuple[object, object], list[tuple[str, float, float]]] = {_way(c): [] for c in curves}
    for name, one in strategies.items():
        score, calls, rows, usd = (one.get(key) for key in ("macro_f1", "calls", "rows", "usd"))
        if isinstance(score, float) and isinstance(calls, int) and isinstance(rows, int) and rows:
            x = 100 * calls / rows
            if one.get("inside") and _way(one) in marks:
                marks[_way(one)].append((name, x, score))
            else:
                points.append(Series(name, [(x, score)]))
            if isinstance(usd, int | float):
                priced.append(Series(name, [(float(usd), score)]))
    lines = [Series(str(c.get("name")), _points(c), marks=marks[_way(c)]) for c in curves]
    charts = [line_chart("macro-F1", [*lines, *points], x_label="% of rows asked")]
    if any(series.points[0][0] > 0 for series in priced):
        charts.append(line_chart("macro-F1 and cost", priced, x_label="US dollars"))
    return charts


def _way(one: Record) -> tuple[object, object]:
    """Which encoder's cascade asks whom."""
    return one.get("encoder"), one.get("inside")


def _points(curve: Record) -> list[tuple[float, float]]:
    found = []
    for point in cast(Sequence[Record], curve.get("points") or []):
        share, score = point.get("calls_fraction"), point.get("macro_f1")
        if isinstance(share, int | float) and isinstance(score, int | float):
            found.append((100.0 * share, float(score)))
    return found


def _figures(strategies: Mapping[str, Record]) -> str:
    """The table of strategies, with the columns that hold anything."""
    names = (
        *("strategy", "calls", "fallbacks", "macro-F1", "95 %", "agreement", "followed"),
        *("USD", "USD a point"),
    )
    rows = [_row(title, one) for title, one in strategies.items()]
    is_priced = any(one.get("usd") for one in strategies.values())
    shown = [
        number
        for number, name in enumerate(names)
        if any(row[number] != "–" for row in rows) and (is_priced or "USD" not in name)
    ]
    return table([names[number] for number in shown], [[row[number] for number in shown] for row in rows])


def _row(title: str, one: Record) -> Sequence[object]:
    return [
        title,
        one.get("calls"),
        one.get("fallbacks"),
        _four(one.get("macro_f1")),
        _interval(one.get("interval")),
        _four(one.get("agreement")),
        _followed(one.get("followed")),
        _dollars(one.get("usd")),
        _dollars(one.get("usd_per_point")),
    ]


def _followed(value: object) -> str:
    """On how many of the rows where the model alone and the encoder differ the encoder's label was taken."""
    if not isinstance(value, Mapping):
        return "–"
    return f"{value.get('with_encoder')} of {value.get('rows')}"


def _reasons(strategies: Mapping[str, Record]) -> list[str]:
    """A line for each strategy with fallbacks: why the model's answer is missing."""
    lines = []
    for name, one in strategies.items():
        reasons = cast(Mapping[str, object], one.get("reasons") or {})
        if reasons:
            why = ", ".join(f"{reason}: {number}" for reason, number in reasons.items())
            lines.append(f'<p class="warn">fallbacks of {safe(name)}: {safe(why)}</p>')
    return lines


def _sources(strategies: Mapping[str, Record]) -> str:
    tables = {name: cast(Mapping[str, object], one.get("sources") or {}) for name, one in strategies.items()}
    names = list(dict.fromkeys(source for found in tables.values() for source in found))
    if not names:
        return "<p>the data name no sources</p>"
    rows = [[name, *(_four(found.get(source)) for source in names)] for name, found in tables.items()]
    return table(["strategy", *names], rows)


def _turned(one: Record) -> Record:
    """The same comparison seen from the other strategy."""
    test = cast(Mapping[str, object], one.get("mcnemar") or {})
    difference, interval = one.get("difference"), one.get("interval")
    turned = {
        "first": one.get("second"),
        "second": one.get("first"),
        "mcnemar": {**test, "only_first": test.get("only_second"), "only_second": test.get("only_first")},
    }
    # Less than 0, so that no difference is none and not "-0".
    if isinstance(difference, int | float):
        turned["difference"] = 0.0 - difference
    if isinstance(interval, Sequence) and len(interval) == 2:
        turned["interval"] = [0.0 - interval[1], 0.0 - interval[0]]
    return turned


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
