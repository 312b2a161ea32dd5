"""Everything that only a GPU can prove, in one command of at most six minutes; the result is one JSON object.

    python tools/gpu_check.py [--out FILE]         on a CUDA device
    python tools/gpu_check.py --rehearse           the same checks, tiny, on a CPU in Triton's interpreter

Right or wrong: the sampling kernel against float64, the distribution of its draws, rows × vocabulary beyond
2³¹, equality across block sizes. Figures: its time and memory beside what one would write without it, and
ELECTRA steps with their share of the matmul ceiling; attention in packed rows beside torch's other ways. It
needs torch, triton, numpy and this package; a part whose library is missing says so and counts as not done.
Exit code 1 where a check fails.
"""

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

MOST_SECONDS = 360.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check came to."""

    name: str
    outcome: str
    """"passed", "failed", "measured" or "not done"."""
    text: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the checks are; a rehearsal shrinks all of them and leaves out none."""

    device: str
    is_rehearsal: bool

    def pick(self, full: int, tiny: int) -> int:
        return tiny if self.is_rehearsal else full


def carry_out(name: str, check: Callable[[Scale], list[Finding]], scale: Scale) -> list[Finding]:
    """The findings of one group of checks, with the time that it took; a missing library is one of them."""
    started = time.perf_counter()
    try:
        found = check(scale)
    except ImportError as error:
        found = [Finding(name=name, outcome="not done", text=f"{error.name or error} is not installed")]
    seconds = (time.perf_counter() - started) / len(found)
    return [Finding(**{**asdict(one), "seconds": round(seconds, 2)}) for one in found]


def written(finding: Finding) -> dict[str, object]:
    """A finding for JSON, which has no NaN: a figure that is not finite becomes null."""
    figures = {name: value if math.isfinite(value) else None for name, value in finding.figures.items()}
    return {**asdict(finding), "figures": figures}


def machine() -> dict[str, str]:
    """What the figures belong to."""
    import torch
    import triton

    is_gpu = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if is_gpu else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
    }


def choose_scale(is_rehearsal: bool) -> Scale:
    """The size of the checks; a sentence for whoever cannot run them."""
    if is_rehearsal:
        # The interpreter is chosen while triton is imported.
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        raise SystemExit(f"gpu-check needs {error.name}, which is not installed") from error
    if is_rehearsal:
        torch.set_num_threads(1)
        return Scale(device="cpu", is_rehearsal=True)
    if not torch.cuda.is_available():
        raise SystemExit(
            f"gpu-check needs a CUDA device, and torch {torch.__version__} finds none; "
            "`python tools/gpu_check.py --rehearse` runs the same checks, tiny, on a CPU"
        )
    return Scale(device="cuda", is_rehearsal=False)


def main() -> int:
    """Run all checks, write the JSON, and say on standard error how each went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="tiny, on a CPU, in Triton's interpreter")
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    options = parser.parse_args()
    scale = choose_scale(options.rehearse)
    from gpu_check_attention import attention
    from gpu_check_kernel import KERNEL_CHECKS
    from gpu_check_speed import SPEED_CHECKS

    started = time.perf_counter()
    findings: list[Finding] = []
    for name, check in {**KERNEL_CHECKS, **SPEED_CHECKS, "attention": attention}.items():
        for found in carry_out(name, check, scale):
            findings.append(found)
            print(f"{found.outcome:<9} {found.name}  {found.text}", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - started
    if not scale.is_rehearsal and seconds > MOST_SECONDS:
        text = f"{seconds:.0f} s, the limit is {MOST_SECONDS:.0f}"
        findings.append(Finding(name="time", outcome="failed", text=text))
    report = {
        "machine": machine(),
        "is_rehearsal": scale.is_rehearsal,
        "is_passed": all(one.outcome != "failed" for one in findings),
        "seconds": round(seconds, 1),
        "findings": [written(one) for one in findings],
    }
    whole = json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False)
    print(whole)
    if options.out is not None:
        options.out.write_text(whole + "\n", encoding="utf-8")
    return 0 if report["is_passed"] else 1


if __name__ == "__main__":
    # The checks import this file by its name: one module, not two.
    sys.modules["gpu_check"] = sys.modules["__main__"]
    raise SystemExit(main())
