# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that change the adapters of an engine; tests/unit/plugins/modules has an engine that answers them."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.adapters_host import EngineAdapters
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.adapters import AdapterError


class Client:
    """Answers with one reply after the other, and remembers the requests and the seconds that each may take."""

    def __init__(self, *replies):
        self.replies, self.asked, self.seconds = list(replies), [], []

    def request(self, method, path, payload, timeout):
        self.asked.append((method, path, payload))
        self.seconds.append(timeout)
        return self.replies.pop(0)


def cards(**adapters):
    data = [{"id": "base", "root": "/m", "parent": None}]
    data += [{"id": name, "root": path, "parent": "base"} for name, path in adapters.items()]
    return reply(json.dumps({"data": data}))


def reply(text, status=200, failure=""):
    return Reply(status, ((0.0, text.encode()),), 0.0, failure)


def test_all_requests_share_one_deadline(tmp_path):
    client = Client(cards(), reply("ok"), cards(a="/a"))
    EngineAdapters(client, str(tmp_path), 10).apply({"a": "/a"})
    assert client.seconds == sorted(client.seconds, reverse=True) and 9 < client.seconds[-1] <= 10


def test_nothing_is_sent_after_the_deadline(tmp_path):
    client = Client()
    engine = EngineAdapters(client, str(tmp_path), -1)
    with pytest.raises(AdapterError, match="GET /v1/models was not sent: the -1 s for all changes are over"):
        engine.loaded()
    assert client.asked == []


def test_requests_wait_only_while_an_adapter_is_replaced(tmp_path):
    held, answers = [], Client(cards(a="/1"), reply("ok"), reply("ok"), reply("ok"), cards(a="/2", b="/b"))
    request = answers.request

    def watched(method, path, payload, timeout):
        held.append((path.rpartition("/")[2], (tmp_path / "hold").exists()))
        return request(method, path, payload, timeout)

    answers.request = watched
    (tmp_path / "hold").symlink_to(tmp_path / "elsewhere")
    EngineAdapters(answers, str(tmp_path), 10, settle=0).apply({"a": "/2", "b": "/b"})
    load, unload = "load_lora_adapter", "unload_lora_adapter"
    assert held == [("models", False), (load, False), (unload, True), (load, True), ("models", False)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Reply(0, (), 0.0, "no answer within 5 s"), "GET /v1/models failed: no answer within 5 s"),
        (reply("x", failure="it broke off"), "GET /v1/models answered 200: it broke off"),
        (reply("no JSON"), "GET /v1/models: Expecting value"),
        (reply("[" * 100_000), "GET /v1/models: it is nested too deeply"),
        (reply('{"error": {"message": "a\\u001b[31mb"}}', 503), r"answered 503: a\\x1b\[31mb"),
        (reply("x" * 1000, 500), "answered 500: x{200}\\.\\.\\."),
    ],
)
def test_what_an_engine_answers_is_told_in_one_line(tmp_path, answer, message):
    with pytest.raises(AdapterError, match=message):
        EngineAdapters(Client(answer), str(tmp_path), 10).loaded()
