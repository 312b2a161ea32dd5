"""From what a model wrote to a class: an exact rule or nothing."""

import json
import re
from collections.abc import Sequence

ANSWER_KEY = "classification"
LONGEST_REPLY = 2000
"""Characters; an answer is a word or a small JSON object, anything longer is an essay."""

_DECORATION = " \t\r\n\"'`*"
_NAMED = re.compile(r"^[\s\"'`*]*classification[\s\"'`*]*:(.*)$", re.IGNORECASE)


def schema(classes: Sequence[str]) -> dict[str, object]:
    """The JSON schema that constrains an answer to the classes."""
    return {
        "type": "object",
        "properties": {ANSWER_KEY: {"type": "string", "enum": list(classes)}},
        "required": [ANSWER_KEY],
        "additionalProperties": False,
    }


def read_reply(text: str, classes: Sequence[str]) -> int | None:
    """The class that a reply names, `None` where it names none.

    It must be a JSON object with the one key `classification`; or the class itself, whatever its case, with
    quotation marks or one full stop around it; or one line `Classification: …` of that kind in a short reply
    (the paper's rule), if no other such line names another class.
    """
    if len(text) > LONGEST_REPLY:
        return None
    number = _class_of(_from_json(text) or text, classes)
    if number is not None:
        return number
    named = [match[1] for line in text.splitlines() if (match := _NAMED.match(line))]
    found = {_class_of(value, classes) for value in named}
    return found.pop() if len(found) == 1 else None


def _from_json(text: str) -> str | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(content, dict) and content.keys() == {ANSWER_KEY}:
        value = content[ANSWER_KEY]
        return value if isinstance(value, str) else None
    return content if isinstance(content, str) else None


def _class_of(text: str, classes: Sequence[str]) -> int | None:
    plain = text.strip(_DECORATION).removesuffix(".").strip(_DECORATION).casefold()
    folded = [name.casefold() for name in classes]
    return folded.index(plain) if folded.count(plain) == 1 else None
