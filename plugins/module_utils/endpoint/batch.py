# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a batch, in the format of OpenAI and of `vllm run-batch`: a request a line, an answer a line.

``custom_id`` says which answer belongs to which request, because answers are written as they come.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from dataclasses import dataclass
from typing import Any, Iterable, Iterator

from ..common.foreign_json import dump_json, load_json
from ..common.kinds import show_value

# Bytes of a line; a gateway refuses larger bodies than 64 MiB by default.
MAX_LINE = 64 * 1024 * 1024
# Characters of a custom_id, which is kept for each request.
MAX_ID = 1024
_PATH = re.compile(r"/v1/[!-~]*")
# How each line of an output begins.
BEGIN = b'{"id": "batch-'
# The gateway has no free place, or no server at the moment; so has one behind it.
BUSY = (429, 502, 503, 504)


class BatchError(ValueError):
    """A file of a batch is invalid; the message names the line, and what was expected."""


@dataclass(frozen=True)
class Request:
    """One line of the input."""

    custom_id: str
    path: str
    body: dict[str, Any]


def parse_request(number: int, line: bytes) -> Request:
    """Return the request of a line. Raises BatchError."""
    if len(line) > MAX_LINE:
        raise BatchError(f"line {number}: has more than {MAX_LINE} bytes; shorten the request")
    try:
        found = load_json(line)
    except ValueError as exc:
        raise BatchError(f"line {number}: is no JSON ({exc}); expected one request a line") from exc
    expected = {"custom_id": str, "method": str, "url": str, "body": dict}
    for name, kind in expected.items():
        value = found.get(name) if isinstance(found, dict) else None
        if not isinstance(value, kind) or not value:
            wanted = "an object" if kind is dict else "a text"
            raise BatchError(f"line {number}: {name}: found {show_value(value)}, expected {wanted}")
    if len(found["custom_id"]) > MAX_ID:
        raise BatchError(f"line {number}: custom_id is {len(found['custom_id'])} long, expected {MAX_ID} at most")
    if found["method"] != "POST" or not _PATH.fullmatch(found["url"]):
        raise BatchError(
            f"line {number}: found {show_value(found['method'])} {show_value(found['url'])}, expected POST and a path "
            "such as /v1/chat/completions"
        )
    if found["body"].get("stream"):
        raise BatchError(f"line {number}: body.stream is set, and an answer is one line; remove it")
    return Request(found["custom_id"], found["url"], found["body"])


def requests_of(lines: Iterable[bytes]) -> Iterator[Request]:
    """Yield the request of each line but empty ones. Raises BatchError, also for an id that comes twice."""
    known: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        request = parse_request(number, line)
        other = known.setdefault(request.custom_id, number)
        if other != number:
            raise BatchError(
                f"line {number}: custom_id {show_value(request.custom_id)} is that of line {other}; give each its own"
            )
        yield request


def answered_id(number: int, line: bytes) -> str:
    """Return the id of a line of the output. Raises BatchError for a file that is no output."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        found = load_json(line)
        # A request has an id too.
        if "response" in found:
            return str(found["custom_id"])
    raise _no_output(number)


def check_cut_off(number: int, line: bytes) -> None:
    """Raise BatchError for a last line without an end that is no part of an answer: the file is somebody's."""
    if line[: len(BEGIN)] != BEGIN[: len(line)]:
        raise _no_output(number)


def _no_output(number: int) -> BatchError:
    return BatchError(f"line {number} of the output: is no answer of a batch; name another file, or remove it")


def answer_of(request: Request, status: int, body: bytes, failure: str) -> bytes:
    """Return the line for an answer; ``failure`` says why there is none that is complete."""
    try:
        data = load_json(body) if body and not failure else None
    except ValueError:
        data, failure = None, "the answer is no JSON"
    unique = uuid.uuid4().hex
    response = None if failure else {"status_code": status, "request_id": f"batch-{unique}", "body": data}
    # As vLLM has it: the answer of an engine that refuses a request is the error.
    error = {"message": failure} if failure else data if status != 200 else None
    entry = {"id": f"batch-{unique}", "custom_id": request.custom_id, "response": response, "error": error}
    try:
        line = dump_json(entry).encode() + b"\n"
    except ValueError as exc:
        return answer_of(request, status, b"", f"the answer cannot be written: {exc}")
    if len(line) > MAX_LINE:
        # JSON in ASCII may be several times as long, and a second run could not read it.
        return answer_of(request, status, b"", f"the answer has more than {MAX_LINE} bytes")
    return line
