# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines that answer /health and serve nothing: the agent takes them out of a real HAProxy, and lets them in again."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.planned_stops_host import read_planned_stops

from tests.fakes.gateways import HANGS, HAPROXY, KEY, free_port, gateway, until
from tests.integration.gateway_engines import agent, engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


def test_an_engine_that_is_healthy_and_serves_nothing_is_taken_out_and_comes_back(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found:
            with agent(tmp_path, port, ports):
                first.stuck.set()
                first.metrics["vllm:num_requests_running"] = 3.0
                until(lambda: found.state("gw--chat-1") == "DOWN (agent)")
                assert found.state("gw--chat-2") == "UP"
                assert {found.ask("GET", "/v1/models", KEY)[0] for _n in range(4)} == {200}
                assert not any(path == "/v1/models" for _m, path, _h, _n in first.asked)
                # At its end, or it would be stuck again before a busy machine has looked.
                first.stuck.clear()
                first.metrics["vllm:generation_tokens_total"] += 1
                first.metrics["vllm:num_requests_running"] = 0.0
                until(lambda: found.state("gw--chat-1") == "UP")
                found.tell("set server chat/gw--chat-2 state drain")
            # Without its agent a server stays what it was.
            time.sleep(2.5)
            assert found.state("gw--chat-1") == "UP" and found.state("gw--chat-2").startswith("DRAIN")


def test_the_servers_of_one_instance_are_in_service_together_only(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports, group="h1"):
            until(lambda: found.ask("GET", "/v1/models", KEY)[0] == 200)
            second.healthy = False
            until(lambda: found.state("gw--chat-2") == "DOWN")
            until(lambda: found.state("gw--chat-1") == "DOWN (agent)")
            assert found.ask("GET", "/v1/models", KEY)[0] == 503
            # Neither keeps the other one out.
            second.healthy = True
            until(lambda: found.state("gw--chat-1") == found.state("gw--chat-2") == "UP")
            assert found.ask("GET", "/v1/models", KEY)[0] == 200


def test_a_stop_that_was_asked_for_is_told_from_a_fault(tmp_path):
    """HAProxy counts all of them as the same."""
    port, name = free_port(), "gw--chat-1"
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]

        def goes_down_and_up(found):
            first.healthy = False
            until(lambda: found.state(name).startswith("DOWN"))
            first.healthy = True
            until(lambda: not found.state(name).startswith("DOWN"))

        with gateway(tmp_path, ports, agent_port=port) as found:
            with agent(tmp_path, port, ports):
                until(lambda: found.state(name) == "UP")
                goes_down_and_up(found)
                found.tell(f"set server chat/{name} state drain")
                until(lambda: found.state(name).startswith("DRAIN"))
                time.sleep(1)
                goes_down_and_up(found)
                found.tell(f"set server chat/{name} state ready")
                until(lambda: found.state(name) == "UP")
                # As vLLM answers while systemd stops it.
                first.healthy = 404
                until(lambda: found.state(name).startswith("NOLB"))
                time.sleep(1)
                goes_down_and_up(found)
                until(lambda: json.loads((tmp_path / "stops.json").read_text()) == {name: [3, 2]})
            with agent(tmp_path, port, ports):
                goes_down_and_up(found)
                until(lambda: json.loads((tmp_path / "stops.json").read_text()) == {name: [4, 2]})
            downs = {row["svname"]: int(row["chkdown"]) for row in found.stats() if row["svname"] == name}
            assert downs == {name: 4} and read_planned_stops(downs, str(tmp_path)) == {name: 2}


def test_an_idle_engine_that_gives_no_token_is_taken_out_and_comes_back(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports, probe_after=1.0):
            first.stuck.set()
            until(lambda: found.state("gw--chat-1") == "DOWN (agent)")
            until(lambda: found.state("gw--chat-2") == "UP")
            until(lambda: any(path == "/v1/completions" for _m, path, _h, _n in second.asked))
            first.stuck.clear()
            first.freed.set()
            until(lambda: found.state("gw--chat-1") == "UP")


def test_an_engine_that_shows_requests_which_were_cut_off_comes_back(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports):
            # Its figures stand still, and it gives a token to whoever asks.
            first.metrics["vllm:num_requests_running"] = 3.0
            until(lambda: any(path == "/v1/completions" for _m, path, _h, _n in first.asked))
            until(lambda: found.state("gw--chat-1") == "UP")


def test_what_is_stuck_stays_out_while_a_new_agent_knows_nothing(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        first.stuck.set()
        first.metrics["vllm:num_requests_running"] = 3.0
        with gateway(tmp_path, ports, agent_port=port) as found:
            with agent(tmp_path, port, ports):
                until(lambda: found.state("gw--chat-1") == "DOWN (agent)")
            with agent(tmp_path, port, ports, stuck_after=600):
                time.sleep(3)
                assert found.state("gw--chat-1") == "DOWN (agent)"
                assert found.state("gw--chat-2") == "UP"


def post(found):
    return found.ask("POST", "/v1/chat/completions", KEY, b'{"messages": []}')[0]


def stream(found):
    """Begin a stream and return its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
    connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    answer.readline()
    return answer


def test_an_engine_that_refuses_every_request_is_taken_out_and_completes_its_stream(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports):
            until(lambda: found.state("gw--chat-1") == found.state("gw--chat-2") == "UP")
            found.tell("set server chat/gw--chat-2 state drain")
            first.tokens, first.pause = 100, 0.1
            answer = stream(found)
            found.tell("set server chat/gw--chat-2 state ready")
            first.broken = True
            first.metrics["vllm:num_requests_running"] = 1.0

            def out():
                first.metrics["vllm:generation_tokens_total"] += 1
                post(found)
                return found.state("gw--chat-1") == "DOWN (agent)"

            until(out)
            assert {post(found) for _n in range(10)} == {200}
            assert answer.read().count(b"data:") == 99
            first.broken = False
            until(lambda: found.state("gw--chat-1") == "UP")


def test_an_engine_that_refuses_every_request_stays_while_no_other_is_better(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        first.broken = second.broken = True
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports):
            until(lambda: found.state("gw--chat-1") == found.state("gw--chat-2") == "UP")
            # The agent counts from its first look on.
            until((tmp_path / "unusable").exists)
            assert {post(found) for _n in range(20)} == {500}
            time.sleep(3)
            assert found.ask("GET", "/v1/models", KEY)[0] == 200
            second.broken = False
            until(lambda: found.state("gw--chat-1") == "DOWN (agent)")
            assert {post(found) for _n in range(5)} == {200}
            second.healthy = False
            until(lambda: found.state("gw--chat-1") == "UP")


def test_errors_of_one_client_take_no_engine_out(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        # What the client asks fails, and what the agent asks does not.
        first.broken = second.broken = "/v1/chat/completions"
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports):
            until(lambda: found.state("gw--chat-1") == found.state("gw--chat-2") == "UP")
            # The agent counts from its first look on.
            until((tmp_path / "unusable").exists)
            assert {post(found) for _n in range(20)} == {500}
            before = len(first.asked)
            until(lambda: any(path == "/v1/completions" for _m, path, _h, _n in first.asked[before:]))
            assert found.state("gw--chat-1") == found.state("gw--chat-2") == "UP"


def test_requests_of_an_engine_that_hangs_are_ended(tmp_path):
    port = free_port()
    with engine() as first, ThreadPoolExecutor(1) as pool:
        ports = [first.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports):
            until(lambda: found.state("gw--chat-1") == "UP")
            waiting = pool.submit(found.ask, "POST", "/v1/completions", KEY, b'{"wait": 1}')
            assert first.running.acquire(timeout=HANGS)
            first.stuck.set()
            first.metrics["vllm:num_requests_running"] = 1.0
            # HAProxy 3.0 closes the connection without an answer.
            with contextlib.suppress(http.client.RemoteDisconnected):
                status, _headers, body = waiting.result(HANGS)
                assert (status, json.loads(body)["error"]["type"]) in ((502, "server_error"), (503, "server_error"))


def test_a_shared_address_is_kept_while_haproxy_has_servers(tmp_path):
    port = free_port()
    with engine() as first:
        ports = [first.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports):
            written = tmp_path / "unusable"
            until(written.exists)
            until(lambda: found.state("gw--chat-1") == "UP")
            assert written.read_text() == "0\n"
            found.reload()
            time.sleep(2)
            assert written.read_text() == "0\n"
            found.tell("set server chat/gw--chat-1 state maint")
            until(lambda: written.read_text() == "1\n")
            found.tell("set server chat/gw--chat-1 state ready")
            until(lambda: written.read_text() == "0\n")
            found.stop()
            until(lambda: written.read_text() == "1\n")
