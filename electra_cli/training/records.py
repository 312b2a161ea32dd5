"""The lines of metrics.jsonl. Everything but `clock` is a function of the settings and the data."""

import time
from dataclasses import dataclass, field

from electra_cli.optimization.update import network_names
from electra_cli.training.figures import IntervalMeans, finite
from electra_cli.training.heldout import HeldOut
from electra_cli.training.run import Run


@dataclass
class Clock:
    """Wall-clock figures of this process; no part of any comparison."""

    first_step: int
    started: float = field(default_factory=time.perf_counter)
    _last: float = field(default_factory=time.perf_counter)
    _last_tokens: int = 0
    _last_waited: float = 0.0

    def begin(self, tokens: int) -> None:
        """The first step starts now."""
        self.started = self._last = time.perf_counter()
        self._last_tokens = tokens

    def read(self, run: Run, waited_seconds: float) -> dict[str, float | int]:
        """Seconds of this process, speed since the last line, and the time that is left."""
        now = time.perf_counter()
        passed = max(now - self._last, 1e-9)
        done = max(1, run.step - self.first_step)
        values: dict[str, float | int] = {
            "seconds": now - self.started,
            "tokens_per_second": (run.tokens - self._last_tokens) / passed,
            "data_wait_fraction": min(1.0, (waited_seconds - self._last_waited) / passed),
            "peak_bytes": run.plan.engine.peak_bytes(),
            "eta_seconds": (now - self.started) / done * (run.steps - run.step),
        }
        self._last, self._last_tokens, self._last_waited = now, run.tokens, waited_seconds
        return values


def position(run: Run, epochs: float) -> dict[str, object]:
    """Where a record stands in the run."""
    return {"step": run.step, "epoch": epochs, "samples": run.samples, "tokens": run.tokens}


def train_record(
    run: Run,
    epochs: float,
    means: IntervalMeans,
    health: dict[str, float | None],
    rate: float,
    clock: dict[str, float | int],
) -> dict[str, object]:
    """Means over the steps since the last line, and the learning rate of the last one."""
    names = network_names([update.update for update in run.plan.updates])
    return {
        "kind": "train",
        **position(run, epochs),
        "loss": means.loss,
        "losses": dict(means.terms),
        **health,
        "lr": rate,
        "grad_norm": dict(zip(names, means.grad_norms, strict=True)),
        "skipped_steps": run.skipped.total,
        "clock": clock,
    }


def heldout_record(run: Run, epochs: float, measured: HeldOut, seconds: float) -> dict[str, object]:
    """Means over the held-out rows."""
    return {
        "kind": "heldout",
        **position(run, epochs),
        "loss": measured.loss,
        "losses": measured.terms,
        **measured.health,
        "clock": {"seconds": seconds},
    }


def health_figures(run: Run, means: IntervalMeans) -> dict[str, float | None]:
    """The objective's figures by their names in metrics.jsonl; `None` where undefined."""
    return {name: finite(value) for name, value in run.plan.objective.summarise(means.figures).items()}
