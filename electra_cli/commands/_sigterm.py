"""SIGTERM ends a command like Ctrl-C, with its own exit code; what is finished is on disk already."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_stops(kept: str) -> Iterator[None]:
    """Raise PreemptedError in the block when SIGTERM arrives; `kept` says what is not lost."""
    from electra_cli.errors import PreemptedError

    def stop(number: int, frame: object) -> None:
        raise PreemptedError(f"stopped by SIGTERM; {kept}", hint="the same command continues")

    earlier = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
