# SPDX-License-Identifier: GPL-3.0-or-later
"""What models of each kind are asked, and which of their answers pass, fail or are doubted."""

from __future__ import annotations

import base64
import email
import email.policy
import json
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply, Upload
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.questions import (
    Question,
    judge,
    request_of,
)

from tests.fakes.vllm import call_body, chat_body, embedding_body, pooled_body, rerank_body, response_body

QUESTION = Question(("org/model",), "Is the fleet ready?", "The fleet is", "", 64)
RELATED, OTHER = [1.0, 0.0], [0.9, 0.1]


def found(name, body, trained=True):
    reply = Reply(200, ((0.1, json.dumps(body).encode()),), 0.1)
    return judge(name, replace(QUESTION, trained=trained), reply)


BAD = [
    (
        "tool_call",
        chat_body('<tool_call>{"name": "get_weather"}'),
        "which holds the call as text: the tool-call-parser does not fit",
    ),
    ("tool_call", chat_body(""), "holds neither tool_calls nor text (finish_reason stop)"),
    ("tool_call", call_body(name="get_time"), "called 'get_time', expected 'get_weather'"),
    ("tool_call", call_body(arguments="{"), "arguments of the call is not JSON"),
    ("tool_call", call_body(arguments="{}"), "arguments.city is missing"),
    ("image", chat_body(" "), "choices[0].message.content is empty (finish_reason stop), expected text"),
    ("embedding", embedding_body([1.0], [1.0]), "data is a list of 2, expected 3"),
    ("embedding", embedding_body([1.0], [1.0, 2.0], [1.0]), "the vectors have 1, 2, 1 numbers, expected the same"),
    ("embedding", embedding_body([1.0, None], OTHER, OTHER), "data[0].embedding holds null, expected numbers"),
    ("embedding", embedding_body([1.0, 10**400], OTHER, OTHER), "data[0].embedding holds 1000"),
    ("embedding", embedding_body([0.0, 0.0], OTHER, OTHER), "has 2 numbers, expected some above or below 0"),
    ("embedding", embedding_body(RELATED, [0.0, 1.0], OTHER), "expected the related ones to be more similar"),
    ("rerank", rerank_body(right=0.1, other=0.2), "relevance 0.1 of the right document and 0.2 of the other one"),
    ("rerank", {"results": []}, "results is about the documents [], expected 0 and 1"),
    ("classify", pooled_body(probs=[]), "data[0].probs is a list of 0, expected a number for each label"),
    ("pooling", pooled_body(data=[]), "data[0].data is empty, expected numbers"),
    ("pooling", pooled_body(data=[[0.1], 0.2]), "data[0].data has lists beside other values, expected only numbers or"),
    ("transcription", {"text": None}, "text is null, expected text"),
]


@pytest.mark.parametrize(("name", "body", "said"), BAD)
def test_a_bad_answer_is_named(name, body, said):
    finding = found(name, body)
    assert not finding.ok and said in finding.detail


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}',
        '[get_weather(city="Paris")]',
        "<function=get_weather><parameter=city>Paris",
        'functions.get_weather:0 {"city": "Paris"}',
        '[TOOL_CALLS]get_weather{"city": "Paris"}',
        "{'name': 'get_weather', 'parameters': {}}",
    ],
)
def test_a_call_as_text_is_known_in_every_form(text):
    assert "the tool-call-parser does not fit" in found("tool_call", chat_body(text)).detail
    # The end may be missing because the model thinks aloud.
    assert found("tool_call", chat_body(text, finish="length")).ok


@pytest.mark.parametrize(
    ("name", "body", "doubt"),
    [
        ("tool_call", chat_body("It rains."), "called no tool, and answered 'It rains.'"),
        ("tool_call", chat_body("I have get_weather."), "called no tool, and answered 'I have get_weather.'"),
        ("tool_call", call_body(arguments='{"city": "Rome"}'), "called get_weather for 'Rome', expected Paris"),
        ("image", chat_body("blue"), "answered 'blue' about a red picture"),
    ],
)
def test_an_answer_in_other_words_passes_with_a_doubt(name, body, doubt):
    finding = found(name, body)
    assert finding.ok and finding.doubt == doubt


@pytest.mark.parametrize(
    ("name", "body"),
    [("embedding", embedding_body(RELATED, [0.0, 1.0], OTHER)), ("rerank", rerank_body(right=0.1, other=0.2))],
)
def test_random_weights_need_no_meaning(name, body):
    assert found(name, body, trained=False).ok


def test_a_model_that_still_thinks_at_the_limit_is_good_unless_a_text_is_expected():
    thinking = {
        "chat": chat_body(content=None, finish="length", reasoning="First I look"),
        "responses": response_body(text="", status="incomplete", reason="max_output_tokens"),
    }
    for name, body in thinking.items():
        assert found(name, body).ok and found(name, body).answer == ""
    reply = Reply(200, ((0.1, json.dumps(thinking["chat"]).encode()),), 0.1)
    assert "raise max_tokens" in judge("chat", replace(QUESTION, expect="ready"), reply).detail
    assert not found("chat", chat_body(content=None, finish="stop", reasoning="First I look")).ok


def test_a_picture_is_sent_in_the_question():
    _method, path, payload = request_of("image", QUESTION)
    url = payload["messages"][0]["content"][0]["image_url"]["url"]
    head, _comma, data = url.partition(",")
    assert path == "/v1/chat/completions" and head == "data:image/png;base64"
    assert base64.b64decode(data).startswith(b"\x89PNG\r\n\x1a\n")


def test_a_sound_is_sent_as_a_form():
    method, path, payload = request_of("transcription", QUESTION)
    assert (method, path) == ("POST", "/v1/audio/transcriptions") and isinstance(payload, Upload)
    kind, body = payload.encode()
    message = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body, policy=email.policy.HTTP)
    parts = {part.get_param("name", header="content-disposition"): part for part in message.iter_parts()}
    assert parts["model"].get_payload() == "org/model" and parts["response_format"].get_payload() == "json"
    assert parts["file"].get_filename() == "tone.wav" and parts["file"].get_payload(decode=True) == payload.content


def test_a_call_may_take_more_tokens_than_an_answer():
    assert request_of("tool_call", QUESTION)[2]["max_tokens"] == 1024
    assert request_of("tool_call", replace(QUESTION, max_tokens=4096))[2]["max_tokens"] == 4096
