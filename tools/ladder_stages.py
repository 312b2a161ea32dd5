"""The commands that a cell of the ladder types, as processes that end with the tool and keep their work."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

Event = Mapping[str, Any]


class StageError(Exception):
    """A command that failed, in its own words."""

    def __init__(self, command: str, exit_code: int, message: str) -> None:
        super().__init__(f"electra {command}: exit {exit_code}: {message}")
        self.exit_code = exit_code


class StoppedError(Exception):
    """A person or the machine asked for an end."""


class Commands:
    """Runs `electra` in one folder, each call with one thread, and ends every running one on a signal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_stopped = False

    def handle_signals(self) -> None:
        """Pass Ctrl-C and SIGTERM on as SIGTERM: a running pre-training then saves before it ends."""
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, self._stop)

    def electra(self, *words: str | Path, hear: Callable[[Event], None] = lambda event: None) -> Event:
        """The result of a command. `hear` gets its other events. StageError where it fails."""
        told: Event = {}
        process = self._start([str(word) for word in words])
        try:
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                hear(told)
            exit_code = process.wait()
        finally:
            self._running.discard(process)
        if self._is_stopped:
            raise StoppedError
        if exit_code:
            raise StageError(str(words[0]), exit_code, str(told.get("message", "no word of why")))
        return told

    def _start(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        given = {name: value for name, value in os.environ.items() if not name.startswith("ELECTRA_")}
        with self._lock:
            if self._is_stopped:
                raise StoppedError
            process = subprocess.Popen(
                [sys.executable, "-m", "electra_cli", *words, "--format", "json"],
                cwd=self.folder,
                env=given | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
                stdout=subprocess.PIPE,
                text=True,
                # A terminal's Ctrl-C must not reach it beside the signal that it is sent.
                start_new_session=True,
            )
            self._running.add(process)
        return process

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopped = True
        for process in list(self._running):
            process.terminate()
