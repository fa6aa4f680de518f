# SPDX-License-Identifier: GPL-3.0-or-later
"""One instance, which may answer anything."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.api_host import Answer
from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd import Unit
from ansible_collections.baremetal.inference.plugins.module_utils.residents import member_host
from ansible_collections.baremetal.inference.plugins.module_utils.residents.member_host import CallError, Member, News

STATUS = {
    "process": "a", "version": 3, "asleep": True, "closed": True, "running": 0, "waiting": 2, "waited": 1, "quiet": 1,
}  # fmt: skip


@pytest.fixture
def said():
    return []


@pytest.fixture
def member(said, monkeypatch):
    monkeypatch.setattr(member_host, "PAUSE", 0.01)
    monkeypatch.setattr(member_host, "ABSENT", 0.01)
    found = Member("chat", News(), said.append)
    yield found
    found.left = True


def answering(monkeypatch, *bodies):
    """Let the instance give these answers, the last one for ever."""
    left = list(bodies)

    def call(self, _method, path, _timeout):
        if path == "/is_sleeping":
            return Answer(200, {}, b'{"is_sleeping": true}')
        body = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(body, Exception):
            raise body
        return Answer(200, {}, body if isinstance(body, bytes) else json.dumps(body).encode())

    monkeypatch.setattr(Member, "call", call)


def until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


ODD = [[], {}, None, {**STATUS, "running": "many"}, {**STATUS, "version": None}, b"[" * 100_000, b"no JSON", b"\xff"]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:20])
def test_an_odd_answer_is_reported_and_the_question_is_repeated(member, said, monkeypatch, odd):
    answering(monkeypatch, odd, STATUS)
    member.start()
    until(lambda: member.answers)
    assert said[0].startswith("The question to chat failed, and is tried again: ") and member.is_alive()
    assert member.status.waiting == 2 and member.asleep is True


def test_an_instance_that_is_down_is_nothing_to_report(member, said, monkeypatch):
    answering(monkeypatch, CallError("no answer"), CallError("no answer"), STATUS)
    member.start()
    until(lambda: member.answers)
    assert said == []


def test_an_odd_answer_after_a_call_is_the_reason_of_its_failure(member, monkeypatch):
    answering(monkeypatch, [])
    with pytest.raises(CallError, match="GET /residents: found list, expected a mapping"):
        member.ask_status()


def test_an_older_answer_does_not_replace_a_newer_one(member, monkeypatch):
    answering(monkeypatch, STATUS)
    member.take(STATUS)
    member.take({**STATUS, "version": 2, "waiting": 9})
    assert member.status.waiting == 2
    member.take({**STATUS, "process": "b", "version": 0, "waiting": 7})
    assert member.status.waiting == 7


@pytest.mark.parametrize(
    ("document", "asleep"),
    [
        # Another process of the middleware knows nothing of a sleep before it, so vLLM is asked.
        ({"process": "b", "asleep": False}, True),
        ({"asleep": None}, True),
        # It has seen it wake.
        ({"asleep": False}, False),
    ],
)
def test_vllm_is_asked_whether_it_sleeps_where_the_middleware_cannot_know(member, monkeypatch, document, asleep):
    answering(monkeypatch, STATUS)
    member.take(STATUS)
    member.take({**STATUS, "version": 4, **document})
    assert member.asleep is asleep


def test_another_run_of_the_unit_has_begun_awake(member, monkeypatch):
    answering(monkeypatch, STATUS)
    member.take(STATUS)
    assert member.view(Unit("active", "running", "1")).asleep is True
    member.answers = False
    assert member.view(Unit("active", "running", "1")).asleep is True
    assert member.view(Unit("activating", "start", "2")).asleep is None


def test_the_key_is_read_as_systemd_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(member_host, "CONFIG_DIR", str(tmp_path))
    assert member_host.read_key("chat") == ""
    (tmp_path / "chat.secrets").write_text('# managed\nVLLM_API_KEY="k\\"\\$\\\\1"\n')
    assert member_host.read_key("chat") == 'k"$\\1'
