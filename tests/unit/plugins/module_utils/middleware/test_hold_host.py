# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that wait while an adapter is replaced: the role's middleware in front of an engine with adapters."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
import urllib.request

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import hold_host

from tests.fakes.adapter_engine import adapter_engine


def chat(engine, found, **headers):
    """Ask in the background; when the answer is there, it is in ``found`` with its time."""

    def ask():
        data = json.dumps({"model": "base"}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{engine.port}/v1/chat/completions", data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found.append((answer.status, time.monotonic()))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.fixture
def engine(tmp_path):
    with adapter_engine(tmp_path) as found:
        yield found


def test_a_request_waits_until_the_file_is_gone(engine, tmp_path):
    (tmp_path / "hold").touch()
    found, began = [], time.monotonic()
    thread = chat(engine, found)
    time.sleep(0.4)
    assert found == []
    (tmp_path / "hold").unlink()
    thread.join(60)
    assert found[0][0] == 200 and found[0][1] - began >= 0.4


def test_what_asks_for_no_adapter_does_not_wait(engine, tmp_path):
    (tmp_path / "hold").touch()
    for path in ("/v1/models", "/health"):
        with urllib.request.urlopen(f"http://127.0.0.1:{engine.port}{path}", timeout=60) as answer:
            assert answer.status == 200


def test_the_program_that_replaces_the_adapter_does_not_wait(engine, tmp_path):
    (tmp_path / "hold").touch()
    (tmp_path / "operator").write_text("a" * 64)
    data = json.dumps({"lora_name": "x", "lora_path": "/x"}).encode()
    url, headers = f"http://127.0.0.1:{engine.port}/v1/load_lora_adapter", {"operator-token": "a" * 64}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        assert answer.status == 200 and engine.adapters == {"x": "/x"}


def test_a_body_that_was_on_its_way_waits_too(engine, tmp_path):
    """vLLM looks for the model when it has the whole body."""
    body = json.dumps({"model": "base"}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", engine.port), 60) as connection:
        connection.sendall(head.encode() + body[:5])
        time.sleep(0.2)
        (tmp_path / "hold").touch()
        connection.sendall(body[5:])
        connection.settimeout(0.4)
        with pytest.raises(socket.timeout):
            connection.recv(100)
        (tmp_path / "hold").unlink()
        connection.settimeout(60)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("age", [31, -5])
def test_a_file_that_a_killed_program_has_left_keeps_nobody(engine, tmp_path, age):
    (tmp_path / "hold").touch()
    os.utime(tmp_path / "hold", (time.time() - age,) * 2)
    found = []
    chat(engine, found).join(20)
    assert found and found[0][0] == 200


def test_many_waiting_requests_look_as_often_as_one(tmp_path, monkeypatch):
    monkeypatch.setenv(hold_host.operator_host.VARIABLE, "1")
    (tmp_path / "hold").touch()
    hold, looks = hold_host.Hold(str(tmp_path)), []
    monkeypatch.setattr(hold_host.os, "stat", lambda path, stat=os.stat: looks.append(path) or stat(path))

    async def receive():
        return {"type": "http.request"}

    async def scenario():
        waiting = [asyncio.ensure_future(hold.delayed(receive)()) for _n in range(1000)]
        await asyncio.sleep(0.5)
        waiting.pop().cancel()
        (tmp_path / "hold").unlink()
        await asyncio.wait_for(asyncio.gather(*waiting), 10)

    asyncio.run(scenario())
    # At the beginning and the end each looks for itself.
    assert 2000 <= len(looks) < 2100


def test_an_instance_without_the_guard_never_waits(tmp_path):
    (tmp_path / "hold").touch()
    with adapter_engine(tmp_path, guard=False) as engine:
        found = []
        chat(engine, found).join(20)
        assert found and found[0][0] == 200
