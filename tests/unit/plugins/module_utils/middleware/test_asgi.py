# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests and answers as ASGI has them."""

from __future__ import annotations

import asyncio

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware.asgi import (
    read_body,
    replay,
    route_of,
    send_answer,
    with_headers,
)


def from_list(messages):
    async def receive():
        return messages.pop(0)

    return receive


def test_a_body_is_read_whole_and_replayed_once():
    parts = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}]
    assert asyncio.run(read_body(from_list(parts))) == b"ab"
    assert asyncio.run(read_body(from_list([{"type": "http.disconnect"}]))) is None

    async def twice(receive):
        return [await receive(), await receive()]

    first, second = asyncio.run(twice(replay(b"ab", from_list([{"type": "http.disconnect"}]))))
    assert (first["body"], first["more_body"], second["type"]) == (b"ab", False, "http.disconnect")


def test_an_answer_is_whole_and_headers_are_added_to_its_start_only():
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(send_answer(with_headers(send, (b"x", b"1")), 503, b"no\n", b"text/plain", (b"y", b"2")))
    start, body = sent
    assert (start["status"], body) == (503, {"type": "http.response.body", "body": b"no\n"})
    assert start["headers"] == [(b"content-type", b"text/plain"), (b"content-length", b"3"), (b"y", b"2"), (b"x", b"1")]


@pytest.mark.parametrize(
    ("path", "root", "route"),
    [("/v1/x", "", "/v1/x"), ("/a/v1/x", "/a", "/v1/x"), ("/av1/x", "/a", "/av1/x")],
)
def test_a_route_is_without_the_root_path(path, root, route):
    assert route_of({"path": path, "root_path": root}) == route
