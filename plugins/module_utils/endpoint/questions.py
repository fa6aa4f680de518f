# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to ask an OpenAI-compatible endpoint, and what to think of its answers. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply

CHECKS = ("models", "chat", "chat_stream", "responses", "completions")

_PATHS = {
    "models": "/v1/models",
    "chat": "/v1/chat/completions",
    "chat_stream": "/v1/chat/completions",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
}
# Of a long answer or error body, this much is shown.
_SHOWN = 200


class BadAnswerError(Exception):
    """An answer that does not pass; the message is a clause that says what was found and what was expected."""


@dataclass(frozen=True)
class Question:
    """What is asked.

    models: served names that the server must list; the first one is asked. prompt: for chat and responses.
    completion_prompt: the beginning of a text, for completions. expect: text that the answers to prompt must contain,
    empty for any text. max_tokens: the limit of each answer, reasoning included.
    """

    models: tuple[str, ...]
    prompt: str
    completion_prompt: str
    expect: str
    max_tokens: int


@dataclass(frozen=True)
class Speed:
    """How fast a streamed answer came.

    time_to_first_token_s: seconds from before the connection is opened until the first chunk with text, reasoning
    included. tokens_per_second: the completion tokens that the server counted, hidden ones (Harmony's channel markers)
    included, divided by the seconds from before the connection is opened until the last chunk of the answer. It
    includes the prefill and does not depend on how many tokens the server packs into a chunk (--stream-interval).
    """

    time_to_first_token_s: float
    tokens_per_second: float


@dataclass(frozen=True)
class Finding:
    """The outcome of one check. answer: the text that came, empty without one; speed: of a good stream only."""

    name: str
    ok: bool
    seconds: float
    detail: str
    answer: str = ""
    speed: Speed | None = None

    def row(self) -> dict[str, Any]:
        """Return what is reported of a check."""
        return {"name": self.name, "ok": self.ok, "seconds": round(self.seconds, 3), "detail": self.detail}


def request_of(name: str, question: Question) -> tuple[str, str, dict[str, Any] | None]:
    """Return method, path and payload of a check of CHECKS. Temperature 0: the same question gets the same answer."""
    base: dict[str, Any] = {"model": question.models[0], "temperature": 0}
    messages = [{"role": "user", "content": question.prompt}]
    payloads: dict[str, dict[str, Any] | None] = {
        "models": None,
        "chat": {**base, "messages": messages, "max_tokens": question.max_tokens},
        "chat_stream": {
            **base,
            "messages": messages,
            "max_tokens": question.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        # store: nobody will ask for this answer again.
        "responses": {**base, "input": question.prompt, "max_output_tokens": question.max_tokens, "store": False},
        "completions": {**base, "prompt": question.completion_prompt, "max_tokens": question.max_tokens},
    }
    return "GET" if name == "models" else "POST", _PATHS[name], payloads[name]


def judge(name: str, question: Question, reply: Reply) -> Finding:
    """Return what reply means for the check name; every problem is told in the finding, none is raised."""
    method, path, _payload = request_of(name, question)
    try:
        _refuse_failure(reply)
        answer, detail, speed = _JUDGES[name](question, reply)
    except BadAnswerError as exc:
        return Finding(name, False, reply.seconds, f"{method} {path}: {exc}")
    return Finding(name, True, reply.seconds, detail, answer, speed)


def _refuse_failure(reply: Reply) -> None:
    if not reply.status:
        raise BadAnswerError(reply.failure)
    if reply.status in (401, 403):
        raise BadAnswerError(
            f"answered {reply.status} ({_server_error(reply.body)}); the server wants another API key: "
            "give the one that it was started with as api_key or api_key_file"
        )
    if reply.status != 200:
        raise BadAnswerError(f"answered {reply.status}: {_server_error(reply.body)}")


def _server_error(body: bytes) -> str:
    """Return the message of an error body: OpenAI's form, vLLM's plain form, or the text itself."""
    try:
        data = json.loads(body)
        error = data["error"]
        return _short(str(error["message"] if isinstance(error, Mapping) else error))
    except (ValueError, KeyError, TypeError):
        return _short(body.decode(errors="replace").strip()) or "with an empty body"


def _judge_models(question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    data = _json(reply)
    listed = [dig(data, "data", index, "id", kind=str) for index in range(len(dig(data, "data", kind=list)))]
    missing = [name for name in question.models if name not in listed]
    if missing:
        raise BadAnswerError(f"lists {', '.join(listed) or 'no model'}, but not {', '.join(missing)}")
    return "", f"lists {', '.join(question.models)}", None


def _judge_chat(question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    data = _json(reply)
    message = dig(data, "choices", 0, "message", kind=dict)
    tokens = dig(data, "usage", "completion_tokens", kind=int)
    content = dig(message, "content", at="choices[0].message")
    finish = data["choices"][0].get("finish_reason")
    text = _text(content, "choices[0].message.content", _reasoning(message), finish, tokens)
    return _expected(text, question), _told(text, finish, tokens), None


def _judge_stream(question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    stream = whole_stream(reply)
    tokens = stream.tokens or 0
    text = _text(stream.text, "choices[0].delta.content", stream.reasoning, stream.finish, tokens)
    speed = Speed(round(stream.first, 4), round(tokens / max(stream.last, 1e-6), 2))
    told = f"{_told(text, stream.finish, tokens)}, first token after {speed.time_to_first_token_s:.3f} s"
    return _expected(text, question), f"{told}, {speed.tokens_per_second:g} tokens/s", speed


def _judge_responses(question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    data = _json(reply)
    status = dig(data, "status", kind=str)
    tokens = dig(data, "usage", "output_tokens", kind=int)
    output = dig(data, "output", kind=list)
    if status != "completed":
        reason = (data.get("incomplete_details") or {}).get("reason") or "no reason given"
        way_out = "; raise max_tokens" if reason == "max_output_tokens" else ""
        raise BadAnswerError(f"status is {status!r} ({_short(str(reason))}), expected 'completed'{way_out}")
    text = "".join(_output_text(output, index) for index in range(len(output)))
    kinds = ", ".join(str(item["type"]) for item in output) or "nothing"
    if not text.strip():
        raise BadAnswerError(f"output holds no text; found {kinds}, expected a message with output_text")
    return _expected(text, question), _told(text, status, tokens), None


def _output_text(output: Sequence[Any], index: int) -> str:
    """Return the text of one item of a response's output; reasoning and tool calls have none."""
    here = f"output[{index}]"
    if dig(output[index], "type", kind=str, at=here) != "message":
        return ""
    parts = dig(output[index], "content", kind=list, at=here)
    return "".join(
        dig(part, "text", kind=str, at=f"{here}.content[{number}]")
        for number, part in enumerate(parts)
        if dig(part, "type", kind=str, at=f"{here}.content[{number}]") == "output_text"
    )


def _judge_completions(_question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    data = _json(reply)
    text = dig(data, "choices", 0, "text", kind=str)
    tokens = dig(data, "usage", "completion_tokens", kind=int)
    finish = data["choices"][0].get("finish_reason")
    text = _text(text, "choices[0].text", "", finish, tokens)
    return text, _told(text, finish, tokens), None


_Judge = Callable[[Question, Reply], Tuple[str, str, Optional[Speed]]]
_JUDGES: dict[str, _Judge] = {
    "models": _judge_models,
    "chat": _judge_chat,
    "chat_stream": _judge_stream,
    "responses": _judge_responses,
    "completions": _judge_completions,
}


@dataclass
class Stream:
    """What a chat's stream held. first, last: seconds until the first chunk with text, the last one with a choice."""

    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    tokens: int | None = None
    chunks: int = 0
    done: bool = False
    first: float = 0.0
    last: float = 0.0


def whole_stream(reply: Reply) -> Stream:
    """Return a chat's stream that came to its end, with its tokens counted; raises BadAnswerError for any other."""
    _refuse_failure(reply)
    stream = read_stream(reply.lines)
    if reply.failure:
        raise BadAnswerError(f"the stream broke after {stream.chunks} chunks: {reply.failure}")
    if not stream.chunks:
        raise BadAnswerError(
            f"answered 200 without one event; found {_found(reply.body)}, expected lines 'data: {{...}}'"
        )
    if not stream.done:
        raise BadAnswerError(f"the stream ended after {stream.chunks} chunks without 'data: [DONE]'")
    if stream.tokens is None:
        raise BadAnswerError(
            "no chunk held usage.completion_tokens, although stream_options.include_usage was asked for"
        )
    return stream


def read_stream(lines: Sequence[tuple[float, bytes]]) -> Stream:
    """Return what the server-sent events in lines hold together; raises BadAnswerError for a chunk that is not one."""
    stream = Stream()
    for seconds, data in sse_events(lines):
        if data == "[DONE]":
            stream.done = True
            break
        try:
            _add_chunk(stream, _object(data, "it"), seconds)
        except BadAnswerError as exc:
            raise BadAnswerError(f"chunk {stream.chunks} of the stream: {exc}") from exc
        stream.chunks += 1
    return stream


def _add_chunk(stream: Stream, chunk: Mapping[str, Any], seconds: float) -> None:
    if "error" in chunk:
        raise BadAnswerError(f"it is an error: {_server_error(json.dumps(chunk).encode())}")
    if chunk.get("usage"):
        stream.tokens = dig(chunk, "usage", "completion_tokens", kind=int)
    # The chunk with the usage has no choice.
    for choice in dig(chunk, "choices", kind=list):
        delta = dig(choice, "delta", kind=dict, at="choices[0]")
        text, reasoning = str(delta.get("content") or ""), _reasoning(delta)
        stream.text += text
        stream.reasoning += reasoning
        stream.finish = choice.get("finish_reason") or stream.finish
        stream.last = seconds
        if (text or reasoning) and not stream.first:
            stream.first = seconds


def sse_events(lines: Sequence[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """Return the data of each server-sent event with the seconds at which its last line came.

    An event ends with an empty line (WHATWG's rule: one without is no event); comments and other fields are left out.
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


def dig(data: Any, *path: Any, kind: type = object, at: str = "") -> Any:
    """Return what lies at path (names and indexes) in data, which must be of the type kind.

    Raises BadAnswerError that names the place, what is there and what was expected; at is where data itself lies.
    """
    here = at
    for step in path:
        inside = here or "the answer"
        if isinstance(step, int):
            here, there = f"{here}[{step}]", isinstance(data, list) and step < len(data)
        else:
            here, there = f"{here}.{step}".lstrip("."), isinstance(data, dict) and step in data
        if not there:
            raise BadAnswerError(f"{here} is missing; {inside} is {_shape(data)}")
        data = data[step]
    # bool is an int for Python, and no number of tokens.
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise BadAnswerError(f"{here} is {_shape(data)}, expected {_KINDS[kind]}")
    return data


_KINDS: dict[type, str] = {str: "text", int: "a number", list: "a list", dict: "an object"}


def _shape(data: Any) -> str:
    """Return what data is, in JSON's words."""
    if data is None:
        return "null"
    if isinstance(data, Mapping):
        return f"an object with {', '.join(map(str, data))}" if data else "an empty object"
    if isinstance(data, list):
        return f"a list of {len(data)}" if data else "an empty list"
    return _short(json.dumps(data))


def _json(reply: Reply) -> dict[str, Any]:
    if reply.failure:
        raise BadAnswerError(f"answered {reply.status}, but {reply.failure}")
    return _object(reply.body.decode(errors="replace"), "the answer")


def _object(text: str, what: str) -> dict[str, Any]:
    if not text.strip():
        raise BadAnswerError(f"{what} is empty, expected a JSON object")
    try:
        data = json.loads(text)
    except ValueError as exc:
        raise BadAnswerError(f"{what} is not JSON ({exc}); found {_found(text.encode())}") from exc
    if not isinstance(data, dict):
        raise BadAnswerError(f"{what} is {_shape(data)}, expected a JSON object")
    return data


def _reasoning(message: Mapping[str, Any]) -> str:
    """Return the reasoning of a message; vLLM before 0.12 calls it reasoning_content."""
    return str(message.get("reasoning") or message.get("reasoning_content") or "")


def _text(text: Any, where: str, reasoning: str, finish: Any, tokens: int) -> str:
    """Return text where it is one that a person could read."""
    if text is not None and not isinstance(text, str):
        raise BadAnswerError(f"{where} is {_shape(text)}, expected text")
    if text and text.strip():
        return str(text)
    if finish == "length":
        used = "went into reasoning" if reasoning else "gave no text"
        raise BadAnswerError(f"{where} is empty: all {tokens} tokens {used} (finish_reason length); raise max_tokens")
    raise BadAnswerError(f"{where} is empty ({tokens} tokens, finish_reason {finish}), expected text")


def _expected(text: str, question: Question) -> str:
    if question.expect and question.expect not in text:
        raise BadAnswerError(f"answered {_short(text)!r}, which does not contain {question.expect!r}")
    return text


def _told(text: str, finish: Any, tokens: int) -> str:
    return f"answered {_short(text)!r} ({finish}, {tokens} tokens)"


def _found(body: bytes) -> str:
    return repr(_short(body.decode(errors="replace").strip()))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
