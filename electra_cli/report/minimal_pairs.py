"""The part of a report about minimal pairs: a table by phenomenon, and a curve along the checkpoints."""

from collections.abc import Mapping

from electra_cli.report.chart import Series, line_chart
from electra_cli.report.reading import Record
from electra_cli.report.text import safe, share, table


def minimal_pairs(results: Record) -> list[str]:
    """The section of a results.json of eval-blimp."""
    tallies = dict(_table(results, "phenomena"))
    tallies["overall"] = results.get("overall")
    rows = [[name, *_cells(tally)] for name, tally in tallies.items()]
    limited = "<p>limited: part of the data only</p>" if results.get("limited") else ""
    parts = [
        f"<h2>Minimal pairs</h2>{limited}",
        f"<p>{safe(results.get('scoring'))}; {safe(results.get('interval'))}; guessing gives 50</p>",
        table(["phenomenon", "% right", "from", "to", "pairs", "ties"], rows),
    ]
    points = _points(results.get("checkpoints"))
    if len(points) > 1:
        parts.append(
            f'<div class="charts">{line_chart("minimal pairs, share right", [Series("", points)])}</div>'
        )
    return parts


def _points(checkpoints: object) -> list[tuple[float, float]]:
    """(step, share) of each checkpoint."""
    points = []
    for record in checkpoints if isinstance(checkpoints, list) else []:
        if not isinstance(record, Mapping):
            continue
        step, value = record.get("checkpoint_step"), _table(record, "overall").get("value")
        if isinstance(step, int) and isinstance(value, int | float):
            points.append((float(step), float(value)))
    return points


def _cells(tally: object) -> list[object]:
    entry = tally if isinstance(tally, Mapping) else {}
    counts = [entry.get("num_pairs"), entry.get("num_ties")]
    return [share(entry.get("value")), share(entry.get("low")), share(entry.get("high")), *counts]


def _table(record: Record, name: str) -> Record:
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}
