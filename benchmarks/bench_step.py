"""A training step: ours against the straightforward one written with transformers' classes (`peers.py`).

Both sides do the same work with the same networks, dropout, optimizer and threads, in processes of their own
that take turns. `short texts` is 64 sentences of 38 tokens on average: padded to 128 as a user would, and
packed into full rows as ours does; its tokens are the real ones alone.
"""

# B batch, S sequence

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from pairing import Results, add_restart, in_own_process, pair, precisions, say
from peers import straightforward_step
from steps import PADDING, OurStep, StepShape, batch_of, text_like_ids
from torch import Tensor

WARM_UP = 1


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pairing: what both sides work on, and how often."""

    shape: StepShape
    has_short_texts: bool = False
    steps: int = 3
    repeats: int = 1


# So many steps and repeats that the whole takes about six minutes on two quiet cores.
CASES = {
    "electra-small, 16 × 128": Case(shape=StepShape(), repeats=2),
    "electra-small, 8 × 512": Case(shape=StepShape(rows=8, length=512), steps=2),
    "electra-small, 64 short texts": Case(shape=StepShape(rows=64), has_short_texts=True, steps=2),
    "electra-base, 4 × 128": Case(shape=StepShape(size="base", rows=4, generator={"width": 256}), steps=2),
    # Half as deep a generator, as DeBERTaV3 has it; the sharing that transformers' classes can do, too.
    "deberta-xsmall, 4 × 128": Case(
        shape=StepShape(
            size="xsmall", backbone="deberta", rows=4, generator={"width": 0, "depth_fraction": 0.5}
        ),
        steps=2,
    ),
}


def short_lengths(number: int, most: int) -> Tensor:
    """Tokens of each short text, [CLS] and [SEP] included; 38 on average, as sentences are."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(number, generator=generator) * 0.55 + 3.5
    return drawn.exp().long().clamp(6, most)


def padded(case: Case) -> Tensor:
    """Rows as a user has them: each text in a row of its own."""
    shape = case.shape
    ids_BS = text_like_ids(shape.rows, shape.length, shape.vocabulary)
    if not case.has_short_texts:
        return ids_BS
    length_B1 = short_lengths(shape.rows, shape.length)[:, None]
    place_S = torch.arange(shape.length)
    ids_BS = torch.where(place_S == length_B1 - 1, ids_BS[0, -1], ids_BS)
    return torch.where(place_S < length_B1, ids_BS, PADDING)


def our_step(case: Case) -> Callable[[int], object]:
    """The engine's step; short texts lie in full rows, the longest first, each where it still fits."""
    step = OurStep(case.shape)
    if not case.has_short_texts:
        return step
    rows: list[list[Tensor]] = []
    for text in sorted((row[row != PADDING] for row in padded(case)), key=len, reverse=True):
        fits = (row for row in rows if sum(map(len, row)) + len(text) <= case.shape.length)
        place = next(fits, None)
        if place is None:
            place = []
            rows.append(place)
        place.append(text)
    shape = len(rows), case.shape.length
    ids_BS, piece_BS, position_BS = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    for row, texts in enumerate(rows):
        start = 0
        for number, text in enumerate(texts):
            here = slice(start, start + len(text))
            ids_BS[row, here], piece_BS[row, here] = text, number + 1
            position_BS[row, here] = torch.arange(len(text))
            start = here.stop
    step.batch = batch_of(ids_BS, piece_BS.int(), position_BS)
    return step


def measure(side: str, case: Case) -> dict[str, float]:
    """Real tokens a second (median step), and the most memory beyond what the imports took, in MB."""
    import transformers  # noqa: F401  (imported on both sides, so that the base is the same)

    num_tokens = int((padded(case) != PADDING).sum())
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = our_step(case) if side == "ours" else straightforward_step(case.shape, padded(case))
    seconds = []
    for number in range(WARM_UP + case.steps):
        start = time.perf_counter()
        step(number)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    median = statistics.median(seconds[WARM_UP:])
    return {"tokens_per_second": num_tokens / median, "megabytes": (peak - base) / 1024}


def compare(name: str, case: Case, threads: int, results: Results) -> None:
    """Measure one case, side by side, unless the results have it."""
    precision = case.shape.precision
    if results.has(name, precision, threads):
        return
    sides: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    for turn in range(case.repeats):
        for side, seen in sides.items():
            how = ("--threads", str(threads), "--precision", precision, "--case", name, "--side", side)
            seen.append(in_own_process(__file__, *how))
            say(
                f"{name}, {precision}, turn {turn + 1} of {case.repeats}, {side}: "
                f"{seen[-1]['tokens_per_second']:,.0f} tokens/s, {seen[-1]['megabytes']:,.0f} MB"
            )
    both = []
    for figure, unit in (("megabytes", "MB"), ("tokens_per_second", "tokens/s")):
        ours, peer = ([run[figure] for run in sides[side]] for side in ("ours", "peer"))
        is_speed = unit == "tokens/s"
        both.append(
            pair(
                name if is_speed else f"{name}, memory",
                ours,
                peer,
                unit=unit,
                more_is_better=is_speed,
                precision=precision,
                threads=threads,
            )
        )
    results.add(*reversed(both))


def main() -> None:
    """Print and write the pairings; with `--side`, measure one side in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", choices=list(CASES), help="this case alone")
    parser.add_argument("--precision", choices=["fp32", "bf16"], help="this precision alone")
    parser.add_argument("--side", choices=["ours", "peer"])
    add_restart(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chosen = [options.case] if options.case else list(CASES)
    if options.side:
        case = CASES[options.case]
        case = replace(case, shape=replace(case.shape, precision=options.precision or "fp32"))
        print(json.dumps(measure(options.side, case)))
        return
    results = Results("bench-step", continues=options.continues)
    for peer in ("electra-pytorch", "simpletransformers"):
        say(f"{peer} left out: it asks for releases of torch and transformers that this environment lacks")
    for precision in [options.precision] if options.precision else precisions():
        for name in chosen:
            case = replace(CASES[name], shape=replace(CASES[name].shape, precision=precision))
            compare(name, case, options.threads, results)


if __name__ == "__main__":
    main()
