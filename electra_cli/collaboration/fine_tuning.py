"""Training files for a provider's fine-tuning, in the three variants of Beno (2025).

FT has the prompt of the strategy `alone`, FT-L that of `label`, FT-M the text alone under a short system
message. Written as Python's `json` writes by default, so that the paper's own files come out to the byte.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_cli import durable
from electra_cli.collaboration.prompts import STRATEGIES, Message, Row, Wording, messages_of
from electra_cli.collaboration.tokens import TokenCounter

VARIANTS = ("FT", "FT-M", "FT-L")


@dataclass(frozen=True, kw_only=True)
class TrainingFile:
    """A written file, and what training on it costs."""

    variant: str
    path: Path
    num_examples: int
    num_bytes: int
    num_tokens: int
    """Tokens of one epoch."""


def training_chat(variant: str, wording: Wording, row: Row, gold: str) -> tuple[Message, ...]:
    """One example with its right answer."""
    if variant == "FT-M":
        listed = wording.listed(tuple(reversed(wording.classes)))
        system = (
            f"You are a model that classifies the {wording.quality} of a {wording.noun} as either {listed}."
        )
        text = row.text if row.pair is None else f"{row.text}\n\n{row.pair}"
        return (Message("system", system), Message("user", text), Message("assistant", gold))
    strategy = STRATEGIES["label" if variant == "FT-L" else "alone"]
    system = f"You are a {wording.quality} analysis assistant."
    prompt = messages_of(strategy, wording, row, "paper")
    return (Message("system", system), *prompt, Message("assistant", gold))


def write_training_files(
    folder: Path,
    wording: Wording,
    rows: Sequence[Row],
    gold: Sequence[str],
    counter: TokenCounter,
    variants: Sequence[str] = VARIANTS,
) -> list[TrainingFile]:
    """Write `VARIANT.jsonl` for each variant; FT-L needs the encoder's label in every row."""
    written = []
    for variant in variants:
        path = folder / f"{variant}.jsonl"
        num_tokens = size = 0
        with durable.writing(path, private=True) as file:
            for chat in _chats(variant, wording, rows, gold):
                line = json.dumps({"messages": [{"role": m.role, "content": m.content} for m in chat]}) + "\n"
                size += file.write(line.encode())
                num_tokens += counter.chat(chat)
        written.append(
            TrainingFile(
                variant=variant, path=path, num_examples=len(rows), num_bytes=size, num_tokens=num_tokens
            )
        )
    return written


def _chats(
    variant: str, wording: Wording, rows: Sequence[Row], gold: Sequence[str]
) -> Iterator[tuple[Message, ...]]:
    for row, label in zip(rows, gold, strict=True):
        yield training_chat(variant, wording, row, label)
