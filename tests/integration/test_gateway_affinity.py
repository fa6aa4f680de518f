# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HAProxy sends the requests of one conversation to one server."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter

import pytest

from tests.fakes.gateways import HAPROXY, KEY, client, gateway, plan, until
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"
OTHER = "other-" * 6


@contextlib.contextmanager
def replicas(directory, engines, affinity, names=None, **more):
    """A gateway in front of replicas; ``to`` sends a request and returns the replica that got it."""
    names = names or [f"chat-{n}" for n in range(1, len(engines) + 1)]
    plans = {name: plan(each.server_port) for name, each in zip(names, engines)}
    options = {"services": {"chat": {"affinity": affinity}}, **more}
    directory.mkdir(exist_ok=True)
    with gateway(directory, [], [client(), client("bob", OTHER)], plans=plans, options=options) as found:

        def to(body, path=CHAT, key=KEY, **headers):
            for each in engines:
                each.asked.clear()
            # HAProxy counts a request for a moment after its answer, and one is more than the share of an idle server.
            until(lambda: found.stat("BACKEND", "scur") == "0")
            assert found.ask("POST", path, key, json.dumps(body).encode(), **headers)[0] == 200
            (name,) = [name for name, each in zip(names, engines) if each.asked]
            return name

        found.to = to
        yield found


@pytest.fixture(scope="module")
def engines():
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(engine()) for _n in range(4)]


@pytest.fixture(scope="module")
def by_prefix(tmp_path_factory, engines):
    with replicas(tmp_path_factory.mktemp("prefix"), engines, "prefix") as found:
        yield found


def talk(number, turns=1, system="You are kind."):
    """Return the body of a conversation's last request."""
    first = [{"role": "system", "content": system}, {"role": "user", "content": f'question {number} "a\\ {{[ \\"'}]
    more = [{"role": role, "content": f"turn {turn}"} for turn in range(turns) for role in ("assistant", "user")]
    return {"messages": [*first, *more], "model": "m"}


def test_each_turn_of_a_conversation_goes_to_one_server(by_prefix):
    first = {number: by_prefix.to(talk(number)) for number in range(60)}
    assert {number: by_prefix.to(talk(number, turns=9)) for number in range(60)} == first
    # 15 for each; none is left out.
    assert len(set(first.values())) == 4 and min(Counter(first.values()).values()) >= 3


@pytest.mark.parametrize("form", ["messages", "input", "input text", "prompt", "messages of anthropic", "large"])
def test_each_api_has_its_conversations(by_prefix, form):
    def body(number, turns):
        said = talk(number, turns)["messages"]
        if form == "input":
            return {"input": said}, "/v1/responses"
        if form == "input text":
            return {"input": f"question {number}", "max_output_tokens": turns}, "/v1/responses"
        if form == "prompt":
            return {"prompt": f"question {number}", "max_tokens": turns}, "/v1/completions"
        if form == "messages of anthropic":
            part = {"type": "text", "text": f"question {number}"}
            # The mark is on the last message.
            part.update({"cache_control": {"type": "ephemeral"}} if turns == 1 else {})
            return {"messages": [{"role": "user", "content": [part]}, *said[2 : 2 * turns]]}, "/v1/messages"
        return {"messages": [*said, {"role": "user", "content": "x" * 300_000 * (form == "large")}]}, CHAT

    first = [by_prefix.to(*body(number, 1)) for number in range(20)]
    assert [by_prefix.to(*body(number, 5)) for number in range(20)] == first and len(set(first)) > 1


def test_a_session_comes_before_the_text(by_prefix):
    named = [by_prefix.to({**talk(number), "prompt_cache_key": "s1"}) for number in range(12)]
    assert set(named) == {by_prefix.to(talk(99), **{"X-Session-Id": "s1"})}
    assert set(named) == {by_prefix.to({"prompt_cache_key": "s1", "messages": []}, session_id="")}
    for header in ("X-Claude-Code-Session-Id", "Session-Id", "session_id"):
        assert set(named) == {by_prefix.to(talk(number), **{header: "s1"}) for number in range(5)}


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"messages": [{"role"', b"\0" * 70_000, b'{"messages": 3}'])
def test_a_request_without_a_conversation_is_served(by_prefix, body):
    assert {by_prefix.ask("POST", CHAT, KEY, body)[0] for _n in range(3)} == {200}
    assert by_prefix.ask("GET", "/v1/models", KEY)[0] == 200


def test_requests_without_a_session_are_distributed(tmp_path, engines):
    with replicas(tmp_path, engines, "session") as found:
        assert len({found.to(talk(1)) for _n in range(40)}) == 4
        assert len({found.to(talk(n), **{"X-Session-Id": "s1"}) for n in range(10)}) == 1


def test_a_client_has_its_server(tmp_path, engines):
    with replicas(tmp_path, engines, "client") as found:
        for key in (KEY, OTHER):
            assert len({found.to(talk(number), key=key) for number in range(10)}) == 1


def test_a_drained_or_dead_server_moves_its_own_conversations_only(tmp_path, engines):
    with replicas(tmp_path, engines, "prefix") as found:
        before = {number: found.to(talk(number)) for number in range(60)}
        for state in ("drain", "maint", "down"):
            engines[1].healthy = state != "down"
            if engines[1].healthy:
                found.tell(f"set server chat/gw--chat-2 state {state}")
            until(lambda: found.state("gw--chat-2").startswith(state.upper()))  # noqa: B023
            after = {number: found.to(talk(number)) for number in range(60)}
            assert {number for number in before if after[number] != before[number]} == {
                number for number, name in before.items() if name == "chat-2"
            }
            # They do not all go to the same one.
            assert len({after[number] for number, name in before.items() if name == "chat-2"}) > 1
            engines[1].healthy = True
            found.tell("set server chat/gw--chat-2 state ready")
            until(lambda: found.state("gw--chat-2") == "UP")
            assert {number: found.to(talk(number)) for number in range(60)} == before


def test_two_gateways_agree_and_a_new_replica_takes_only_its_share(tmp_path, engines):
    names = ["chat-1", "chat-3", "chat-5"]
    with replicas(tmp_path / "one", engines[:3], "prefix", names) as found:
        before = {number: found.to(talk(number)) for number in range(80)}
    again = [engines[2], engines[3], engines[0], engines[1]]
    with replicas(tmp_path / "two", again, "prefix", ["chat-5", "chat-2", "chat-1", "chat-3"]) as found:
        after = {number: found.to(talk(number)) for number in range(80)}
    moved = {number for number in before if after[number] != before[number]}
    assert {after[number] for number in moved} == {"chat-2"} and 8 <= len(moved) <= 36


def test_drained_servers_stay_drained_when_affinity_is_switched_on(tmp_path, engines):
    with replicas(tmp_path, engines, "none") as found:
        found.tell("set server chat/gw--chat-3 state drain")
        found.more["options"]["services"] = {"chat": {"affinity": "prefix"}}
        found.save()
        found.write()
        found.reload()
        until(lambda: "balance hash" in (found.directory / "haproxy.cfg").read_text())
        assert found.state("gw--chat-3").startswith("DRAIN")
        assert {found.to(talk(number)) for number in range(40)} == {"chat-1", "chat-2", "chat-4"}


def test_conversations_are_spread_evenly(tmp_path, engines):
    with replicas(tmp_path, engines, "prefix") as found:
        homes = Counter(found.to(talk(number)) for number in range(1000))
    # With HAProxy's own weight of 1 one of them gets 324.
    assert len(homes) == 4 and max(homes.values()) <= 1.12 * 250, homes


def test_a_server_gets_no_more_than_its_share_at_the_same_time(tmp_path, engines):
    with replicas(tmp_path, engines, "prefix") as found:
        home = found.to(talk(1))
        body = json.dumps({**talk(1), "wait": 1}).encode()
        threads = [threading.Thread(target=found.ask, args=("POST", CHAT, KEY, body)) for _n in range(24)]
        for each in engines:
            each.asked.clear()
            each.freed.clear()
        for thread in threads:
            thread.start()
        until(lambda: sum(len(each.asked) for each in engines) == len(threads))
        counts = {f"chat-{n}": len(each.asked) for n, each in enumerate(engines, 1)}
        for each in engines:
            each.freed.set()
            each.asked.clear()
        for thread in threads:
            thread.join()
        # Six are the mean.
        assert max(counts.values()) <= 12 and counts[home] == max(counts.values()), counts
