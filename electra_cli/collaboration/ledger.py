"""What requests cost, the limit that is never passed, and the file that remembers both through a kill.

`requests.jsonl` gets a line before a request leaves (`begin`, with the most that it can cost) and one when
its fate is known (`end`, with what it did cost). A begun request without an end counts at its most: it may
have been billed. Nothing that a server wrote is kept but a class of ours and two token counts.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_cli import durable
from electra_cli.collaboration.answers import Answer
from electra_cli.errors import CorruptError, InputError
from electra_cli.settings_collaborate import Price

REQUESTS = "requests.jsonl"
TASK = "task.json"
_FORMAT = 1
_MARKS = {".lock", TASK, "FT.jsonl", "FT-M.jsonl", "FT-L.jsonl"}
_OURS = _MARKS | {REQUESTS, "results.json", "answers.tsv", "report.html"}


def usd(price: Price | None, input_tokens: int, output_tokens: int) -> float:
    """Price of a request in US dollars; 0 where no price is known."""
    if price is None:
        return 0.0
    return (input_tokens * price.input + output_tokens * price.output) / 1e6


class BudgetReachedError(InputError):
    """The next request could pass the limit, so it was not sent."""


class Budget:
    """Money spent, money that requests under way may cost, and the limit on their sum."""

    def __init__(self, limit: float | None, spent: float = 0.0) -> None:
        self.limit = limit
        self.spent = spent
        self._reserved = 0.0
        self._lock = threading.Lock()

    def reserve(self, most: float) -> None:
        """Set `most` aside for a request; BudgetReachedError where the limit could be passed."""
        with self._lock:
            total = self.spent + self._reserved + most
            if self.limit is not None and total > self.limit:
                raise BudgetReachedError(
                    f"--max-usd {self.limit:g} could be passed: ${self.spent:.4f} spent, "
                    f"${self._reserved:.4f} under way, the next request may cost ${most:.4f}",
                    hint="answers so far are kept: the same command with a larger --max-usd goes on",
                )
            self._reserved += most

    def settle(self, most: float, cost: float) -> None:
        """Replace what was set aside by what it came to."""
        with self._lock:
            self._reserved -= most
            self.spent += cost


@dataclass(frozen=True)
class Kept:
    """What the file tells: final answers by key, money spent, requests sent."""

    answers: Mapping[str, Answer]
    spent: float
    num_requests: int
    num_unfinished: int
    length: int
    """Bytes of whole lines; a killed process may have left half of one behind."""


class RequestLog:
    """requests.jsonl, open for writing; safe to use from several threads."""

    def __init__(self, path: Path, kept: Kept) -> None:
        self.num_sent = 0
        self._lock = threading.Lock()
        self._file = durable.AppendFile(path, length=kept.length, private=True)

    def begin(self, key: str, most: float) -> None:
        """A request is about to leave."""
        with self._lock:
            self.num_sent += 1
            self._file.write_line(json.dumps({"begin": key, "most_usd": most}))

    def end(self, key: str, cost: float, answer: Answer | None) -> None:
        """A request came back; `answer` where it settled the question."""
        line: dict[str, object] = {"end": key, "usd": cost}
        if answer is not None:
            line |= {
                "label": answer.label,
                "reason": answer.reason,
                "input_tokens": answer.input_tokens,
                "output_tokens": answer.output_tokens,
                "requests": answer.requests,
                "total_usd": answer.usd,
            }
        with self._lock:
            self._file.write_line(json.dumps(line, allow_nan=False))

    def close(self) -> None:
        """Force everything to the disk."""
        self._file.sync()
        self._file.close()


def read_requests(path: Path) -> Kept:
    """What earlier runs asked; nothing where there is no file. CorruptError for a line that is not ours."""
    content = path.read_bytes() if path.is_file() else b""
    whole = content[: content.rfind(b"\n") + 1]
    answers: dict[str, Answer] = {}
    open_requests: dict[str, float] = {}
    spent, num_requests = 0.0, 0
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            entry = json.loads(line)
            if "begin" in entry:
                num_requests += 1
                # A second begin of an open request: the first belongs to a run that was killed.
                spent += open_requests.pop(entry["begin"], 0.0)
                open_requests[entry["begin"]] = float(entry["most_usd"])
            else:
                open_requests.pop(entry["end"], None)
                spent += float(entry["usd"])
                if "label" in entry:
                    answers[entry["end"]] = _answer(entry)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptError(
                f"{path} line {number} is not what electra wrote",
                path=path,
                line=number,
                hint="--force begins anew, and asks (and pays) again",
            ) from error
    return Kept(
        answers=answers,
        spent=spent + sum(open_requests.values()),
        num_requests=num_requests,
        num_unfinished=len(open_requests),
        length=len(whole),
    )


def _answer(entry: Mapping[str, object]) -> Answer:
    return Answer(
        label=None if entry["label"] is None else _whole(entry, "label"),
        reason=str(entry["reason"]),
        input_tokens=_whole(entry, "input_tokens"),
        output_tokens=_whole(entry, "output_tokens"),
        requests=_whole(entry, "requests"),
        usd=float(str(entry["total_usd"])),
        is_kept=True,
    )


def _whole(entry: Mapping[str, object], name: str) -> int:
    value = entry[name]
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"{name} is no count")
    return value


def refuse_foreign(folder: Path) -> None:
    """InputError where the folder holds anything that collaborate did not write; nothing is changed."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder", path=folder, hint="--out names another")
    names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(durable.TEMPORARY_PREFIX)}
    foreign = sorted(names - _OURS if names & _MARKS else names)
    if foreign:
        raise InputError(
            f"{folder} holds files that electra collaborate did not write: {', '.join(foreign[:5])}",
            path=folder,
            hint="--out names another folder; nothing was changed",
        )


def claim_folder(folder: Path, facts: Mapping[str, object], *, force: bool) -> None:
    """Make `folder` the place of this task, or refuse one that holds the answers of another.

    `facts` are what an answer follows from beside the question itself: encoder, prompts, model, endpoint.
    InputError names every fact that differs, with both values.
    """
    path = folder / TASK
    wanted = {"format": _FORMAT, **facts}
    if path.is_file() and not force:
        damaged = CorruptError(f"{path} is not what electra wrote", path=path, hint="--force begins anew")
        try:
            found = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise damaged from error
        if not isinstance(found, dict):
            raise damaged
        different = _differences(found, wanted)
        if different:
            raise InputError(
                f"{folder} holds the answers of another task:\n" + "\n".join(different),
                path=folder,
                hint="name another folder with --out, or drop these answers with --force",
            )
        return
    if force:
        (folder / REQUESTS).unlink(missing_ok=True)
    durable.write_json(path, wanted, private=True)


def _differences(found: Mapping[str, object], wanted: Mapping[str, object]) -> Sequence[str]:
    names = dict.fromkeys([*wanted, *found])
    return [
        f"  {name}: {found.get(name, 'nothing')} there, {wanted.get(name, 'nothing')} here"
        for name in names
        if found.get(name) != wanted.get(name)
    ]
