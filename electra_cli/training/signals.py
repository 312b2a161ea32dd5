"""Ctrl-C and SIGTERM: inside the training loop they ask for a saved end, elsewhere they end at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from electra_cli.errors import ElectraError, InterruptedRunError, PreemptedError

_ERRORS: dict[int, type[ElectraError]] = {
    signal.SIGINT: InterruptedRunError,
    signal.SIGTERM: PreemptedError,
}


class StopRequest:
    """Whether a signal asked the run to end. Without `handling_signals` it never does."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._is_held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside the block a first signal is only noted; the loop looks at `signal` after each step."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    @property
    def error_class(self) -> type[ElectraError] | None:
        """The error with the exit code of the signal that arrived."""
        return None if self.signal is None else _ERRORS[self.signal]

    def _handle(self, number: int, _: FrameType | None) -> None:
        arrived = signal.Signals(number)
        # A second Ctrl-C, or any signal outside the loop, unwinds at once: every write is atomic, so
        # nothing is lost but the steps since the last checkpoint.
        is_second = self.signal is signal.SIGINT and arrived is signal.SIGINT
        if is_second or not self._is_held:
            self.signal = arrived
            raise _ERRORS[number](f"stopped at once by {arrived.name}", hint="the same command continues")
        self.signal = arrived


@contextmanager
def handling_signals() -> Iterator[StopRequest]:
    """Route SIGINT and SIGTERM to a `StopRequest` while the block runs; only the main thread can."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop._handle) for number in _ERRORS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
