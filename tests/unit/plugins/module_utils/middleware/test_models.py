# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests for models that a key may not use are refused before vLLM sees them."""

from __future__ import annotations

import asyncio
import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware.models import Models

ALLOWED = (b"x-gateway-models", b"base,sql")
JSON = (b"content-type", b"application/json")


def ask(body, *headers, path="/v1/chat/completions", parts=1, method="POST"):
    """Return the body that vLLM got, None where it got none, and the status of a refusal with its error."""
    size = -(-len(body) // parts) or 1
    pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    messages = [{"type": "http.request", "body": each, "more_body": True} for each in pieces]
    messages[-1]["more_body"] = False
    served, sent = [], []

    async def app(_scope, receive, _send):
        got, more = b"", True
        while more:
            message = await receive()
            got, more = got + message["body"], message["more_body"]
        served.append(got)

    async def receive():
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    asyncio.run(Models(app)(scope, receive, send))
    refusal = (sent[0]["status"], json.loads(sent[1]["body"])) if sent else None
    return (served[0] if served else None), refusal


def body_of(**more):
    return json.dumps(more).encode()


@pytest.mark.parametrize("parts", [1, 3])
def test_a_model_that_the_key_may_use_reaches_vllm_unchanged(parts):
    body = body_of(model="sql", messages=[])
    assert ask(body, ALLOWED, JSON, parts=parts) == (body, None)


@pytest.mark.parametrize(
    "body",
    [
        body_of(model="team/crew"), body_of(model=""), body_of(model=None), body_of(model=["sql"]), body_of(),
        b'{"model":"sql","model":"team/crew"}', b'{"model":"sql","\\u006dodel":"team/crew"}',
        b'{"x":{"model":"sql"},"model":"team/crew"}', b"[1]", b"", b"{", b"[" * 100_000, b'"sql"',
    ],
)  # fmt: skip
def test_any_other_model_and_what_names_none_is_refused(body):
    served, (status, answer) = ask(body, ALLOWED, JSON)
    assert served is None and status == 404 and answer["error"]["code"] == "model_not_found"
    assert answer["error"]["message"].endswith("The key may use: base, sql.")


def test_of_two_kinds_of_a_body_the_first_counts_as_in_vllm():
    form = (b"content-type", b"application/x-www-form-urlencoded")
    body = b'{"model": "sql", "a": "&model=other&b="}'
    served, (status, _error) = ask(body, ALLOWED, form, JSON)
    assert (served, status) == (None, 404)
    assert ask(body, ALLOWED, JSON, form)[0] == body


@pytest.mark.parametrize("kind", [b"multipart/form-data; boundary=x", b" Application/X-WWW-Form-Urlencoded"])
def test_a_form_that_is_json_too_is_refused(kind):
    assert ask(body_of(model="sql"), ALLOWED, (b"content-type", kind))[0] is None


def test_a_key_for_no_model_uses_none():
    served, (_status, answer) = ask(body_of(model="sql"), (b"x-gateway-models", b""), JSON)
    assert served is None and answer["error"]["message"].endswith("The key may use: none.")


def test_an_error_has_the_form_of_the_api():
    _served, (_status, answer) = ask(body_of(model="x"), ALLOWED, path="/v1/messages")
    assert answer["type"] == "error" and answer["error"]["type"] == "not_found_error"


def test_without_the_header_and_for_other_methods_nothing_changes():
    body = body_of(model="team/crew")
    assert ask(body, JSON) == (body, None)
    assert ask(body, ALLOWED, JSON, method="PUT") == (body, None)
