# SPDX-License-Identifier: GPL-3.0-or-later
"""How a request ends whose body does not come."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import (
    arrival_host,
    availability_host,
    routed_host,
)
from ansible_collections.baremetal.inference.plugins.module_utils.middleware.asgi import read_body, send_answer

PART = {"type": "http.request", "body": b"x", "more_body": True}
LAST = {"type": "http.request", "body": b"x", "more_body": False}


@pytest.fixture(autouse=True)
def impatient(monkeypatch, tmp_path):
    """Have a body come within 0.3 seconds, and then with 1,000 bytes a second."""
    monkeypatch.setattr(arrival_host, "FIRST", 0.3)
    monkeypatch.setattr(arrival_host, "RATE", 1000)
    monkeypatch.setattr(availability_host, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AVAILABILITY_DIRECTORY", str(tmp_path))


async def vllm(scope, receive, send):
    """Answer as FastAPI does: 400 where the body does not come to its end."""
    body = await read_body(receive)
    await send_answer(send, 400 if body is None else 200, b"%d" % len(body or b""))


def ask(parts, app=None, path="/v1/completions", pause=0.1):
    """Send the parts of a request, one after each pause and then none; return status, body, and the headers."""
    sent, left = [], list(parts)

    async def receive():
        await asyncio.sleep(pause if left else 60)
        return left.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    asyncio.run(asyncio.wait_for((app or availability_host.Availability(vllm))(scope, receive, send), 10))
    assert len(sent) == 2
    return sent[0]["status"], sent[1]["body"], dict(sent[0]["headers"])


@pytest.mark.parametrize("parts", [[], [PART] * 90], ids=["silence", "a byte now and then"])
def test_a_body_that_does_not_come_is_answered_408(parts):
    began = time.monotonic()
    status, body, headers = ask(parts)
    assert status == 408 and json.loads(body)["error"]["code"] == "request_timeout"
    assert headers[b"connection"] == b"close" and time.monotonic() - began < 5


def test_the_error_has_the_form_of_the_api():
    assert json.loads(ask([], path="/v1/messages")[1])["type"] == "error"


def test_a_long_body_has_time_for_its_length():
    part = {**PART, "body": b"x" * 150}
    assert ask([*[part] * 9, LAST])[:2] == (200, b"1351")


def test_nothing_ends_while_the_answer_is_awaited():
    """The time is for the body only."""

    async def slow(scope, receive, send):
        await read_body(receive)
        done, _pending = await asyncio.wait([asyncio.ensure_future(receive())], timeout=0.6)
        await send_answer(send, 200, b"%d" % len(done))

    assert ask([LAST], availability_host.Availability(slow))[:2] == (200, b"0")


@pytest.mark.parametrize("gate", ["", "chips0"])
def test_a_slow_request_is_no_open_one_afterwards(monkeypatch, gate):
    monkeypatch.setenv("RESIDENTS", gate)
    found = availability_host.Availability(vllm)
    assert ask([PART] * 90, found)[0] == 408
    assert found.open == 0 and (found.gate is None or found.gate.running == 0)


def test_a_decode_host_reads_no_body_for_long_either(monkeypatch):
    monkeypatch.setenv("PREFILL_HOSTS", "10.0.0.3")
    assert ask([PART] * 90, routed_host.Routed(vllm))[0] == 408
