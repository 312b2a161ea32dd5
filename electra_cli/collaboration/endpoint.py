"""One request to an OpenAI-compatible endpoint, and what can become of it.

Nothing that a server writes reaches a message, a log or a file: an error page may repeat the key that it was
sent. So the exceptions of the client library end here, and are deliberately not chained.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

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
        self, reason: str, *, may_be_billed: bool, may_retry: bool, wait_seconds: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_be_billed = may_be_billed
        """A request that was cut off may have been answered, and charged."""
        self.may_retry = may_retry
        self.wait_seconds = wait_seconds
        """What the server asked for; 0: nothing."""


class Endpoint:
    """A client of one endpoint; safe to use from several threads."""

    def __init__(self, address: Address, settings: Collaborate, classes: Sequence[str]) -> None:
        """Reads the key from the environment; InputError where it or the client library is missing."""
        try:
            import openai
        except ImportError as error:
            raise InputError(
                "the client for language models is not installed", hint="pip install 'electra-cli[llm]'"
            ) from error
        # At lower levels the library logs what it sends and receives.
        logging.getLogger("openai").setLevel(logging.WARNING)
        self._settings = settings
        self._schema = schema(classes)
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
        options: dict[str, Any] = {}
        if constrained:
            form = {"name": ANSWER_KEY, "strict": True, "schema": self._schema}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        try:
            # The raw reply: the library's own objects trust what the server wrote.
            response = self._client.chat.completions.with_raw_response.create(
                model=self._settings.model,
                messages=cast(Any, chat),
                temperature=self._settings.temperature,
                max_tokens=self._settings.max_tokens,
                **options,
            )
        except openai.APITimeoutError:
            raise _failed("timed out", may_be_billed=True, may_retry=True) from None
        except openai.APIStatusError as error:
            raise self._refused(error.status_code, error.response.headers, _code(error.body)) from None
        except openai.OpenAIError:
            raise _failed("connection cut", may_be_billed=True, may_retry=True) from None
        return _read(response.content)

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def _refused(self, status: int, headers: Mapping[str, str], code: str) -> Exception:
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
        if status == 429 and code == "insufficient_quota":
            return InputError(
                "the endpoint says that the account's quota is used up (429)",
                hint="answers so far are kept: the same command goes on when there is quota",
            )
        if status == 429 or status >= 500 or status in (408, 409):
            reason = "rate limit (429)" if status == 429 else f"server error ({status})"
            return _failed(reason, may_be_billed=False, may_retry=True, wait_seconds=_wait(headers))
        return _failed(f"refused ({status})", may_be_billed=False, may_retry=False)


def _failed(
    reason: str, *, may_be_billed: bool, may_retry: bool, wait_seconds: float = 0.0
) -> RequestFailedError:
    return RequestFailedError(
        reason, may_be_billed=may_be_billed, may_retry=may_retry, wait_seconds=wait_seconds
    )


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


def _code(body: object) -> str:
    found = body.get("code") if isinstance(body, Mapping) else None
    return found if isinstance(found, str) else ""


def _read(content: bytes) -> Reply:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise _failed("reply is no JSON", may_be_billed=True, may_retry=True) from None
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
        return Reply("", "empty answer", input_tokens, output_tokens)
    return Reply(text, "", input_tokens, output_tokens)


def _count(value: object) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return cast(int, value) if is_whole and 0 <= cast(int, value) <= _LARGEST_COUNT else None
