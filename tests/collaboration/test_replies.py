"""What is read as an answer: an exact rule or nothing."""

import json

import pytest
from collaboration_cases import CLASSES

from electra_cli.collaboration.reply import LONGEST_REPLY, read_reply, schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"classification": "neutral"}', "neutral"),
        ('  {\n"classification":  "NEUTRAL"\n}', "neutral"),
        ("negative", "negative"),
        (" Positive.\n", "positive"),
        ("'positive'", "positive"),
        ('"Positive."', "positive"),
        ("**neutral**", "neutral"),
        ("Classification: positive", "positive"),
        ("Let me see.\n**Classification:** negative", "negative"),
        ("Classification: positive\nClassification: positive", "positive"),
    ],
)
def test_an_exact_answer_is_read(text: str, expected: str) -> None:
    assert read_reply(text, CLASSES) == CLASSES.index(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "mixed",
        "POSITIVE (95 %)",
        "positive or negative",
        "positive negative",
        "not negative",
        "The review is positive",
        "positive!",
        "Classification: positive\nClassification: negative",
        "Classification: mixed",
        '{"classification": "mixed"}',
        '{"classification": "positive", "classification2": "negative"}',
        '{"label": "positive"}',
        '{"classification": ["positive"]}',
        '{"classification": null}',
        '[{"classification": "positive"}]',
        "[" * 1000,
        "0",
        "позитивный",
        "positive\0",
    ],
)
def test_anything_else_is_no_answer(text: str) -> None:
    assert read_reply(text, CLASSES) is None


def test_an_essay_is_no_answer_even_where_it_ends_in_one() -> None:
    essay = "On the one hand. " * 600
    assert len(essay) > 10_000 > LONGEST_REPLY
    assert read_reply(f"{essay}\nClassification: positive", CLASSES) is None


def test_classes_that_differ_in_case_alone_are_never_guessed_between() -> None:
    assert read_reply("us", ("US", "us")) is None


def test_the_schema_allows_the_classes_and_nothing_else() -> None:
    made = json.loads(json.dumps(schema(CLASSES)))
    assert made["properties"]["classification"]["enum"] == list(CLASSES)
    assert made["additionalProperties"] is False
