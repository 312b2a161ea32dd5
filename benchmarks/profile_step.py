"""Where the time of a training step goes, in percent, beside what its matrix products need at the least.

torch's profiler records every operation; each is put into a part of the step by its own name or by the module
around it, the operations of the backward pass by the forward operation they belong to. Every step makes the
same operations in the same order; of each the fastest over the steps counts, so that other work on the
machine disturbs little. The limit is the best rate of a large product, measured between the steps.
Use one thread (`--threads 1`) to read the shares; with more, waiting for each other is part of them.
"""

import argparse
import json
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

import torch
from pairing import RESULTS
from steps import OurStep, StepShape
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from electra_cli.objectives.costs import training_flops
from electra_cli.objectives.masking import RowMasking
from electra_cli.optimization.update import NetworkUpdate

REST = "everything else"
STEP = "the whole step"

# The first pattern that an operation's name, or the name of one around it, matches decides.
BY_NAME = (
    (r"^aten::bmm$", "attention: products"),
    (r"_LinearAddNorm", "dropout, residual, LayerNorm"),
    (r"_BlockAttention|_softmax", "attention: softmax, mask, dropout"),
    (r"gelu|GELU|_LinearGelu", "GELU"),
    (r"LayerNorm|layer_norm", "LayerNorm"),
    (r"_Dropped", "dropout and residual"),
    (r"electra::|electra_cli::|electra_masked|masked_sample", "vocabulary: head and sample"),
    (r"^Optimizer\.step", "optimizer"),
    (r"AccumulateGrad", "adding gradients up"),
)

# Modules by their name in the network.
BY_MODULE = (
    (r"feed_forward_(inner|output)$", "feed-forward: products"),
    (r"(qkv|attention_output|query_key_value|query|key|value|relative\w*)$", "attention: projections"),
    (r"(norm|layer_norm)$", "LayerNorm"),
    (r"embeddings$|projection$", "embeddings"),
    (r"head(\.\w+)*$", "heads"),
)

COMPILED_PRODUCTS = "feed-forward and attention's output: products"

PRODUCTS = re.compile(r"^aten::(mm|addmm|bmm|addmm_|baddbmm)$")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One line of the table."""

    name: str
    milliseconds: float
    share: float
    """Of the step."""
    gigaflops_per_second: float | None
    """Of its matrix products, where it has some that torch counts."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What one run of this script found."""

    shape: dict[str, object]
    threads: int
    steps: int
    milliseconds: float
    """Sum of the parts: a step in which every operation is as fast as its fastest."""
    median_milliseconds: float
    """Of the steps as they were, by the wall clock, the recording included."""
    tokens_per_second: float
    limit_gigaflops_per_second: float
    product_gigaflops: float
    """Of one step, as electra_cli.models.flops counts."""
    share_of_limit: float
    """Time that the products need at the limit, of the time that the step takes."""
    parts: list[Part]


def scoped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, recorded under a name of ours."""

    def call(*arguments: object, **named: object) -> object:
        with record_function(name):
            return function(*arguments, **named)

    return call


@contextmanager
def named_parts(step: OurStep) -> Iterator[None]:
    """While the block runs, the recording knows modules, keyed choices, figures and clipping by name."""
    with ExitStack() as changes:

        def name_it(owner: object, attribute: str, part: str) -> None:
            named = scoped(part, getattr(owner, attribute))
            changes.enter_context(patch.object(owner, attribute, named))

        for name, module in step.objective.named_modules():
            part = next((part for pattern, part in BY_MODULE if re.search(pattern, name)), None)
            if part is not None and not isinstance(module, nn.Identity):
                name_it(module, "forward", part)
        for name in ("choose", "hide", "uniform"):
            name_it(RowMasking, name, "masking")
        formulas = sys.modules[type(step.objective).__module__]
        for name in ("detection_loss", "detection_figures"):
            if hasattr(formulas, name):
                name_it(formulas, name, "detection: loss and figures")
        name_it(NetworkUpdate, "step", "clipping and finite check")
        yield


def around(event: FunctionEvent) -> Iterator[FunctionEvent]:
    """The event and all that it lies in, from the inside out."""
    while event is not None:
        yield event
        event = event.cpu_parent


OUR_NAMES = {
    *(part for _, part in (*BY_NAME, *BY_MODULE)),
    "masking",
    "detection: loss and figures",
    "clipping and finite check",
}


def named_part(event: FunctionEvent) -> str | None:
    """The part that a name decides, of the event or of what lies around it."""
    if PRODUCTS.match(event.name) and any(re.match(r"_Linear", one.name) for one in around(event)):
        return COMPILED_PRODUCTS
    for one in around(event):
        if one.name in OUR_NAMES:
            return one.name
        for pattern, part in BY_NAME:
            if re.search(pattern, one.name):
                return part
    return None


def parts_of(events: list[FunctionEvent]) -> Iterator[tuple[FunctionEvent, str, int]]:
    """Each event with its part and the number of its step."""
    forward: dict[int, str] = {}
    for event in events:
        if event.sequence_nr >= 0 and not any(
            "evaluate_function" in one.name or one.name.endswith("Backward") for one in around(event)
        ):
            # Operations without a gradient have the number of the next that has one, which comes last.
            forward[event.sequence_nr] = named_part(event) or REST
    for event in events:
        number = next((int(one.name.split()[-1]) for one in around(event) if one.name.startswith(STEP)), None)
        if number is None:
            continue
        part = named_part(event)
        if part is None:
            backward = (one.sequence_nr for one in around(event) if one.sequence_nr in forward)
            part = next((forward[number] for number in backward), REST)
        yield event, part, number


def best_product_rate(dtype: torch.dtype, size: int = 1536) -> float:
    """GFLOP/s of a large square product."""
    left, right = (torch.ones(size, size, dtype=dtype) for _ in range(2))
    rates = []
    for _ in range(4):
        started = time.perf_counter()
        torch.mm(left, right)
        rates.append(2 * size**3 / (time.perf_counter() - started) / 1e9)
    return max(rates)


def measure(shape: StepShape, num_steps: int) -> Profile:
    """Profile some steps after two that warm up."""
    step = OurStep(shape)
    flops = training_flops(shape.settings(), vocabulary_size=shape.vocabulary) * shape.rows * shape.length
    for number in range(2):
        step(number)
    dtype = torch.bfloat16 if shape.precision == "bf16" else torch.float32
    limit = best_product_rate(dtype)
    seconds: list[float] = []
    recording = profile(activities=[ProfilerActivity.CPU], with_flops=True)
    with named_parts(step), recording as recorded:
        for number in range(num_steps):
            started = time.perf_counter()
            with record_function(f"{STEP} {number}"):
                step(2 + number)
            seconds.append(time.perf_counter() - started)
            limit = max(limit, best_product_rate(dtype))
    by_step: list[list[tuple[FunctionEvent, str]]] = [[] for _ in range(num_steps)]
    for event, part, number in parts_of(sorted(recorded.events(), key=lambda one: one.time_range.start)):
        by_step[number].append((event, part))
    spent: dict[str, float] = defaultdict(float)
    products: dict[str, float] = defaultdict(float)
    product_time: dict[str, float] = defaultdict(float)
    for same in zip(*by_step, strict=True):
        event, part = same[0]
        names = {one.name for one, _ in same if not one.name.startswith(STEP)}
        assert len(names) <= 1, f"steps differ in their operations: {names}"
        fastest = min(one.self_cpu_time_total for one, _ in same) / 1e3
        spent[part] += fastest
        if PRODUCTS.match(event.name) and event.flops:
            products[part] += event.flops / 1e6
            product_time[part] += fastest
    whole = sum(spent.values())
    parts = [
        Part(
            name=part,
            milliseconds=milliseconds,
            share=milliseconds / whole,
            gigaflops_per_second=products[part] / product_time[part] if part in products else None,
        )
        for part, milliseconds in sorted(spent.items(), key=lambda item: -item[1])
    ]
    return Profile(
        shape={name: value for name, value in asdict(shape).items() if name != "generator"},
        threads=torch.get_num_threads(),
        steps=num_steps,
        milliseconds=whole,
        median_milliseconds=statistics.median(seconds) * 1e3,
        tokens_per_second=shape.rows * shape.length / whole * 1e3,
        limit_gigaflops_per_second=limit,
        product_gigaflops=flops / 1e9,
        share_of_limit=flops / 1e9 / limit / whole * 1e3,
        parts=parts,
    )


def markdown(found: Profile) -> str:
    """The table for docs/performance.md."""
    lines = [
        f"{found.milliseconds:,.0f} ms a step, {found.tokens_per_second:,.0f} tokens/s, "
        f"threads: {found.threads} (median by the wall clock {found.median_milliseconds:,.0f} ms). Its "
        f"products, {found.product_gigaflops:.0f} GFLOP, would need {found.share_of_limit:.0%} of that at "
        f"the limit of {found.limit_gigaflops_per_second:.0f} GFLOP/s.",
        "",
        "| part of the step, forward and backward | ms | share | products, of the limit |",
        "|---|---|---|---|",
    ]
    for part in found.parts:
        rate = part.gigaflops_per_second
        told = "" if rate is None else f"{rate / found.limit_gigaflops_per_second:.0%}"
        lines.append(f"| {part.name} | {part.milliseconds:,.0f} | {part.share:.1%} | {told} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table; write benchmarks/results/profile.json and .md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="small", choices=["toy", "tiny", "small", "base"])
    parser.add_argument("--backbone", default="electra", choices=["electra", "modern", "deberta"])
    parser.add_argument("--objective", default="electra", choices=["electra", "masked_lm"])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = StepShape(
        size=options.size,
        backbone=options.backbone,
        use=options.objective,
        rows=options.rows,
        length=options.length,
        precision=options.precision,
        dropout=options.dropout,
    )
    found = measure(shape, options.steps)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "profile.json").write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")
    (RESULTS / "profile.md").write_text(markdown(found), encoding="utf-8")
    print(markdown(found), end="")


if __name__ == "__main__":
    main()
