# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a server's answer, and describe the fault of an unusable one."""

from __future__ import annotations

import json
from typing import Any, Mapping

from ..common.foreign_json import load_json
from ..common.foreign_numbers import read_count
from ..common.foreign_text import quote_foreign
from .client import Reply

# The number of characters to quote from a long answer or error body.
_SHOWN = 200

_KINDS: dict[type, str] = {str: "text", int: "a number", list: "a list", dict: "an object"}


# Characters of a message about an answer.
_LONGEST = 1000


class BadAnswerError(Exception):
    """An answer is unusable; the message is a clause with what was found and what was expected.

    It is in one line without controls, because much of it may be the server's text.
    """

    def __init__(self, message: str) -> None:
        super().__init__(quote_foreign(message, _LONGEST))


def refuse_failure(reply: Reply) -> None:
    """Raise BadAnswerError for a reply with a status other than 200, or with none."""
    if not reply.status:
        raise BadAnswerError(reply.failure)
    if reply.status in (401, 403):
        raise BadAnswerError(
            f"answered {reply.status} ({error_message(reply.body)}); the server expects another API key: "
            "set api_key or api_key_file to the key that it was started with"
        )
    if reply.status != 200:
        raise BadAnswerError(f"answered {reply.status}: {error_message(reply.body)}")


def error_message(body: bytes) -> str:
    """Return the message in an error body: OpenAI's form, vLLM's plain form, or the text itself."""
    try:
        data = load_json(body)
        error = data["error"]
        return shorten(str(error["message"] if isinstance(error, Mapping) else error))
    except (ValueError, KeyError, TypeError):
        return shorten(body.decode(errors="replace").strip()) or "with an empty body"


def read_answer(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a complete answer; raises BadAnswerError for any other."""
    if reply.failure:
        raise BadAnswerError(f"answered {reply.status}, but {reply.failure}")
    return read_object(reply.body.decode(errors="replace"), "the answer")


def read_object(text: str, what: str) -> dict[str, Any]:
    """Return the JSON object in a text; ``what`` is its name in the BadAnswerError for any other text."""
    if not text.strip():
        raise BadAnswerError(f"{what} is empty, expected a JSON object")
    try:
        data = load_json(text)
    except ValueError as exc:
        raise BadAnswerError(f"{what} is not JSON ({exc}); found {quote(text.encode())}") from exc
    if not isinstance(data, dict):
        raise BadAnswerError(f"{what} is {describe_value(data)}, expected a JSON object")
    return data


def value_at(data: Any, *path: Any, kind: type = object, at: str = "") -> Any:
    """Return the value at path (names and indexes) in data; it must be of the type kind.

    Raises BadAnswerError with the place, the value found and the expected type; ``at`` is the place of data itself.
    """
    here = at
    for step in path:
        inside = here or "the answer"
        if isinstance(step, int):
            here, there = f"{here}[{step}]", isinstance(data, list) and step < len(data)
        else:
            here, there = f"{here}.{step}".lstrip("."), isinstance(data, dict) and step in data
        if not there:
            raise BadAnswerError(f"{here} is missing; {inside} is {describe_value(data)}")
        data = data[step]
    # In Python a bool is an int, but it is not a number of tokens; nor is a number that no float can hold.
    if not isinstance(data, kind) or (kind is int and read_count(data) is None):
        raise BadAnswerError(f"{here} is {describe_value(data)}, expected {_KINDS[kind]}")
    return data


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return the reasoning of a message; vLLM before 0.12 calls it reasoning_content."""
    return str(message.get("reasoning") or message.get("reasoning_content") or "")


def describe_value(data: Any) -> str:
    """Return the JSON type or value of data in words."""
    if data is None:
        return "null"
    if isinstance(data, Mapping):
        return f"an object with {', '.join(map(str, data))}" if data else "an empty object"
    if isinstance(data, list):
        return f"a list of {len(data)}" if data else "an empty list"
    return shorten(json.dumps(data))


def quote(body: bytes) -> str:
    """Return the beginning of a body in quotes."""
    return repr(shorten(body.decode(errors="replace").strip()))


def shorten(text: str) -> str:
    """Return the beginning of a text in the length that a message allows."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
