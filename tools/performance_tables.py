"""Put what `make bench` and `make profile` found into docs/performance.md.

A slot is a pair of comments, `<!-- results: NAME -->` and `<!-- end of NAME -->`; it gets
benchmarks/results/NAME.md under a line that names day, processor and torch. Slots without results stay.
"""

import platform
import re
import sys
from datetime import date
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"

SLOT = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end of \2 -->)", re.S)


def filled(page: str, results: Path, machine: str) -> tuple[str, list[str]]:
    """The page with its slots filled, and the names of those that were."""
    names: list[str] = []

    def fill(slot: re.Match[str]) -> str:
        path = results / f"{slot[2]}.md"
        if not path.is_file():
            return slot[0]
        names.append(slot[2])
        day = date.fromtimestamp(path.stat().st_mtime).isoformat()
        return f"{slot[1]}\n{day}, {machine}.\n\n{path.read_text(encoding='utf-8')}\n{slot[3]}"

    return SLOT.sub(fill, page), names


def machine() -> str:
    """Processor and torch, in words."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = re.search(r"^model name\s*:\s*(.*)$", info.read_text(encoding="utf-8"), re.M)
        name = found[1] if found else name
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def main() -> None:
    """Rewrite the page."""
    text, names = filled(PAGE.read_text(encoding="utf-8"), RESULTS, machine())
    if not names:
        sys.exit(f"{RESULTS} holds no results: run make bench first")
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: {', '.join(names)}")


if __name__ == "__main__":
    main()
