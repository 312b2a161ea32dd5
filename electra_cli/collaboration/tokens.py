"""Tokens of a chat: counted with a given tokenizer, else estimated, and in any case bounded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from electra_cli.collaboration.prompts import Message
from electra_cli.data.tokenizer_file import read_tokenizer

BYTES_PER_TOKEN = 4.0
"""English text, the providers' rule of thumb; other languages need more tokens."""
TOKENS_PER_MESSAGE = 4
"""Role and separators of a message (OpenAI's cookbook)."""
TOKENS_PER_CHAT = 3
"""The beginning of the answer."""


@dataclass(frozen=True)
class TokenCounter:
    """Counts tokens; without a tokenizer it estimates."""

    tokenizer: Tokenizer | None = None

    @property
    def is_exact(self) -> bool:
        """Whether a tokenizer counts."""
        return self.tokenizer is not None

    def text(self, text: str) -> int:
        """Tokens of a text."""
        if self.tokenizer is not None:
            return len(self.tokenizer.encode(text, add_special_tokens=False).ids)
        return math.ceil(num_bytes(text) / BYTES_PER_TOKEN)

    def chat(self, messages: Sequence[Message]) -> int:
        """Input tokens of a chat."""
        return TOKENS_PER_CHAT + sum(TOKENS_PER_MESSAGE + self.text(message.content) for message in messages)


def num_bytes(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def most_tokens(messages: Sequence[Message], extra: str = "") -> int:
    """A bound on the input tokens that holds for every byte-level vocabulary: no token is less than a byte.

    Markers of messages are taken at four times their usual number.
    """
    markers = 4 * (TOKENS_PER_CHAT + TOKENS_PER_MESSAGE * len(messages))
    return markers + num_bytes(extra) + sum(num_bytes(message.content) for message in messages)


def load_counter(path: Path | None) -> TokenCounter:
    """The counter of a tokenizer.json; `None`: estimates."""
    return TokenCounter(None if path is None else read_tokenizer(path, key="collaborate.tokenizer"))
