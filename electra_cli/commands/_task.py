"""How far a task is, and how a line tells it."""

import resource
import sys
import time
from dataclasses import dataclass, field

from electra_cli.commands._safe import clock, compact, safe, size

BYTE_UNITS = ("B", "byte", "bytes")


@dataclass
class Task:
    """A task in progress."""

    name: str
    total: int | None
    unit: str
    done: int = 0
    note: str = ""
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Time since it began."""
        return time.monotonic() - self.started

    def complete(self) -> None:
        """Nothing is left to do: what was done is all there was."""
        if self.total and self.done:
            self.total = self.done

    def line(self) -> str:
        """`count     42 %  0.8/2.0 GB  61 MB/s  0:00:33   peak 1.4 GB`."""
        return f"{safe(self.name, one_line=True):<9}  {self.facts()}".rstrip()

    def facts(self) -> str:
        """The line without the name."""
        parts = [self.amount()]
        if self.total:
            parts.insert(0, f"{100 * self.done / self.total:3.0f} %")
        if self.done and self.seconds >= 0.5:
            parts.append(self.rate())
        parts.append(clock(self.seconds))
        eta = self.eta_seconds()
        if eta is not None and self.done < (self.total or 0):
            parts.append(f"eta {clock(eta)}")
        parts.append(f" peak {size(peak_bytes())}")
        if self.note:
            parts.append(f" {safe(self.note, one_line=True)}")
        return "  ".join(part for part in parts if part)

    def amount(self) -> str:
        """What is done, of how much."""
        if self.unit in BYTE_UNITS:
            return f"{size(self.done)} of {size(self.total)}" if self.total else size(self.done)
        unit = safe(self.unit, one_line=True)
        if self.total:
            return f"{self.done:,}/{self.total:,} {unit}".rstrip()
        return f"{self.done:,} {unit}".rstrip() if self.done else ""

    def rate(self) -> str:
        """Units a second."""
        value = self.done / max(self.seconds, 1e-9)
        unit = safe(self.unit, one_line=True)
        if self.unit in BYTE_UNITS:
            return f"{size(value)}/s"
        # 0.05 files/s says less than 3 files/min.
        amount, time_unit = (compact(value), "s") if value >= 1 else (compact(60 * value), "min")
        return f"{amount} {unit}/{time_unit}".replace(" /", "/")

    def eta_seconds(self) -> float | None:
        """Seconds left at the mean rate so far; `None` while unknown."""
        if not self.total or not self.done:
            return None
        return max(0.0, self.seconds * (self.total - self.done) / self.done)


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
