"""The page of a collaboration shows every strategy once, and says why an answer is missing."""

import re

from electra_cli.report.collaboration import collaboration_html


def strategy(calls: int, score: float, **more: object) -> dict[str, object]:
    usual = {"encoder": "e", "inside": "", "threshold": None, "rows": 10, "fallbacks": 0, "usd": None}
    return usual | {"calls": calls, "macro_f1": score, "interval": [score, score]} | more


def page(**more: object) -> str:
    results: dict[str, object] = {
        "rows": 1234,
        "reference": "label",
        "strategies": {
            "encoder": strategy(0, 0.5, usd=0.0),
            "alone": strategy(10, 0.6),
            "label": strategy(10, 0.75, followed={"rows": 4, "with_encoder": 3}),
            "cascade": strategy(2, 0.625, inside="alone", threshold=0.7),
        },
        "curves": [
            {
                "name": "cascade alone",
                "encoder": "e",
                "inside": "alone",
                "points": [
                    {"calls_fraction": 0.0, "macro_f1": 0.5},
                    {"calls_fraction": 1.0, "macro_f1": 0.6},
                ],
            }
        ],
        "comparisons": [
            {
                "first": "label",
                "second": "cascade",
                "difference": 0.125,
                "interval": [0.0, 0.25],
                "mcnemar": {"only_first": 5, "only_second": 2, "p_value": 0.45},
            }
        ],
    }
    return collaboration_html("out", results | more)


def text(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


def test_a_cascade_is_a_dot_of_its_curves_colour() -> None:
    chart = page()
    assert chart.count("<polyline") == 1 and chart.count("<circle") == 4
    marked = re.findall(r'<circle class="c0"[^>]*><title>([^<]*)</title>', chart)
    assert marked == ["cascade 0.625"]
    legend = re.findall(r'<span class="k\d">([^<]*)</span>', chart)
    assert legend == ["cascade alone 0.6", "encoder 0.5", "alone 0.6", "label 0.75"]


def test_a_cascade_without_a_curve_is_a_dot_of_its_own() -> None:
    chart = page(curves=[])
    assert (chart.count("<polyline"), chart.count("<circle")) == (0, 4)
    assert ">cascade 0.625</span>" in chart


def test_a_mark_above_its_line_is_inside_the_picture() -> None:
    heights = [float(y) for y in re.findall(r'cy="([\d.-]+)"', page())]
    assert all(0 < y < 220 for y in heights)


def test_every_comparison_is_with_the_reference() -> None:
    cells = re.findall(r"<td>([^<]*)</td>", page().split("Comparisons")[1])
    assert cells == ["cascade", "label", "-0.1250", "-0.2500 … +0.0000", "2", "5", "0.45"]


def test_columns_without_content_are_left_out() -> None:
    shown = text(page())
    assert "1,234 rows" in shown
    assert "USD" not in shown and "agreement" not in shown
    assert "followed" in shown and "3 of 4" in shown
    priced = {"encoder": strategy(0, 0.5, usd=0.0), "alone": strategy(10, 0.6, usd=0.25, usd_per_point=0.1)}
    assert "USD a point" in text(page(strategies=priced))


def test_reasons_stand_below_the_table_and_are_escaped() -> None:
    failed = {"alone": strategy(10, 0.6, fallbacks=3, reasons={"<b>timed out": 2, "rate limit (429)": 1})}
    assert "fallbacks of alone: &lt;b&gt;timed out: 2, rate limit (429): 1" in page(strategies=failed)
