"""The compiled passes between a layer's products against plain torch, forward and backward, in turns.

Each pass is timed by itself, without the product before it where it can be: a linear pass has its product on
both sides. Figures are nanoseconds for each value that the pass gives, dropout 0.1, its draw included.

Letters: N rows, D width, F feed-forward, B batch, H heads, S sequence, L = 3·D.
"""

import argparse
import time
from collections.abc import Callable
from types import ModuleType

import torch
from pairing import Results, add_restart, pair, precisions, say
from torch import Tensor

from electra_cli.kernels.dropout import draw_pattern
from electra_cli.kernels.layer_passes import Norm, native, reference

RATE = 0.1
Call = Callable[[ModuleType], Tensor]
"""One pass, forward and backward, by the functions of a module; what it gives."""


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


def there_and_back(output: Tensor) -> Tensor:
    output.backward(torch.ones_like(output))
    return output


def linear_gelu(tokens: int, width: int, inner: int, dtype: torch.dtype) -> Call:
    hidden, weight, bias = drawn(tokens, width, dtype=dtype), drawn(inner, width), drawn(inner)
    return lambda passes: there_and_back(passes.linear_gelu(hidden, weight, bias))


def linear_add_norm(tokens: int, width: int, inner: int, dtype: torch.dtype) -> Call:
    hidden, residual = drawn(tokens, inner, dtype=dtype), drawn(tokens, width, dtype=dtype)
    weight, bias = drawn(width, inner), drawn(width)
    norm = Norm(gain_F=drawn(width), shift_F=drawn(width), eps=1e-12)
    return lambda passes: there_and_back(passes.linear_add_norm(hidden, weight, bias, RATE, residual, norm))


def linear_gated_gelu(tokens: int, width: int, inner: int, dtype: torch.dtype) -> Call:
    hidden, weight = drawn(tokens, width, dtype=dtype), drawn(2 * inner, width)
    return lambda passes: there_and_back(passes.linear_gated_gelu(hidden, weight, RATE))


def add_dropped(tokens: int, width: int, inner: int, dtype: torch.dtype) -> Call:
    residual, values = (drawn(tokens, width, dtype=dtype) for _ in range(2))
    return lambda passes: there_and_back(passes.add_dropped(residual, values, RATE))


def rotated(tokens: int, width: int, inner: int, dtype: torch.dtype) -> Call:
    qkv = drawn(tokens // 128, 128, 3 * width, dtype=dtype)
    angle = torch.rand(tokens // 128, 128, 32).repeat(1, 1, 2)
    cos, sin = angle.cos(), angle.sin()
    return lambda passes: there_and_back(passes.rotated(qkv, cos, sin))


def softened(sequence: int) -> Callable[[int, int, int, torch.dtype], Call]:
    def make(tokens: int, width: int, inner: int, dtype: torch.dtype) -> Call:
        # As many maps as attention takes at once: what the second-level cache holds.
        shape = (max(1, 4 * 128**2 // sequence**2), 4 if sequence == 128 else 1, sequence, sequence)
        score, gradient = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
        mask = torch.zeros(shape[0], 1, sequence, sequence, dtype=dtype)

        def call(passes: ModuleType) -> Tensor:
            pattern = draw_pattern(RATE)
            # Clones: a pass takes the memory of what it is given.
            weight, _ = passes.softened(score.clone(), mask, pattern)
            _, of_score = passes.softened_back(gradient.clone(), weight, pattern)
            return of_score

        return call

    return make


PASSES: dict[str, Callable[[int, int, int, torch.dtype], Call]] = {
    "product, bias, GELU": linear_gelu,
    "product, bias, dropout, residual, LayerNorm": linear_add_norm,
    "product, gated GELU, dropout": linear_gated_gelu,
    "dropout, residual": add_dropped,
    "rotary positions": rotated,
    "mask, softmax, dropout of 128 places": softened(128),
    "mask, softmax, dropout of 512 places": softened(512),
}


def nanoseconds(call: Call, passes: ModuleType, precision: str) -> float:
    """For each value that the pass gives."""
    started = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        output = call(passes)
    return (time.perf_counter() - started) / output.numel() * 1e9


def main() -> None:
    """Print a line a pass and precision, and leave benchmarks/results/bench-passes.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=41, help="pairs of calls a pass")
    parser.add_argument("--tokens", type=int, default=2048, help="a multiple of 128")
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--inner", type=int, default=1024, help="width inside the feed-forward")
    add_restart(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if reason := native.why_not():
        raise SystemExit(f"there are no compiled passes here: {reason}")
    results = Results("bench-passes", continues=options.continues)
    shape = (options.tokens, options.width, options.inner)
    say(f"{shape[0]} tokens, width {shape[1]}, feed-forward {shape[2]}, dropout {RATE}")
    for precision in precisions():
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        for name, make in PASSES.items():
            if results.has(name, precision, options.threads):
                continue
            call = make(*shape, dtype)
            rounds = [
                [nanoseconds(call, passes, precision) for passes in (native, reference)]
                for _ in range(options.repeats + 3)
            ][3:]
            ours, theirs = zip(*rounds, strict=True)
            results.add(
                pair(
                    name,
                    list(ours),
                    list(theirs),
                    unit="ns/value",
                    more_is_better=False,
                    precision=precision,
                    threads=options.threads,
                )
            )


if __name__ == "__main__":
    main()
