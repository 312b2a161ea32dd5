"""report.html of a run: one file without script or outside resource, to open offline and to send around."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from electra_cli import durable
from electra_cli.report.chart import Series, line_chart
from electra_cli.report.minimal_pairs import minimal_pairs
from electra_cli.report.reading import Record, RunRecord, names_below, read_run, series
from electra_cli.report.text import safe, share, table

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2530;--dim:#667284;--line:#d9dfe7;--paper:#fff;--box:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--ink:#e4e9ef;--dim:#97a3b2;--line:#313b47;--paper:#12171d;--box:#1a2129}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}
p.sub{color:var(--dim);margin:.2rem 0 1rem}
table{border-collapse:collapse;margin:.5rem 0;display:block;overflow-x:auto}
th,td{padding:.25rem .8rem;border-bottom:1px solid var(--line);text-align:right}
td{font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500}th:first-child,td:first-child{text-align:left}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:1rem}
figure{margin:0;background:var(--box);border-radius:6px;padding:.6rem}figcaption{font-size:.85rem}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--dim)}.grid{stroke:var(--line);stroke-width:1}
polyline{fill:none;stroke-width:1.6}figcaption span{margin-left:.6rem}
pre{background:var(--box);padding:.8rem;overflow-x:auto;font-size:.8rem;border-radius:6px}
.warn{background:var(--box);border-left:4px solid #d97706;padding:.4rem .8rem;margin:.4rem 0}
""" + "".join(
    f"polyline.c{n}{{stroke:{colour}}}circle.c{n}{{fill:{colour}}}.k{n}{{color:{colour}}}"
    for n, colour in enumerate(("#2563eb", "#d9480f", "#0f8a5f", "#9333ea", "#b45309", "#64748b"))
)


def write_report(run: Path) -> Path:
    """Write report.html into the run directory and return its path; InputError where there is no run."""
    path = run / "report.html"
    durable.write_text(path, report_html(read_run(run)))
    return path


def report_html(run: RunRecord) -> str:
    """The whole page; every text from data is escaped and freed of control characters."""
    name = run.folder.name
    parts: list[str] = []
    if run.quickstart:
        parts.append(_quickstart(run.quickstart))
    for results in run.results:
        parts += minimal_pairs(results) if "phenomena" in results else [_results(results)]
    parts += ["<h2>Training</h2>", '<div class="charts">', *_charts(run), "</div>"]
    if run.heldout:
        parts += ["<h2>Held-out rows</h2>", _figures(run.heldout[-1])]
    if run.warnings:
        parts.append("<h2>Warnings</h2>")
        parts += [
            f'<p class="warn">step {safe(w.get("step"))}: {safe(w.get("text"))}</p>' for w in run.warnings
        ]
    if run.manifest:
        # Its `values` are the settings, which follow.
        facts = {key: value for key, value in run.manifest.items() if key != "values"}
        parts += ["<h2>Where it ran</h2>", _figures(facts)]
    if run.settings:
        parts += ["<h2>Settings</h2>", f"<pre>{safe(run.settings, keep_lines=True)}</pre>"]
    return document(name, _state(run), parts)


def document(name: str, about: str, parts: Sequence[str]) -> str:
    """A page with this title, one line about it, and parts that are HTML already."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{safe(name)}</title><style>{_STYLE}</style></head>\n<body>\n"
        f'<h1>{safe(name)}</h1>\n<p class="sub">{safe(about)}</p>\n' + "\n".join(parts) + "\n</body></html>\n"
    )


def _state(run: RunRecord) -> str:
    state, step, steps = (run.status.get(key, "?") for key in ("state", "step", "steps"))
    tokens = run.train[-1].get("tokens") if run.train else None
    seen = f", {tokens:,} tokens" if isinstance(tokens, int) else ""
    return f"{state}, step {_number(step)} of {_number(steps)}{seen}"


def _charts(run: RunRecord) -> list[str]:
    charts = []
    for term in names_below(run.train, "losses"):
        train = Series("train", series(run.train, "losses", term))
        heldout = Series("held-out", series(run.heldout, "losses", term), is_dotted=True)
        charts.append(line_chart(f"loss {term}", [train, heldout]))
    pairs = {
        "discriminator, held-out": [
            ("AUC", "disc_auc"),
            ("recall", "disc_recall"),
            ("precision", "disc_precision"),
        ],
        "generator": [("sampled right", "sampled_accuracy"), ("replaced", "replaced_fraction")],
        "learning rate": [("lr", "lr")],
    }
    for title, figures in pairs.items():
        records = run.heldout if "held-out" in title else run.train
        charts.append(line_chart(title, [Series(name, series(records, key)) for name, key in figures]))
    norms = [
        Series(network, series(run.train, "grad_norm", network))
        for network in names_below(run.train, "grad_norm")
    ]
    charts.append(line_chart("gradient norm", norms))
    charts.append(line_chart("tokens/s", [Series("", series(run.train, "clock", "tokens_per_second"))]))
    return charts


def _results(results: Record) -> str:
    tasks = cast(Mapping[str, Record], results.get("tasks") or {})
    rows = []
    for name, task in tasks.items():
        published = cast(Sequence[Record], task.get("published") or [])
        beside = "; ".join(f"{p.get('system')} {share(p.get('value'))}" for p in published)
        done = f"{task.get('num_ok')}/{task.get('num_runs')}"
        values = [share(task.get(key)) for key in ("median", "min", "max")]
        rows.append([name, task.get("metric"), *values, done, beside])
    note = "<p>limited: part of the data only</p>" if results.get("limited") else ""
    head = ["task", "metric", "median", "min", "max", "runs", "published"]
    return f"<h2>Evaluation</h2>{note}{table(head, rows)}"


def _quickstart(quickstart: Record) -> str:
    scores = cast(Record, quickstart.get("scores") or {})
    rows = []
    for name, value in scores.items():
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        rows.append([name.replace("_", " "), ", ".join(share(v) for v in values)])
    return "<h2>Quickstart: which package does a paragraph come from?</h2>" + table(
        ["start", "accuracy"], rows
    )


def _figures(record: Record) -> str:
    flat: list[Sequence[object]] = []
    for key, value in record.items():
        if isinstance(value, Mapping):
            flat += [(f"{key}.{name}", _number(inner)) for name, inner in value.items()]
        elif key != "kind":
            flat.append((key, _number(value)))
    return table(["figure", "value"], flat)


def _number(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
