"""Spawned processes for the functions of shard-corpus; the only part that another engine would replace."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self, TypeVar

from electra_cli.data.documents import Listing
from electra_cli.errors import MemoryShortError
from electra_cli.settings import Corpus

_SMALL_BYTES = 1 << 20
"""Below this, starting processes takes longer than the work."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def _start_worker(lifeline: Connection) -> None:
    """Keep to one thread, and end when the parent lets go."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    # Nothing is ever sent: the other end is closed, by the parent or by its death.
    wait([lifeline])
    os._exit(1)


def wanted_processes(corpus: Corpus, listing: Listing) -> int:
    """How many processes this corpus is worth."""
    is_small = listing.num_bytes < _SMALL_BYTES and not any(file.is_remote for file in listing.files)
    if is_small:
        return 1
    if corpus.processes:
        return corpus.processes
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block ends; processes started in it never hear it, not even while they start."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Pool:
    """Runs pure functions over jobs, in this process or in several spawned ones."""

    def __init__(self, processes: int) -> None:
        """With one process the jobs run here."""
        self.processes = processes
        self._executor: ProcessPoolExecutor | None = None
        if processes > 1:
            context = get_context("spawn")
            lifeline, self._grip = context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(
                processes, mp_context=context, initializer=_start_worker, initargs=(lifeline,)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is None:
            return
        if error is not None:
            # Work in progress is worth nothing now: end it at once.
            self._grip.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._grip.close()

    def run(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """The results in the order of the jobs; few jobs wait at a time, so `jobs` may be a long stream."""
        if self._executor is None:
            yield from map(function, jobs)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for job in jobs:
                with _interrupts_held():
                    waiting.append(self._executor.submit(function, job))
                if len(waiting) > self.processes + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise MemoryShortError(
                "a worker process of shard-corpus died before its work was done; no shards were published",
                hint="it was killed, most likely for want of memory. The same command continues where this "
                "one stopped; -s corpus.processes=1 needs the least memory",
            ) from error
