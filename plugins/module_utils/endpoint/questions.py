# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions to an OpenAI-compatible endpoint, and the meaning of its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

from ..common.foreign_text import quote_foreign
from .answers import BadAnswerError, describe_value, read_answer, reasoning_of, refuse_failure, shorten, value_at
from .client import Reply, Upload
from .streams import read_complete_stream
from .task_questions import PATHS, judge_task, payload_of

_PATHS = {
    "models": "/v1/models",
    "chat": "/v1/chat/completions",
    "chat_stream": "/v1/chat/completions",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
    **PATHS,
}
# In the order in which they are made.
CHECKS = tuple(_PATHS)


# Characters of the description of an answer.
_LONGEST = 1000


@dataclass(frozen=True)
class Question:
    """A question and its expected answer.

    models: served names that the server must list; the first one gets the question. prompt: for chat and responses.
    completion_prompt: the beginning of a text, for completions. expect: text that the answers to prompt must contain,
    empty for any text. max_tokens: the limit of each answer, reasoning included. trained: False for random weights,
    whose answers have no meaning.
    """

    models: tuple[str, ...]
    prompt: str
    completion_prompt: str
    expect: str
    max_tokens: int
    trained: bool = True


@dataclass(frozen=True)
class Speed:
    """The speed of a streamed answer.

    time_to_first_token_s: seconds from before the connection is opened until the first chunk with text, reasoning
    included. tokens_per_second: the completion tokens that the server counted, hidden ones (Harmony's channel markers)
    included, divided by the seconds from before the connection is opened until the last chunk of the answer. It
    includes the prefill and does not depend on how many tokens the server packs into a chunk (--stream-interval).
    """

    time_to_first_token_s: float
    tokens_per_second: float


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    answer: the text of the answer, empty without one. speed: of a good stream only. doubt: what is odd about a good
    answer, as a clause.
    """

    name: str
    ok: bool
    seconds: float
    detail: str
    answer: str = ""
    speed: Speed | None = None
    doubt: str = ""

    def row(self) -> dict[str, Any]:
        """Return the reported data of a check."""
        return {"name": self.name, "ok": self.ok, "seconds": round(self.seconds, 3), "detail": self.detail}


def request_of(name: str, question: Question) -> tuple[str, str, Mapping[str, Any] | Upload | None]:
    """Return method, path and payload of a check of CHECKS."""
    if name in PATHS:
        return "POST", PATHS[name], payload_of(name, question.models[0], question.max_tokens)
    return text_request_of(name, question)


def text_request_of(name: str, question: Question) -> tuple[str, str, dict[str, Any] | None]:
    """Return method, path and payload of a check of texts. Temperature 0: the same question gets the same answer."""
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
        # store: this answer is not retrieved later.
        "responses": {**base, "input": question.prompt, "max_output_tokens": question.max_tokens, "store": False},
        "completions": {**base, "prompt": question.completion_prompt, "max_tokens": question.max_tokens},
    }
    return "GET" if name == "models" else "POST", _PATHS[name], payloads[name]


def judge(name: str, question: Question, reply: Reply) -> Finding:
    """Return the finding of the check name on a reply; a problem is part of the finding and never raised."""
    method, path = "GET" if name == "models" else "POST", _PATHS[name]
    try:
        refuse_failure(reply)
        if name in PATHS:
            answer, detail, doubt = judge_task(name, reply, question.trained)
            detail, doubt = quote_foreign(detail, _LONGEST), quote_foreign(doubt, _LONGEST)
            return Finding(name, True, reply.seconds, detail, answer, doubt=doubt)
        answer, detail, speed = _JUDGES[name](question, reply)
    except BadAnswerError as exc:
        return Finding(name, False, reply.seconds, f"{method} {path}: {exc}")
    return Finding(name, True, reply.seconds, quote_foreign(detail, _LONGEST), answer, speed)


def _judge_models(question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    data = read_answer(reply)
    listed = [value_at(data, "data", index, "id", kind=str) for index in range(len(value_at(data, "data", kind=list)))]
    missing = [name for name in question.models if name not in listed]
    if missing:
        raise BadAnswerError(f"lists {', '.join(listed) or 'no model'}, but not {', '.join(missing)}")
    return "", f"lists {', '.join(question.models)}", None


def _judge_chat(question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    data = read_answer(reply)
    message = value_at(data, "choices", 0, "message", kind=dict)
    tokens = value_at(data, "usage", "completion_tokens", kind=int)
    content = value_at(message, "content", at="choices[0].message")
    finish = data["choices"][0].get("finish_reason")
    reasoning = reasoning_of(message)
    if _still_reasons(content, reasoning, finish, question):
        return "", _describe_reasoning(reasoning, tokens), None
    text = _readable_text(content, "choices[0].message.content", reasoning, finish, tokens)
    return _refuse_unexpected(text, question), _describe_answer(text, finish, tokens), None


def _judge_stream(question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    stream = read_complete_stream(reply)
    tokens = stream.tokens or 0
    speed = Speed(round(stream.first, 4), round(tokens / max(stream.last, 1e-6), 2))
    timed = f"first token after {speed.time_to_first_token_s:.3f} s, {speed.tokens_per_second:g} tokens/s"
    if _still_reasons(stream.text, stream.reasoning, stream.finish, question):
        return "", f"{_describe_reasoning(stream.reasoning, tokens)}, {timed}", speed
    text = _readable_text(stream.text, "choices[0].delta.content", stream.reasoning, stream.finish, tokens)
    told = _describe_answer(text, stream.finish, tokens)
    return _refuse_unexpected(text, question), f"{told}, {timed}", speed


def _judge_responses(question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    data = read_answer(reply)
    status = value_at(data, "status", kind=str)
    tokens = value_at(data, "usage", "output_tokens", kind=int)
    output = value_at(data, "output", kind=list)
    text = "".join(_output_text(output, index) for index in range(len(output)))
    kinds = ", ".join(str(item["type"]) for item in output) or "nothing"
    if status != "completed":
        details = data.get("incomplete_details")
        reason = (details.get("reason") if isinstance(details, Mapping) else None) or "no reason given"
        late = reason == "max_output_tokens"
        if late and not question.expect and (text.strip() or "reasoning" in kinds):
            return text, f"wrote {kinds} and did not finish within {tokens} tokens", None
        way_out = "; raise max_tokens" if late else ""
        raise BadAnswerError(f"status is {status!r} ({shorten(str(reason))}), expected 'completed'{way_out}")
    if not text.strip():
        raise BadAnswerError(f"output holds no text; found {kinds}, expected a message with output_text")
    return _refuse_unexpected(text, question), _describe_answer(text, status, tokens), None


def _output_text(output: Sequence[Any], index: int) -> str:
    """Return the text of one item of a response's output; reasoning and tool calls have none."""
    here = f"output[{index}]"
    if value_at(output[index], "type", kind=str, at=here) != "message":
        return ""
    parts = value_at(output[index], "content", kind=list, at=here)
    return "".join(
        value_at(part, "text", kind=str, at=f"{here}.content[{number}]")
        for number, part in enumerate(parts)
        if value_at(part, "type", kind=str, at=f"{here}.content[{number}]") == "output_text"
    )


def _judge_completions(_question: Question, reply: Reply) -> tuple[str, str, Speed | None]:
    data = read_answer(reply)
    text = value_at(data, "choices", 0, "text", kind=str)
    tokens = value_at(data, "usage", "completion_tokens", kind=int)
    finish = data["choices"][0].get("finish_reason")
    text = _readable_text(text, "choices[0].text", "", finish, tokens)
    return text, _describe_answer(text, finish, tokens), None


_Judge = Callable[[Question, Reply], Tuple[str, str, Optional[Speed]]]
_JUDGES: dict[str, _Judge] = {
    "models": _judge_models,
    "chat": _judge_chat,
    "chat_stream": _judge_stream,
    "responses": _judge_responses,
    "completions": _judge_completions,
}


def _readable_text(text: Any, where: str, reasoning: str, finish: Any, tokens: int) -> str:
    """Return a text that is not empty; raises BadAnswerError otherwise."""
    if text is not None and not isinstance(text, str):
        raise BadAnswerError(f"{where} is {describe_value(text)}, expected text")
    if text and text.strip():
        return str(text)
    if finish == "length":
        used = "went into reasoning" if reasoning else "gave no text"
        raise BadAnswerError(f"{where} is empty: all {tokens} tokens {used} (finish_reason length); raise max_tokens")
    raise BadAnswerError(f"{where} is empty ({tokens} tokens, finish_reason {finish}), expected text")


def _still_reasons(text: Any, reasoning: str, finish: Any, question: Question) -> bool:
    """Return whether the model used all tokens to reason, which is enough unless a text is expected."""
    return not text and bool(reasoning.strip()) and finish == "length" and not question.expect


def _describe_reasoning(reasoning: str, tokens: int) -> str:
    return f"reasoned {shorten(reasoning)!r} and did not finish within {tokens} tokens"


def _refuse_unexpected(text: str, question: Question) -> str:
    if question.expect and question.expect not in text:
        raise BadAnswerError(f"answered {shorten(text)!r}, which does not contain {question.expect!r}")
    return text


def _describe_answer(text: str, finish: Any, tokens: int) -> str:
    return f"answered {shorten(text)!r} ({finish}, {tokens} tokens)"
