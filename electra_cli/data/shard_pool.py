"""Spawned processes for the functions of shard-corpus; the only part that another engine would replace."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from types import TracebackType
from typing import Self, TypeVar

from electra_cli.errors import MemoryShortError

Job = TypeVar("Job")
Result = TypeVar("Result")


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, keep to one thread, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


class Pool:
    """Runs pure functions over jobs, in this process or in several spawned ones."""

    def __init__(self, processes: int) -> None:
        """With one process the jobs run here."""
        self.processes = processes
        self._executor = (
            ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start_worker)
            if processes > 1
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def run(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """The results in the order of the jobs; few jobs wait at a time, so `jobs` may be a long stream."""
        if self._executor is None:
            yield from map(function, jobs)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for job in jobs:
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
