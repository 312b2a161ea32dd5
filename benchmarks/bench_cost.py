"""What a step costs against sequence length, vocabulary and batch; the loader; the start of a command.

The peer of each line is the first of its series, so a ratio says how the cost grows: tokens a second relative
to the first (1 = as fast a token). The loader's peer is what a step consumes. A start's peer is Python alone.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from bench_text import electra, write_corpus
from pairing import Pairing, Results, add_restart, in_own_process, pair, say
from steps import OurStep, StepShape

# 2,048 tokens a step where the length changes; the series of the batch changes them.
SERIES: dict[str, dict[str, StepShape]] = {
    "length": {
        f"length {length}": StepShape(length=length, rows=2048 // length) for length in (64, 128, 256, 512)
    },
    "vocabulary": {
        f"vocabulary {size:,}": StepShape(vocabulary=size, rows=8) for size in (8_192, 30_522, 128_100)
    },
    "batch": {f"batch {rows} × 128": StepShape(rows=rows) for rows in (4, 8, 16, 32)},
}
STEPS = 3

STARTS = {
    "electra --help": ("-m", "electra_cli", "--help"),
    "electra init --help": ("-m", "electra_cli", "init", "--help"),
    "electra config schema": ("-m", "electra_cli", "config", "schema"),
}
STARTS_REPEATS = 5

CORPUS_COPIES = (1, 4)
BATCHES = 200


def median_step(shape: StepShape) -> float:
    """Tokens a second, of the median of some steps after one."""
    step = OurStep(shape)
    seconds = []
    for number in range(1 + STEPS):
        started = time.perf_counter()
        step(number)
        seconds.append(time.perf_counter() - started)
    return shape.rows * shape.length / sorted(seconds[1:])[STEPS // 2]


def measure_series(threads: int, results: Results) -> None:
    """One process a line: what an allocator keeps of a large step must not help a small one."""
    for series, shapes in SERIES.items():
        missing = [name for name in shapes if not results.has(name, "fp32", threads)]
        if not missing:
            continue
        speed = {
            name: in_own_process(__file__, "--threads", str(threads), "--of", series, name)
            for name in {next(iter(shapes)): None, **dict.fromkeys(missing)}
        }
        first = speed[next(iter(shapes))]["tokens_per_second"]
        for name in missing:
            mine = speed[name]["tokens_per_second"]
            results.add(_line(name, [mine], [first], "tokens/s", threads=threads))


def _line(name: str, ours: list[float], peer: list[float], unit: str, *, threads: int) -> Pairing:
    return pair(
        name, ours, peer, unit=unit, more_is_better=unit.endswith("/s"), precision="fp32", threads=threads
    )


def measure_loader(threads: int, results: Results) -> None:
    """Tokens a second that leave the loader, from one corpus and from one four times as large."""
    consumed = in_own_process(__file__, "--threads", str(threads), "--of", "batch", "batch 16 × 128")
    with tempfile.TemporaryDirectory(prefix="electra-bench-cost-") as scratch:
        for copies in CORPUS_COPIES:
            project = Path(scratch) / str(copies)
            project.mkdir()
            write_corpus(project / "corpus")
            for path in list((project / "corpus").iterdir()):
                text = path.read_bytes()
                for copy in range(1, copies):
                    (project / "corpus" / f"{copy}-{path.name}").write_bytes(text)
            electra("build-vocab", "corpus", "--set=corpus.drop_duplicates=false", cwd=project)
            electra("shard-corpus", "corpus", "--set=corpus.drop_duplicates=false", cwd=project)
            found = in_own_process(__file__, "--loader", str(project))
            results.add(
                _line(
                    f"loader, {found['tokens'] / 1e6:.1f} M tokens of shards; peer: a step of 16 × 128",
                    [found["tokens_per_second"]],
                    [consumed["tokens_per_second"]],
                    "tokens/s",
                    threads=1,
                )
            )


def load(project: Path) -> dict[str, float]:
    """Draw some batches as a run does, without a step between them."""
    from electra_cli.data.shards import open_shards
    from electra_cli.data.vocabulary import load_vocabulary
    from electra_cli.distributed import Ranks
    from electra_cli.settings import ProjectSettings
    from electra_cli.training.samples import open_samples

    settings = ProjectSettings.model_validate({"vocab": {"size": 8192}, "corpus": {"drop_duplicates": False}})
    vocabulary = load_vocabulary(project / "vocab")
    shards = open_shards(project / "shards", vocabulary_sha256=vocabulary.sha256)
    stream = open_samples(settings, vocabulary, shards).stream(0, Ranks(), pin_memory=False)
    next(stream)
    started, tokens = time.perf_counter(), 0
    for _ in range(BATCHES):
        tokens += int((next(stream).piece_BS > 0).sum())
    seconds = time.perf_counter() - started
    stream.close()
    return {"tokens_per_second": tokens / seconds, "tokens": float(shards.num_content_tokens)}


def measure_starts(results: Results) -> None:
    """Milliseconds from the call to the end of commands that compute nothing."""

    def milliseconds(*arguments: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return (time.perf_counter() - started) * 1e3

    for name, arguments in STARTS.items():
        seen = [(milliseconds(*arguments), milliseconds("-c", "pass")) for _ in range(STARTS_REPEATS)]
        say(f"{name}: {statistics.median(ours for ours, _ in seen):.0f} ms")
        results.add(_line(name, [ours for ours, _ in seen], [bare for _, bare in seen], "ms", threads=1))


def main() -> None:
    """Print and write the lines; with `--of` or `--loader`, measure one in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--of", nargs=2, metavar=("SERIES", "NAME"))
    parser.add_argument("--loader", type=Path, metavar="PROJECT")
    parser.add_argument("--only", choices=["series", "loader", "starts"])
    add_restart(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.of:
        series, name = options.of
        print(json.dumps({"tokens_per_second": median_step(SERIES[series][name])}))
        return
    if options.loader:
        print(json.dumps(load(options.loader)))
        return
    results = Results("bench-cost", continues=options.continues)
    parts: dict[str, Callable[[], None]] = {
        "starts": lambda: measure_starts(results),
        "loader": lambda: measure_loader(options.threads, results),
        "series": lambda: measure_series(options.threads, results),
    }
    for name, measure in parts.items():
        if options.only in (None, name):
            say(f"measuring: {name}")
            measure()


if __name__ == "__main__":
    main()
