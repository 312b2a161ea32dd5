"""report.html holds what the run says, and nothing that data could smuggle in."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from electra_cli.errors import InputError
from electra_cli.report.chart import Series, line_chart, nice_ticks, short
from electra_cli.report.page import write_report

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></style><svg onload=alert(1)>",
    "javascript:alert(1)",
    "\x1b]0;title\x07\x1b[2J",
    "\N{RIGHT-TO-LEFT OVERRIDE}txt.exe",
    "&lt;already&gt;",
    "[/foo] [mask]",
)


class Page(HTMLParser):
    """Collects the tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def make_run(folder: Path, text: str = "plain") -> Path:
    train = [
        {"kind": "train", "step": step, "tokens": 100 * step, "losses": {"mlm": 9 - step / 10, text: 0.5}}
        | {"lr": 1e-4, "sampled_accuracy": 0.2, "grad_norm": {"generator": 1.0}}
        | {"clock": {"tokens_per_second": 900.0}}
        for step in range(10, 60, 10)
    ]
    heldout = {"kind": "heldout", "step": 50, "losses": {"mlm": 5.25}, "disc_auc": 0.75, "disc_recall": None}
    warning = {"kind": "warning", "step": 50, "code": "recall", "text": text}
    folder.mkdir()
    lines = [json.dumps(record) for record in [*train, heldout, warning]]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + '\n{"kind": "tra')
    (folder / "status.json").write_text(json.dumps({"state": text, "step": 50, "steps": 60}))
    (folder / "manifest.json").write_text(
        json.dumps({"versions": {text: text}, "threads": 2, "values": {"twice.told": 1}})
    )
    (folder / "resolved.toml").write_text(f"# {text}\n")
    results = folder / "evaluate" / "glue"
    results.mkdir(parents=True)
    task = {"metric": "accuracy", "median": 0.811, "min": 0.8, "max": 0.82, "num_ok": 5, "num_runs": 5}
    task["published"] = [{"system": text, "value": 0.813, "statistic": "median", "source": "paper"}]
    (results / "results.json").write_text(json.dumps({"tasks": {text: task}, "limited": True}))
    return folder


@pytest.mark.parametrize("text", PAYLOADS)
def test_data_never_becomes_markup(tmp_path: Path, text: str) -> None:
    page = write_report(make_run(tmp_path / "run", text)).read_text()
    parsed = Page(page)
    assert not {"script", "img", "iframe", "object", "link", "base"} & set(parsed.tags)
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name in ("src", "href")]
    assert not [c for c in page if not c.isprintable() and c not in "\n\t"]
    assert "default-src 'none'" in page
    if text.isprintable():
        assert text in parsed.text, "printable text is shown as it is"


def test_a_report_refers_to_nothing_outside(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path / "run")).read_text()
    assert "http:" not in page and "https:" not in page and "url(" not in page


def test_a_report_shows_the_figures_of_the_run(tmp_path: Path) -> None:
    shown = Page(write_report(make_run(tmp_path / "run")).read_text()).text
    for expected in ("step 50 of 60", "5,000 tokens", "5.25", "0.75", "81.1", "81.3", "limited", "5/5"):
        assert expected in shown, expected
    # The manifest repeats the settings, which have a place of their own.
    assert "twice.told" not in shown


def test_no_run_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no metrics\.jsonl"):
        write_report(tmp_path)


def test_a_chart_without_finite_points_says_so() -> None:
    assert "nothing measured" in line_chart("x", [Series("a", [(1, float("nan"))])])
    assert "<polyline" in line_chart("x", [Series("a", [(1, 2.0), (2, float("inf")), (3, 2.0)])])


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 7), (0.001, 0.0011), (1e6, 5e6), (2, 2)])
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert 1 <= len(ticks) <= 7
    assert all(low - 1e-9 * abs(low) <= tick <= high + 1e-9 * abs(high) for tick in ticks)


def test_short_numbers() -> None:
    assert [short(v) for v in (0.0, 0.25, 1500, 2.5e6, -3e9)] == ["0", "0.25", "1.5k", "2.5M", "-3G"]
