# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the server-sent events of a streamed chat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ..common.foreign_json import dump_json
from .answers import BadAnswerError, error_message, quote, read_object, reasoning_of, refuse_failure, value_at
from .client import Reply


@dataclass
class Stream:
    """A chat's stream. first, last: seconds until the first chunk with text, and until the last one with a choice."""

    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    tokens: int | None = None
    chunks: int = 0
    done: bool = False
    first: float = 0.0
    last: float = 0.0


def read_complete_stream(reply: Reply) -> Stream:
    """Return a complete chat stream with its token count; raises BadAnswerError for any other."""
    refuse_failure(reply)
    stream = read_stream(reply.lines)
    if reply.failure:
        raise BadAnswerError(f"the stream broke after {stream.chunks} chunks: {reply.failure}")
    if not stream.chunks:
        raise BadAnswerError(
            f"answered 200 without one event; found {quote(reply.body)}, expected lines 'data: {{...}}'"
        )
    if not stream.done:
        raise BadAnswerError(f"the stream ended after {stream.chunks} chunks without 'data: [DONE]'")
    if stream.tokens is None:
        raise BadAnswerError(
            "no chunk held usage.completion_tokens, although stream_options.include_usage was asked for"
        )
    return stream


def read_stream(lines: Sequence[tuple[float, bytes]]) -> Stream:
    """Return the content of the server-sent events in lines; raises BadAnswerError for an invalid chunk."""
    stream = Stream()
    for seconds, data in sse_events(lines):
        if data == "[DONE]":
            stream.done = True
            break
        try:
            _add_chunk(stream, read_object(data, "it"), seconds)
        except (BadAnswerError, ValueError) as exc:
            raise BadAnswerError(f"chunk {stream.chunks} of the stream: {exc}") from exc
        stream.chunks += 1
    return stream


def _add_chunk(stream: Stream, chunk: Mapping[str, Any], seconds: float) -> None:
    if "error" in chunk:
        raise BadAnswerError(f"it is an error: {error_message(dump_json(chunk).encode())}")
    if chunk.get("usage"):
        stream.tokens = value_at(chunk, "usage", "completion_tokens", kind=int)
    # The chunk with the usage has no choice.
    for choice in value_at(chunk, "choices", kind=list):
        delta = value_at(choice, "delta", kind=dict, at="choices[0]")
        text, reasoning = str(delta.get("content") or ""), reasoning_of(delta)
        stream.text += text
        stream.reasoning += reasoning
        stream.finish = choice.get("finish_reason") or stream.finish
        stream.last = seconds
        if (text or reasoning) and not stream.first:
            stream.first = seconds


def sse_events(lines: Sequence[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """Return the data of each server-sent event with the seconds until its last line.

    An event ends with an empty line (WHATWG: without one there is no event); comments and other fields are left out.
    """
    events: list[tuple[float, str]] = []
    data: list[str] = []
    for seconds, raw in lines:
        line = raw.decode(errors="replace").rstrip("\r")
        field, _colon, value = line.partition(":")
        if field == "data":
            data.append(value[1:] if value.startswith(" ") else value)
        elif not line and data:
            events.append((seconds, "\n".join(data)))
            data = []
    return events
