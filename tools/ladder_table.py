"""The tables of `make ladder` in docs/log.md and pipelines/README.md, made from the JSONs of its cells.

`python tools/ladder_table.py` writes both pages, `--print` shows the tables. A test holds the pages to the
JSONs.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from ladder_plan import Ladder, read_ladder
from ladder_result import ROOT, Content, budget_in_words, read_object

from electra_cli import durable

FOLDER = ROOT / "benchmarks" / "ladder"
PAGES = (ROOT / "docs" / "log.md", ROOT / "pipelines" / "README.md")
BEGIN = "<!-- Written by tools/ladder_table.py from benchmarks/ladder/results/. -->"
END = "<!-- End of what tools/ladder_table.py writes. -->"
NOTHING = "No cell has been run yet."
NOTE = """\
Scores × 100, as score (low … high). A system with several pre-training seeds: the mean of its seeds, the
lowest and the highest. With one seed: BLiMP with its 95 % interval over pairs; of a task the mean of the
fine-tuning runs, the lowest and the highest. A dash: not run, or no run that counts. **One seed says nothing
about the order of two systems.**"""


def read_results(folder: Path) -> list[Content]:
    """Every JSON of a folder. SystemExit where two of one table cannot be compared."""
    contents: list[Content] = [read_object(path) for path in sorted(folder.glob("*.json"))]
    seen: dict[tuple[float, str], tuple[str, str]] = {}
    for content in contents:
        if content["state"] != "finished":
            continue
        for name, value in _common(content):
            other, expected = seen.setdefault((content["budget"], name), (content["cell"], value))
            if value != expected:
                raise SystemExit(
                    f"{content['cell']} and {other} cannot be compared: {name} is "
                    f"{value[:60]} and {expected[:60]}"
                )
    return contents


def _common(content: Content) -> Iterator[tuple[str, str]]:
    """What all cells of a table share: the text, and how they were fine-tuned where they were."""
    for name in ("vocabulary_sha256", "shards_sha256"):
        yield name, content[name]
    for task in content["glue"].values():
        yield "fine-tuning", " ".join(task["settings"])


def tables(ladder: Ladder, contents: Sequence[Content]) -> str:
    """A table a budget, the largest first."""
    budgets = sorted({content["budget"] for content in contents}, reverse=True)
    if not budgets:
        return NOTHING
    parts = [
        _table(ladder, budget, [content for content in contents if content["budget"] == budget])
        for budget in budgets
    ]
    return "\n\n".join([*parts, NOTE])


def _table(ladder: Ladder, budget: float, contents: Sequence[Content]) -> str:
    order = list(dict.fromkeys(cell.system for cell in ladder.cell))
    found = {content["system"] for content in contents}
    systems = [system for system in order if system in found] + sorted(found - set(order))
    columns = ["system", "seeds", "steps", "M tokens", "mlm", "AUC", "BLiMP", *ladder.tasks]
    lines = [_title(budget, contents[0]["full_budget"]), "", _line(columns), _line(["---"] * len(columns))]
    for system in systems:
        cells = sorted((c for c in contents if c["system"] == system), key=lambda c: int(c["seed"]))
        lines.append(_line(_row(system, cells, ladder.tasks)))
    return "\n".join(lines)


def _title(budget: float, full: float) -> str:
    words = f"{budget_in_words(budget)} counted FLOPs of pre-training a cell"
    if budget == full:
        return f"**{words}**"
    return f"**{words}: a reduced budget, {budget / full:.0%} of the ladder's own**"


def _row(system: str, cells: Sequence[Content], tasks: Sequence[str]) -> list[str]:
    seeds = ", ".join(str(cell["seed"]) for cell in cells)
    done = [cell for cell in cells if cell["state"] == "finished"]
    lost = "".join(f" (seed {cell['seed']} diverged)" for cell in cells if cell["state"] != "finished")
    if not done:
        return [system + lost, seeds, *["–"] * (5 + len(tasks))]
    return [
        system + lost,
        seeds,
        f"{done[0]['steps']:,}",
        f"{statistics.fmean(cell['tokens'] for cell in done) / 1e6:.2f}",
        _mean([cell["heldout"]["losses"].get("mlm") for cell in done], "{:.2f}"),
        _mean([cell["heldout"].get("disc_auc") for cell in done], "{:.3f}"),
        _blimp([cell["blimp"] for cell in done]),
        *(_task([cell["glue"].get(task) for cell in done]) for task in tasks),
    ]


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(statistics.fmean(known)) if known else "–"


def _blimp(scores: Sequence[Content]) -> str:
    if len(scores) == 1:
        shown = _spread(scores[0]["value"], scores[0]["low"], scores[0]["high"])
    else:
        shown = _range([score["value"] for score in scores])
    limit = scores[0]["limit"]
    return f"{shown}, {limit:,} pairs a set" if limit else shown


def _task(scores: Sequence[Content | None]) -> str:
    known = [score for score in scores if score is not None and score["mean"] is not None]
    if not known:
        return "–"
    if len(scores) > 1:
        return _range([score["mean"] for score in known])
    (score,) = known
    num_ok = sum(run["status"] == "ok" for run in score["runs"])
    lost = "" if num_ok == len(score["runs"]) else f", {num_ok} of {len(score['runs'])} runs"
    return _spread(score["mean"], score["min"], score["max"]) + lost


def _range(values: Sequence[float]) -> str:
    return _spread(statistics.fmean(values), min(values), max(values))


def _spread(value: float, low: float, high: float) -> str:
    return f"{100 * value:.1f} ({100 * low:.1f} … {100 * high:.1f})"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def with_tables(page: str, text: str) -> str:
    """A page with other tables between its two marks. SystemExit where it has none."""
    before, has_begin, rest = page.partition(BEGIN)
    _, has_end, after = rest.partition(END)
    if not (has_begin and has_end):
        raise SystemExit(f"a page lacks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="show the tables, write nothing")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="with the file of cells")
    parser.add_argument("--cells", default="cells.toml", help="another file of cells, to --print")
    given = parser.parse_args()
    ladder = read_ladder(given.folder / given.cells)
    text = tables(ladder, read_results(given.folder / ladder.results))
    if given.print or given.cells != parser.get_default("cells"):
        print(text)
        return
    for page in PAGES:
        durable.write_text(page, with_tables(page.read_text(encoding="utf-8"), text))


if __name__ == "__main__":
    main()
