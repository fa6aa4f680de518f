# SPDX-License-Identifier: GPL-3.0-or-later
"""What a client of a gateway cannot tell the engine, however it spells it."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import steering
from ansible_collections.baremetal.inference.plugins.module_utils.middleware.usage_host import Usage

from tests.fakes.counted_engine import output

GATEWAY = (steering.PRIORITY,)
PLAIN = {"model": "m", "input": 'a "priority" of 1', "tools": [{"parameters": {"properties": {"priority": {}}}}]}


def ask(body, headers=GATEWAY, path="/v1/embeddings", kept=()):
    """Send a request in two parts; return what vLLM gets of it, and what is sent back."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    parts = [
        {"type": "http.request", "body": text[:3], "more_body": True},
        {"type": "http.request", "body": text[3:], "more_body": False},
    ]
    got, sent = [], []

    async def engine(scope, receive, _send):
        messages = [await receive()]
        while messages[-1]["more_body"]:
            messages.append(await receive())
        got.append((dict(scope["headers"]), b"".join(message["body"] for message in messages)))

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "method": "POST", "headers": [*headers, (b"content-length", b"999")]}
    asyncio.run(steering.Steering(engine, kept)(scope, receive, send))
    return (got[0] if got else None), sent


@pytest.mark.parametrize("name", steering.FIELDS)
@pytest.mark.parametrize("form", ["plain", "escape", "capital", "utf-16", "utf-32", "bom", "twice", "spaces"])
def test_no_spelling_reaches_the_engine(name, form):
    value = {"remote_host": "10.0.0.1"} if name.endswith("_params") else -100
    text = json.dumps({**PLAIN, name: value})
    body = {
        "escape": text.replace(f'"{name}":', f'"\\u{ord(name[0]):04x}{name[1:]}":'),
        "capital": text.replace(f'"{name}":', f'"{name[:-1]}\\u{ord(name[-1]):04X}":'),
        "twice": f'{{"{name}": 1, {text[1:]}',
        "spaces": text.replace(f'"{name}":', f'\r\n\t "{name}" \n :'),
    }.get(form, text)
    data = body.encode({"utf-16": "utf-16", "utf-32": "utf-32", "bom": "utf-8-sig"}.get(form, "utf-8"))
    assert name in json.loads(data)
    (headers, found), _sent = ask(data)
    assert json.loads(found) == PLAIN and headers[b"content-length"] == b"%d" % len(found)


@pytest.mark.parametrize("name", steering.FIELDS)
@pytest.mark.parametrize("inner", [*steering.INNER, "sampling_params.extra_args"])
def test_nor_does_one_in_a_part_of_the_request(name, inner):
    body = {name: -100, "a": 1}
    for part in reversed(inner.split(".")):
        body = {part: body}
    (_headers, found), _sent = ask({**PLAIN, **body})
    assert b'"a": 1' in found and found.count(name.encode()) == json.dumps(PLAIN).count(name)


@pytest.mark.parametrize(
    "body", [PLAIN, b'{"model": "m",\n "priorities": 1}', b"[1]", b'"priority"', b"", b"[{}]", "\udcff"]
)
def test_everything_else_stays_as_it_is(body):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert ask(body)[0][1] == text


@pytest.mark.parametrize(
    "body", [b'{"priority": -1', b'{"priority": 1}{}', b'{"x": ' + b"[" * 100000 + b', "priority": -1}', b"\0\0\0\0x"]
)
def test_what_cannot_be_read_is_refused(body):
    found, sent = ask(body)
    assert found is None and sent[0]["status"] == 400


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize("spelt", ['"uuid":', '"\\u0075uid":'])
@pytest.mark.parametrize(
    "around",
    [
        lambda part: {"messages": [{"role": "user", "content": ["look", part]}]},
        lambda part: {"messages": [[{"role": "user", "content": [part]}]]},
        lambda part: {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [part]}]}]},
        lambda part: {"input": [{"type": "function_call_output", "output": [part]}]},
        lambda part: {"queries": {"content": [part]}, "documents": [{"content": [part]}]},
        lambda part: {"content_parts": [part]},
    ],
)
def test_no_picture_gets_the_place_of_another_one_in_the_caches(around, spelt):
    text = json.dumps(around({**PICTURE, "uuid": "evil"})).replace('"uuid":', spelt)
    assert json.loads(ask(text.encode())[0][1]) == around(PICTURE)


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"uuid": "1"}, "chat_template_kwargs": {"uuid": 1}},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"uuid": "1"}}]}]},
        {"tools": [{"function": {"parameters": {"properties": {"uuid": {"type": "string"}}}}}]},
    ],
)
def test_what_is_called_alike_elsewhere_stays(body):
    assert json.loads(ask(body)[0][1]) == body


@pytest.mark.parametrize("count", [False, True])
def test_no_field_of_a_recording_steers_an_engine(tmp_path, count):
    """vLLM reads one field of the form as JSON."""
    got = []

    class Client:
        async def generate(self, _prompt, sampling_params, _request_id):
            got.append(sampling_params.extra_args)
            yield output([], 0, {})

    engine = SimpleNamespace(state=SimpleNamespace(engine_client=Client()))

    async def app(_scope, _receive, _send):
        for extra in ({**dict.fromkeys(steering.FIELDS, "x"), "a": 1}, None):
            params = SimpleNamespace(extra_args=extra, n=1)
            async for _output in engine.state.engine_client.generate([], sampling_params=params, _request_id="1"):
                pass

    for path, headers in [("audio/transcriptions", GATEWAY), ("audio/translations", GATEWAY), ("other", ())]:
        got.clear()
        scope = {"type": "http", "method": "POST", "path": f"/v1/{path}", "app": engine}
        scope["headers"] = [*headers, (b"x-gateway-usage", b"gw a - i 1")]
        whole = Usage(steering.Steering(app), str(tmp_path), "closed") if count else steering.Steering(app)
        asyncio.run(whole(scope, None, None))
        assert got == [{"a": 1} if headers else {**dict.fromkeys(steering.FIELDS, "x"), "a": 1}, None]


def test_a_form_and_a_recording_are_handed_on():
    form = (b"content-type", b"multipart/form-data; boundary=b")
    assert ask(b'--b\r\n"priority"', [*GATEWAY, form], "/v1/other")[0][1] == b'--b\r\n"priority"'
    assert ask(b"\0\0\0\0", path="/v1/audio/transcriptions")[0][1] == b"\0\0\0\0"


def test_without_a_gateway_a_site_may_set_priorities():
    assert json.loads(ask({**PLAIN, "priority": 5}, headers=[])[0][1])["priority"] == 5


def test_what_another_class_judges_is_kept():
    body = {**PLAIN, steering.PLACE: {"a": 1}, "priority": 5}
    assert json.loads(ask(body, kept=(steering.PLACE,))[0][1]) == {**PLAIN, steering.PLACE: {"a": 1}}
