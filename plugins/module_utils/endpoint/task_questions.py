# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions to models that do more than chat, or something else: their requests, and what counts as an answer.

Where a model of the kind cannot but know the answer (which of two sentences is nearer), another one is a failure. Where
it may prefer other words (the colour of a picture, a text in place of a tool call), it is a doubt.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any, Callable, Mapping, Sequence, Tuple

from .answers import BadAnswerError, describe_value, read_answer, read_object, reasoning_of, shorten, value_at
from .client import Reply, Upload
from .samples import red_png, tone_wav

PATHS = {
    "tool_call": "/v1/chat/completions",
    "image": "/v1/chat/completions",
    "embedding": "/v1/embeddings",
    "rerank": "/rerank",
    "classify": "/classify",
    "pooling": "/pooling",
    "transcription": "/v1/audio/transcriptions",
}

# A model may think before it calls.
_CALL_TOKENS = 1024
# The question does not name the tool, so an answer that does holds a call as text.
_TOOL, _CITY = "get_weather", "Paris"
_TOOL_PROMPT = f"What is the weather like in {_CITY} right now?"
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": _TOOL,
            "description": "Return the current weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
_COLOUR = "red"
_IMAGE_PROMPT = "Which colour is this picture? Answer with one word."

_SENTENCE = "How do I change my password?"
_NEAR = "The steps to set a new password"
_FAR = "The volcano erupted early in the morning."
_QUERY = "What is the capital of France?"
_RELEVANT = "Paris is the capital of France."

# An answer's text, its description, and a doubt about it.
Judged = Tuple[str, str, str]


def payload_of(name: str, model: str, max_tokens: int) -> Mapping[str, Any] | Upload:
    """Return what is sent for a check of PATHS."""
    if name == "transcription":
        fields = {"model": model, "temperature": "0", "response_format": "json"}
        return Upload(fields, "file", "tone.wav", "audio/wav", tone_wav())
    if name in ("tool_call", "image"):
        return {"model": model, "temperature": 0, **_chat(name, max_tokens)}
    texts: dict[str, dict[str, Any]] = {
        "embedding": {"input": [_SENTENCE, _NEAR, _FAR]},
        "rerank": {"query": _QUERY, "documents": [_FAR, _RELEVANT]},
        "classify": {"input": [_SENTENCE]},
        "pooling": {"input": [_SENTENCE]},
    }
    return {"model": model, **texts[name]}


def _chat(name: str, max_tokens: int) -> dict[str, Any]:
    if name == "tool_call":
        return {
            "messages": [{"role": "user", "content": _TOOL_PROMPT}],
            "tools": _TOOLS,
            "tool_choice": "auto",
            "max_tokens": max(max_tokens, _CALL_TOKENS),
        }
    url = f"data:image/png;base64,{base64.b64encode(red_png()).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": _IMAGE_PROMPT}]
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": max_tokens}


def judge_task(name: str, reply: Reply, trained: bool) -> Judged:
    """Return the answer to a check of PATHS; raises BadAnswerError. Random weights need no meaning."""
    answer, detail, doubt = _JUDGES[name](read_answer(reply), trained)
    return answer, detail, doubt


def _judge_tool_call(data: Mapping[str, Any], _trained: bool) -> Judged:
    message = value_at(data, "choices", 0, "message", kind=dict)
    finish = data["choices"][0].get("finish_reason")
    text = str(message.get("content") or "")
    if not message.get("tool_calls"):
        # A model that thinks aloud may name the tool too.
        if finish != "length" and re.search(rf"{_TOOL}[\"']?\s*[,:({{>}}\]]", text):
            raise BadAnswerError(
                f"answered {shorten(text)!r}, which holds the call as text: the tool-call-parser does not fit the model"
            )
        if not text.strip() and not reasoning_of(message):
            raise BadAnswerError(f"choices[0].message holds neither tool_calls nor text (finish_reason {finish})")
        said = shorten(text or reasoning_of(message))
        return "", f"answered {said!r} ({finish})", f"called no tool, and answered {said!r}"
    here = "choices[0].message"
    function = value_at(message, "tool_calls", 0, "function", kind=dict, at=here)
    called = value_at(function, "name", kind=str, at=f"{here}.tool_calls[0].function")
    arguments = value_at(function, "arguments", kind=str, at=f"{here}.tool_calls[0].function")
    if called != _TOOL:
        raise BadAnswerError(f"called {shorten(called)!r}, expected {_TOOL!r}")
    city = value_at(read_object(arguments, "arguments of the call"), "city", kind=str, at="arguments")
    doubt = "" if _CITY.lower() in city.lower() else f"called {_TOOL} for {shorten(city)!r}, expected {_CITY}"
    return "", f"called {_TOOL}({shorten(arguments)})", doubt


def _judge_image(data: Mapping[str, Any], _trained: bool) -> Judged:
    message = value_at(data, "choices", 0, "message", kind=dict)
    finish = data["choices"][0].get("finish_reason")
    text = str(message.get("content") or "") or reasoning_of(message)
    if not text.strip():
        raise BadAnswerError(f"choices[0].message.content is empty (finish_reason {finish}), expected text")
    doubt = "" if _COLOUR in text.lower() else f"answered {shorten(text)!r} about a {_COLOUR} picture"
    return "", f"answered {shorten(text)!r} ({finish})", doubt


def _judge_embedding(data: Mapping[str, Any], trained: bool) -> Judged:
    count = len(value_at(data, "data", kind=list))
    if count != 3:
        raise BadAnswerError(f"data is a list of {count}, expected 3")
    vectors = [_vector(value_at(data, "data", number, "embedding", kind=list), number) for number in range(3)]
    if len({len(vector) for vector in vectors}) != 1:
        raise BadAnswerError(
            f"the vectors have {', '.join(str(len(each)) for each in vectors)} numbers, expected the same"
        )
    near, far = _cosine(vectors[0], vectors[1]), _cosine(vectors[0], vectors[2])
    told = f"3 vectors of {len(vectors[0])} numbers, similarity {near:.2f} of related and {far:.2f} of other sentences"
    if trained and near <= far:
        raise BadAnswerError(f"{told}: expected the related ones to be more similar")
    return "", told, ""


def _vector(values: Sequence[Any], number: int) -> list[float]:
    where = f"data[{number}].embedding"
    found = [_number(value, where) for value in values]
    if not any(found):
        raise BadAnswerError(f"{where} has {len(found)} numbers, expected some above or below 0")
    return found


def _number(value: Any, where: str) -> float:
    # vLLM writes a NaN as null.
    try:
        found = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise BadAnswerError(f"{where} holds {describe_value(value)}, expected numbers")
    return found


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    length = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other)) / length if length else 0.0


def _judge_rerank(data: Mapping[str, Any], trained: bool) -> Judged:
    results = value_at(data, "results", kind=list)
    scores = {
        value_at(data, "results", place, "index", kind=int): _number(
            value_at(data, "results", place, "relevance_score"), f"results[{place}].relevance_score"
        )
        for place in range(len(results))
    }
    if set(scores) != {0, 1}:
        raise BadAnswerError(f"results is about the documents {sorted(scores)}, expected 0 and 1")
    told = f"relevance {scores[1]:.3g} of the right document and {scores[0]:.3g} of the other one"
    if trained and scores[1] <= scores[0]:
        raise BadAnswerError(f"{told}: expected the right one first")
    return "", told, ""


def _judge_classify(data: Mapping[str, Any], _trained: bool) -> Judged:
    values = value_at(data, "data", 0, "probs", kind=list)
    found = [_number(value, "data[0].probs") for value in values]
    if not found:
        raise BadAnswerError("data[0].probs is a list of 0, expected a number for each label")
    label = data["data"][0].get("label")
    return "", f"{len(found)} labels, {shorten(str(label))!r} with {max(found):.2f}", ""


def _judge_pooling(data: Mapping[str, Any], _trained: bool) -> Judged:
    values = value_at(data, "data", 0, "data", kind=list)
    rows = values if values and isinstance(values[0], list) else [values]
    if not all(isinstance(row, list) for row in rows):
        raise BadAnswerError("data[0].data has lists beside other values, expected only numbers or only lists of them")
    numbers = [_number(value, "data[0].data") for row in rows for value in row]
    if not numbers:
        raise BadAnswerError("data[0].data is empty, expected numbers")
    return "", f"{len(rows)} vectors, {len(numbers)} numbers", ""


def _judge_transcription(data: Mapping[str, Any], _trained: bool) -> Judged:
    # The sound holds no words, so no text is an answer too.
    return "", f"wrote {shorten(value_at(data, 'text', kind=str))!r} about a tone without words", ""


_JUDGES: dict[str, Callable[[Mapping[str, Any], bool], Judged]] = {
    "tool_call": _judge_tool_call,
    "image": _judge_image,
    "embedding": _judge_embedding,
    "rerank": _judge_rerank,
    "classify": _judge_classify,
    "pooling": _judge_pooling,
    "transcription": _judge_transcription,
}
