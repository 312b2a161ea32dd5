"""Questions to the endpoint: several at a time, each until its answer is final."""

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from electra_cli import keyed
from electra_cli.collaboration.answers import Answer
from electra_cli.collaboration.endpoint import Endpoint, Reply, RequestFailedError
from electra_cli.collaboration.ledger import Budget, RequestLog, usd
from electra_cli.collaboration.prompts import Message, Wording, reminded
from electra_cli.collaboration.reply import read_reply
from electra_cli.collaboration.tokens import most_tokens
from electra_cli.errors import InputError
from electra_cli.progress import Progress
from electra_cli.settings_collaborate import Collaborate

OUTSIDE = "answer outside the classes"
LONGEST_WAIT = 60.0
UNREACHED_IN_A_ROW = 20
"""After so many questions without any reply the endpoint counts as gone."""


@dataclass(frozen=True)
class Question:
    """A chat, and the hash by which its answer is kept."""

    key: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class _Sent:
    """What one request brought, and what it cost."""

    answer: Answer
    failure: RequestFailedError | None


class _StoppedError(Exception):
    """The main thread has left; nobody waits for this answer."""


_Done = tuple[str, Answer, bool] | BaseException


class Asker:
    """Sends questions, within the budget, and keeps every answer."""

    def __init__(
        self,
        endpoint: Endpoint,
        log: RequestLog,
        budget: Budget,
        settings: Collaborate,
        wording: Wording,
        kept: Mapping[str, Answer],
    ) -> None:
        self._kept = dict(kept)
        self._endpoint = endpoint
        self._log = log
        self._budget = budget
        self._settings = settings
        self._wording = wording
        self._price = settings.price_of(settings.model)
        self._is_constrained = settings.constrain != "rules"
        self._is_stopped = threading.Event()
        self._quiet_until = 0.0

    def ask(self, questions: Sequence[Question], progress: Progress, task: str) -> list[Answer]:
        """The answer to each question, from what is kept or from the endpoint.

        InputError where the endpoint refuses for good, is gone, or the budget is reached; what was answered
        until then is kept.
        """
        missing = {question.key: question for question in questions if question.key not in self._kept}
        unreached: dict[str, Answer] = {}
        if missing:
            progress.begin(task, len(missing), "questions")
            try:
                unreached = self._ask_all(tuple(missing.values()), progress)
            finally:
                progress.end()
        return [unreached.get(question.key) or self._kept[question.key] for question in questions]

    def _ask_all(self, questions: Sequence[Question], progress: Progress) -> dict[str, Answer]:
        """Ask and keep; returns the questions without a reply, which the next run asks again."""
        self._is_stopped = threading.Event()
        waiting: queue.SimpleQueue[Question] = queue.SimpleQueue()
        done: queue.SimpleQueue[_Done] = queue.SimpleQueue()
        for question in questions:
            waiting.put(question)
        # Daemons, so that Ctrl-C need not wait for replies that are under way.
        threads = [
            threading.Thread(target=self._work, args=(waiting, done), daemon=True)
            for _ in range(min(self._settings.concurrency, len(questions)))
        ]
        for thread in threads:
            thread.start()
        try:
            return self._collect(len(questions), done, progress)
        except InputError:
            self._is_stopped.set()
            for thread in threads:
                # What is under way is paid for, so its answer is waited for and kept.
                thread.join(self._settings.timeout_seconds)
            raise
        finally:
            self._is_stopped.set()

    def _collect(
        self, number: int, done: "queue.SimpleQueue[_Done]", progress: Progress
    ) -> dict[str, Answer]:
        unreached: dict[str, Answer] = {}
        in_a_row = 0
        for _ in range(number):
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            key, answer, is_reached = result
            (self._kept if is_reached else unreached)[key] = answer
            in_a_row = 0 if is_reached else in_a_row + 1
            if in_a_row == UNREACHED_IN_A_ROW:
                raise InputError(
                    f"{in_a_row} questions in a row brought no reply, the last: {answer.reason}",
                    key="collaborate.base_url",
                    hint=f"is {self._settings.base_url} in order? Answers so far are kept",
                )
            progress.advance()
        return unreached

    def _work(self, waiting: "queue.SimpleQueue[Question]", done: "queue.SimpleQueue[_Done]") -> None:
        stopped = self._is_stopped
        while not stopped.is_set():
            try:
                question = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                answer, is_reached = self._answer(question)
                done.put((question.key, answer, is_reached))
            # It belongs to the main thread, which raises it; a lost one would let that wait for ever.
            except BaseException as error:
                done.put(error)
                return

    def _answer(self, question: Question) -> tuple[Answer, bool]:
        """Ask until an answer is inside the classes or the tries are used up; and whether a reply came."""
        messages, is_constrained = question.messages, self._is_constrained
        total = Answer(label=None)
        num_outside = num_failed = 0
        while True:
            sent = self._send(question.key, messages, is_constrained)
            total = _added(total, sent.answer)
            failure = sent.failure
            if failure is None:
                self._is_constrained = self._is_constrained and is_constrained
                num_outside += total.label is None
                is_final = total.label is not None or num_outside > self._settings.retries
                messages = reminded(question.messages, self._wording)
            elif failure.is_understood:
                is_final = False
            elif is_constrained and not failure.may_retry and self._settings.constrain == "auto":
                # Perhaps it is the schema that this endpoint does not know.
                is_constrained, is_final = False, False
            else:
                num_failed += 1
                is_final = not failure.may_retry or num_failed > self._settings.transport_retries
            self._log.end(question.key, sent.answer.usd, total if is_final and failure is None else None)
            if is_final:
                return total, failure is None
            if failure is not None and failure.may_retry:
                self._back_off(question.key, num_failed, failure)

    def _send(self, key: str, messages: Sequence[Message], is_constrained: bool) -> _Sent:
        """One request: reserved, noted, sent, settled."""
        self._wait_until_quiet()
        extra = self._endpoint.schema_text if is_constrained else ""
        most_input = most_tokens(messages, extra)
        most = usd(self._price, most_input, self._settings.max_tokens)
        self._budget.reserve(most)
        self._log.begin(key, most)
        cost = most
        try:
            reply = self._endpoint.send(messages, constrained=is_constrained)
            answer = self._read(reply, most_input, most)
            cost = answer.usd
            return _Sent(answer, None)
        except RequestFailedError as failure:
            cost = most if failure.may_be_billed else 0.0
            return _Sent(Answer(label=None, reason=failure.reason, requests=1, usd=cost), failure)
        except InputError:
            cost = 0.0
            self._log.end(key, cost, None)
            raise
        finally:
            self._budget.settle(most, cost)

    def _read(self, reply: Reply, most_input: int, most: float) -> Answer:
        label = read_reply(reply.text, self._wording.classes)
        is_told = reply.input_tokens is not None and reply.output_tokens is not None
        input_tokens = reply.input_tokens if reply.input_tokens is not None else most_input
        output_tokens = reply.output_tokens if reply.output_tokens is not None else self._settings.max_tokens
        return Answer(
            label=label,
            reason="" if label is not None else reply.reason or OUTSIDE,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            requests=1,
            usd=usd(self._price, input_tokens, output_tokens) if is_told else most,
        )

    def _wait_until_quiet(self) -> None:
        seconds = self._quiet_until - time.monotonic()
        if seconds > 0 and self._is_stopped.wait(seconds):
            raise _StoppedError

    def _back_off(self, key: str, num_failed: int, failure: RequestFailedError) -> None:
        """Wait longer with every failure; after a rate limit everybody waits."""
        share = keyed.uniform(keyed.key(0, f"back-off {key}"), np.array([num_failed]))[0]
        seconds = self._settings.backoff_seconds * 2.0 ** (num_failed - 1) * (0.5 + float(share))
        seconds = min(LONGEST_WAIT, max(seconds, failure.wait_seconds))
        if failure.wait_seconds:
            self._quiet_until = time.monotonic() + seconds
        if self._is_stopped.wait(seconds):
            raise _StoppedError


def _added(total: Answer, more: Answer) -> Answer:
    """The last answer, with what all requests of its question came to."""
    return replace(
        more,
        input_tokens=total.input_tokens + more.input_tokens,
        output_tokens=total.output_tokens + more.output_tokens,
        requests=total.requests + more.requests,
        usd=total.usd + more.usd,
    )
