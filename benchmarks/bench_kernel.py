"""The sampling kernel against softmax + multinomial: forward, backward and one sample a row, pair by pair.

`native` (where it can be built), `cpu` and the peer take turns in one process, by the wall clock and by the
processor's (which other work on the machine disturbs less). Memory is what a call needs above its inputs,
each in a process of its own.

Letters: M masked positions of the whole batch, D width, V vocabulary.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pairing import Pairing, Results, add_restart, in_own_process, pair, precisions, say
from torch import Tensor
from torch.nn import functional

from electra_cli.kernels.masked_sampling import choose_implementation, masked_sample

WIDTH = 128
SHAPES = [(300, 30_522), (1_200, 30_522)]
LARGE_SHAPES = [(1_200, 128_100), (5_000, 30_522), (5_000, 128_100)]
MANY_NUMBERS = 1_200 * 30_522
"""Beyond so many logits a call takes seconds: two pairs instead of five."""


def make_inputs(rows: int, vocabulary: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    trained = [
        torch.randn(rows, WIDTH, generator=generator),
        torch.randn(vocabulary, WIDTH, generator=generator) * 0.05,
        torch.randn(vocabulary, generator=generator) * 0.1,
    ]
    return (
        *(tensor.requires_grad_() for tensor in trained),
        torch.randint(0, vocabulary, (rows,), generator=generator),
        torch.ones(rows),
        torch.rand(rows, generator=generator, dtype=torch.float64),
    )


def ours(implementation: str) -> Callable[[tuple[Tensor, ...]], None]:
    def call(inputs: tuple[Tensor, ...]) -> None:
        masked_sample(*inputs, implementation=implementation).loss_sum.backward()

    return call


def peer(inputs: tuple[Tensor, ...]) -> None:
    """What one writes without a kernel."""
    hidden_MD, table_VD, bias_V, target_M, _, _ = inputs
    logits_MV = functional.linear(hidden_MD, table_VD, bias_V)
    loss = functional.cross_entropy(logits_MV.float(), target_M, reduction="sum")
    torch.multinomial(logits_MV.detach().float().softmax(1), 1)
    loss.backward()


def our_names() -> list[str]:
    """What runs here; a reason for what does not."""
    name, reason = choose_implementation("native", torch.device("cpu"))
    if name != "native":
        say(f"native left out: {reason}")
        return ["cpu"]
    return ["native", "cpu"]


def timed(
    call: Callable[[tuple[Tensor, ...]], None], inputs: tuple[Tensor, ...], precision: str
) -> tuple[float, float]:
    """Milliseconds of one call: by the wall clock, and of all threads by the processor's."""
    for tensor in inputs[:3]:
        tensor.grad = None
    wall, processor = time.perf_counter(), time.process_time()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        call(inputs)
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - processor) * 1e3


def compare_times(rows: int, vocabulary: int, precision: str, repeats: int) -> list[Pairing]:
    inputs = make_inputs(rows, vocabulary)
    names = our_names()
    calls = [*map(ours, names), peer]
    for call in calls:
        timed(call, inputs, precision)
    rounds = [[timed(call, inputs, precision) for call in calls] for _ in range(repeats)]
    return [
        pair(
            f"kernel {name} {clock} time {rows} × {vocabulary}",
            [one[place][which] for one in rounds],
            [one[-1][which] for one in rounds],
            unit="ms",
            more_is_better=False,
            precision=precision,
            threads=torch.get_num_threads(),
        )
        for place, name in enumerate(names)
        for which, clock in enumerate(("wall", "processor"))
    ]


def resident_bytes(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no {field}")


def measure_memory(who: str, rows: int, vocabulary: int, precision: str) -> float:
    """Peak MB of two calls above the inputs; the gradients that a call leaves behind are part of it."""
    call = peer if who == "peer" else ours(who)
    timed(call, make_inputs(8, 300), precision)
    inputs = make_inputs(rows, vocabulary)
    before = resident_bytes("VmRSS")
    for _ in range(2):
        timed(call, inputs, precision)
    return (resident_bytes("VmHWM") - before) / 1e6


def memory_name(name: str, rows: int, vocabulary: int) -> str:
    return f"kernel {name} memory {rows} × {vocabulary}"


def compare_memory(rows: int, vocabulary: int, precision: str) -> list[Pairing]:
    threads = torch.get_num_threads()
    names = our_names()
    found: dict[str, list[float]] = {}
    for who in (*names, "peer"):
        how = ("--threads", str(threads), "--memory-of", who, str(rows), str(vocabulary), precision)
        found[who] = [in_own_process(__file__, *how)["megabytes"]]
    return [
        pair(
            memory_name(name, rows, vocabulary),
            found[name],
            found["peer"],
            unit="MB",
            more_is_better=False,
            precision=precision,
            threads=threads,
        )
        for name in names
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="pairs of calls a shape")
    parser.add_argument(
        "--large", action="store_true", help="also 128,100 ids and 5,000 rows (15 minutes, 11 GB)"
    )
    parser.add_argument(
        "--shape", nargs=2, type=int, metavar=("ROWS", "VOCABULARY"), help="this one shape alone"
    )
    add_restart(parser)
    parser.add_argument("--memory-of", nargs=4, metavar=("WHO", "ROWS", "VOCABULARY", "PRECISION"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory_of:
        who, rows, vocabulary, precision = options.memory_of
        print(json.dumps({"megabytes": measure_memory(who, int(rows), int(vocabulary), precision)}))
        return

    results = Results("bench-kernel", continues=options.continues)
    shapes = [tuple(options.shape)] if options.shape else SHAPES + (LARGE_SHAPES if options.large else [])
    if not (options.large or options.shape):
        say("128,100 ids and 5,000 rows left out, where the peer takes 7 to 27 s a call; --large has them")
    kinds = precisions()
    for rows, vocabulary in shapes:
        is_many = rows * vocabulary > MANY_NUMBERS
        for precision in kinds:
            # The memory comes last: where it is there, the times are, too.
            if results.has(memory_name(our_names()[-1], rows, vocabulary), precision, options.threads):
                continue
            say(f"kernel, {rows} × {vocabulary}, {precision}")
            repeats = min(options.repeats, 2) if is_many else options.repeats
            results.add(
                *compare_times(rows, vocabulary, precision, repeats),
                *compare_memory(rows, vocabulary, precision),
            )


if __name__ == "__main__":
    main()
