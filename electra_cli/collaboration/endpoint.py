"""One request to an OpenAI-compatible endpoint, and what can become of it.

Nothing that a server writes reaches a message, a log or a file: an error page may repeat the key that it was
sent. So the exceptions of the client library end here, and are deliberately not chained.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from electra_cli.collaboration.address import Address
from electra_cli.collaboration.prompts import Message
from electra_cli.collaboration.reply import ANSWER_KEY, schema
from electra_cli.errors import InputError
from electra_cli.settings_collaborate import Collaborate

_LARGEST_COUNT = 10**9


@dataclass(frozen=True)
class Reply:
    """What came back. Token counts are `None` where the endpoint does not tell them."""

    text: str
    reason: str
    """Why there is no text, where there is none."""
    input_tokens: int | None
    output_tokens: int | None


class RequestFailedError(Exception):
    """A request that brought no reply, and what to make of it."""

    def __init__(
        self,
        reason: str,
        *,
        may_be_billed: bool,
        may_retry: bool,
        wait_seconds: float = 0.0,
        is_understood: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_be_billed = may_be_billed
        """A request that was cut off may have been answered, and charged."""
        self.may_retry = may_retry
        self.wait_seconds = wait_seconds
        """What the server asked for; 0: nothing."""
        self.is_understood = is_understood
        """The endpoint knows from it how to ask: the same question may go again at once."""


class Endpoint:
    """A client of one endpoint; safe to use from several threads."""

    def __init__(self, address: Address, settings: Collaborate, classes: Sequence[str]) -> None:
        """Reads the key from the environment; InputError where it or the client library is missing."""
        openai = client_library()
        # At lower levels the library logs what it sends and receives.
        logging.getLogger("openai").setLevel(logging.WARNING)
        self._settings = settings
        self._schema = schema(classes)
        # Models that reason take the second name alone, most servers know only the first.
        self._limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
        self._openai = openai
        self._client = openai.OpenAI(
            api_key=read_key(address, settings.key_variable),
            base_url=address.base_url,
            timeout=settings.timeout_seconds,
            max_retries=0,
            http_client=openai.DefaultHttpxClient(
                # A redirect, or a proxy before this machine, would carry texts to where they may not go.
                follow_redirects=False,
                trust_env=not address.is_loopback,
                # Certificates are always checked; plain http, which stays on this machine, has none to load.
                verify=address.base_url.startswith("https:"),
            ),
        )

    @property
    def schema_text(self) -> str:
        """The schema as it is sent, for counting tokens."""
        return json.dumps(self._schema)

    def send(self, messages: Sequence[Message], *, constrained: bool) -> Reply:
        """Send one chat. RequestFailedError for what may pass, InputError for what stays wrong."""
        openai = self._openai
        chat = [{"role": message.role, "content": message.content} for message in messages]
        limit_name = self._limit_name
        options: dict[str, Any] = {limit_name: self._settings.max_tokens}
        if constrained:
            form = {"name": ANSWER_KEY, "strict": True, "schema": self._schema}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        try:
            # The raw reply: the library's own objects trust what the server wrote.
            response = self._client.chat.completions.with_raw_response.create(
                model=self._settings.model,
                messages=cast(Any, chat),
                temperature=self._settings.temperature,
                **options,
            )
        except openai.APIStatusError as error:
            if error.status_code == 400 and limit_name == "max_tokens" and _wants_other_limit(error.body):
                self._limit_name = "max_completion_tokens"
                reason = "refused max_tokens (400)"
                raise RequestFailedError(
                    reason, may_be_billed=False, may_retry=False, is_understood=True
                ) from None
            raise self._refused(error.status_code, error.response.headers, error.body) from None
        except openai.OpenAIError as error:
            if _is_unconnected(error):
                raise RequestFailedError("no connection", may_be_billed=False, may_retry=True) from None
            is_late = isinstance(error, openai.APITimeoutError)
            reason = "timed out" if is_late else "connection cut"
            raise RequestFailedError(reason, may_be_billed=True, may_retry=True) from None
        return _read(response.content)

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def _refused(self, status: int, headers: Mapping[str, str], body: object) -> Exception:
        variable = self._settings.key_variable
        if status in (401, 403):
            return InputError(
                f"the endpoint refused the key in {variable} ({status})",
                hint=f"is {variable} the key of {self._client.base_url.host}, and may it use "
                f"{self._settings.model}? Answers so far are kept",
            )
        if status == 404:
            return InputError(
                f"the endpoint knows no model {self._settings.model}, or no chat at this address (404)",
                key="collaborate.model",
                hint=f"collaborate.base_url = {self._settings.base_url}",
            )
        if status == 400 and _named(body, "param") == "temperature":
            return InputError(
                f"{self._settings.model} takes no temperature of {self._settings.temperature:g} (400)",
                key="collaborate.temperature",
                hint="models that reason take 1 alone: -s collaborate.temperature=1, and "
                "collaborate.max_tokens with room for the reasoning",
            )
        if status == 429 and _named(body, "code") == "insufficient_quota":
            return InputError(
                "the endpoint says that the account's quota is used up (429)",
                hint="answers so far are kept: the same command goes on when there is quota",
            )
        if status == 429 or status >= 500 or status in (408, 409):
            reason = "rate limit (429)" if status == 429 else f"server error ({status})"
            return RequestFailedError(
                reason, may_be_billed=False, may_retry=True, wait_seconds=_wait(headers)
            )
        return RequestFailedError(f"refused ({status})", may_be_billed=False, may_retry=False)


def client_library() -> Any:
    """The `openai` package; InputError where it is not installed."""
    try:
        import openai
    except ImportError as error:
        raise InputError(
            "the client for language models is not installed", hint="pip install 'electra-cli[llm]'"
        ) from error
    return openai


def _is_unconnected(error: Exception) -> bool:
    """Whether nothing was sent at all: no such host, nobody there, no certificate to trust."""
    # By name: which package carries the library's requests differs from version to version.
    return type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout")


def read_key(address: Address, variable: str) -> str:
    """The key in the environment; InputError where there is none for another machine."""
    key = os.environ.get(variable, "").strip()
    if key:
        return key
    if address.is_loopback:
        # The library insists on one; a server on this machine rarely does.
        return "none"
    raise InputError(
        f"there is no key for {address.host}: {variable} is not set",
        hint=f"export {variable}=…   (never in a project file or on the command line)",
    )


def _wait(headers: Mapping[str, str]) -> float:
    try:
        seconds = float(headers.get("retry-after", "0"))
    except ValueError:
        # A date: rare, and our own back-off serves.
        return 0.0
    return min(60.0, seconds) if seconds > 0 else 0.0


def _named(body: object, name: Literal["code", "param", "message"]) -> str:
    found = body.get(name) if isinstance(body, Mapping) else None
    return found if isinstance(found, str) else ""


def _wants_other_limit(body: object) -> bool:
    """Whether an error is about `max_tokens`; servers that fill in no `param` say so in words."""
    return _named(body, "param") == "max_tokens" or "max_completion_tokens" in _named(body, "message")


def _read(content: bytes) -> Reply:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise RequestFailedError("reply is no JSON", may_be_billed=True, may_retry=True) from None
    usage = body.get("usage") if isinstance(body, dict) else None
    counts = usage if isinstance(usage, dict) else {}
    input_tokens, output_tokens = (_count(counts.get(f"{kind}_tokens")) for kind in ("prompt", "completion"))
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    text = message.get("content") if isinstance(message, dict) else None
    if isinstance(message, dict) and message.get("refusal"):
        return Reply("", "model refused", input_tokens, output_tokens)
    if not isinstance(text, str) or not text.strip():
        is_cut = isinstance(first, dict) and first.get("finish_reason") == "length"
        reason = "no answer within max_tokens" if is_cut else "empty answer"
        return Reply("", reason, input_tokens, output_tokens)
    return Reply(text, "", input_tokens, output_tokens)


def _count(value: object) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return cast(int, value) if is_whole and 0 <= cast(int, value) <= _LARGEST_COUNT else None
