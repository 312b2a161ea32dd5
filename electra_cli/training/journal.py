"""What a run tells: metrics.jsonl is the truth, log.txt and the screen hear the same."""

import json
import time
from collections.abc import Mapping

from electra_cli.durable import AppendFile
from electra_cli.progress import Progress
from electra_cli.training.health import Concern
from electra_cli.training.run_folder import RunFolder


class Journal:
    """Writes the records of one run; only the first process has one that writes."""

    def __init__(self, folder: RunFolder, progress: Progress, *, length: int) -> None:
        """`length`: bytes of metrics.jsonl that the restored state knows of; the rest is cut off."""
        self._metrics = AppendFile(folder.metrics, length=length)
        self._log = AppendFile(folder.log)
        self._progress = progress

    @property
    def length(self) -> int:
        """Bytes of metrics.jsonl."""
        return self._metrics.length

    def record(self, record: Mapping[str, object]) -> None:
        """One line of metrics.jsonl, drawn as a row of its kind; its floats round-trip."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        self._metrics.write_line(line)
        self._log_line(line)
        self._progress.figures(str(record["kind"]), record)

    def warning(self, concern: Concern, *, step: int) -> None:
        """A concern, for the person and for the metrics."""
        record = {"kind": "warning", "step": step, "code": concern.code, "text": concern.text}
        self._metrics.write_line(json.dumps(record, ensure_ascii=False, allow_nan=False))
        self._log_line(f"warning: {concern.text}")
        self._progress.warning(concern.text, code=concern.code)

    def notice(self, text: str, *, code: str) -> None:
        """A warning about this machine or this restart, which is no part of the run's numbers."""
        self._log_line(f"warning: {text}")
        self._progress.warning(text, code=code)

    def message(self, text: str) -> None:
        """A line for the person."""
        self._log_line(text)
        self._progress.message(text)

    def sync(self) -> None:
        """Bring metrics.jsonl to the disk, before a checkpoint that notes its length."""
        self._metrics.sync()

    def close(self) -> None:
        """Close the files."""
        self._metrics.close()
        self._log.close()

    def _log_line(self, text: str) -> None:
        self._log.write_line(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")
