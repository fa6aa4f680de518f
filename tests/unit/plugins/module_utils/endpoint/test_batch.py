# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.batch import (
    BatchError,
    Request,
    answer_of,
    answered_id,
    requests_of,
)


def line(**more):
    entry = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m"}, **more}
    return json.dumps(entry).encode()


def test_each_line_is_a_request_and_empty_ones_are_none():
    found = list(requests_of([line(), b"\n", line(custom_id="two", url="/v1/embeddings")]))
    assert found == [
        Request("one", "/v1/chat/completions", {"model": "m"}), Request("two", "/v1/embeddings", {"model": "m"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([b"no json"], "line 1: is no JSON ("),
        ([b"[" * 100_000], "line 1: is no JSON (it is nested too deeply)"),
        ([b"[]"], "line 1: custom_id: found nothing, expected a text"),
        ([line(custom_id="x" * 1025)], "line 1: custom_id is 1025 long, expected 1024 at most"),
        ([line(custom_id=5)], "line 1: custom_id: found 5, expected a text"),
        ([line(body=[])], "line 1: body: found [], expected an object"),
        ([line(method="GET")], "line 1: found 'GET' '/v1/chat/completions', expected POST and a path such as"),
        ([line(url="/pause")], "line 1: found 'POST' '/pause', expected POST and a path such as"),
        ([line(url="/v1/x\r\nX-A: b")], "line 1: found 'POST'"),
        ([line(url="/v1/\u00e9")], "line 1: found 'POST'"),
        ([line(url="/v1/chat completions")], "line 1: found 'POST'"),
        ([line(body={"stream": True})], "line 1: body.stream is set, and an answer is one line; remove it"),
        ([line(), line(custom_id="two"), line()], "line 3: custom_id 'one' is that of line 1; give each its own"),
    ],
)
def test_an_invalid_line_is_named(lines, expected):
    with pytest.raises(BatchError) as caught:
        list(requests_of(lines))
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "failure", "response", "error"),
    [
        (200, b'{"id": 1}', "", 200, None),
        (400, b'{"error": {}}', "", 400, {"error": {}}),
        (0, b"", "no connection", None, {"message": "no connection"}),
        (200, b'{"id', "", None, {"message": "the answer is no JSON"}),
        (200, b'{"id": 1}', "the connection broke off", None, {"message": "the connection broke off"}),
    ],
)
def test_an_answer_has_the_fields_of_run_batch(status, body, failure, response, error):
    text = answer_of(Request("one", "/v1/embeddings", {}), status, body, failure)
    found = json.loads(text)
    assert list(found) == ["id", "custom_id", "response", "error"] and text.endswith(b"\n") and text.count(b"\n") == 1
    assert (found["response"] or {}).get("status_code") == response and found["error"] == error
    assert answered_id(1, text) == "one"


def test_an_answer_that_is_nested_as_deeply_as_json_is_read_ends_no_batch():
    for depth in (*range(700, 1000), 100_000):
        found = answer_of(Request("one", "/v1/embeddings", {}), 200, b"[" * depth + b"]" * depth, "")
        assert answered_id(1, found) == "one"


@pytest.mark.parametrize("text", [b"hello", b"[]", b"{}", b"5"])
def test_a_file_that_is_no_output_is_left_alone(text):
    with pytest.raises(BatchError, match="line 7 of the output: is no answer of a batch"):
        answered_id(7, text)
