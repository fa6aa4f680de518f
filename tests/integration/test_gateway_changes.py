# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes while a real HAProxy serves: keys, configuration, workers, servers that die."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import tool_host as tool
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import map_text, maps_of

from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, gateway, until
from tests.fakes.wheelhouse import run_module
from tests.integration.gateway_engines import engine

WRONG = "wrong-key-" + "fedcba9876543210" * 2

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


def run_keys(found, clients, **more):
    # Who reads the maps is not there on every machine that runs the tests.
    given = {"directory": found.paths["maps"], "socket": found.paths["socket"], "group": "root", **more}
    return run_module("gateway_keys", clients=[each.as_dict() for each in clients], **given)


def test_keys_change_without_a_reload_and_without_cutting_a_stream(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        server.tokens, server.pause = 30, 0.1
        worker = found.tell("show info").split("Pid: ")[1].split()[0]
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
        connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        answer.readline()
        wanted = [client("bob", WRONG, rate=2)]
        checked = run_keys(found, wanted, _ansible_check_mode=True)
        assert checked["changed"] and found.ask("GET", "/v1/models", WRONG)[0] == 401
        result = run_keys(found, wanted)
        assert result["changed"] and (result["added"], result["removed"]) == (["bob"], ["alice"]), result
        assert found.ask("GET", "/v1/models", KEY)[0] == 401
        asked = [found.ask("GET", "/v1/models", WRONG)[0] for _n in range(5)]
        # A minute that ends meanwhile allows two more.
        assert asked[:2] == [200, 200] and asked[4] == 429
        assert answer.read().count(b"data:") == 29
        connection.close()
        assert found.tell("show info").split("Pid: ")[1].split()[0] == worker
        assert not run_keys(found, wanted)["changed"]
        for name, entries in maps_of(wanted).items():
            assert (tmp_path / "maps" / name).read_text() == map_text(entries)
        # Changed on the disk alone, as by a run that was killed: the next one tells HAProxy all the same.
        found.tell(f"clear map {found.paths['maps']}/clients.map")
        assert run_keys(found, wanted)["changed"]
        assert found.ask("GET", "/v1/models", WRONG)[0] in (200, 429)
        assert run_keys(found, [client("bob", WRONG, rate=9)])["changed"]
        assert found.ask("GET", "/v1/models", WRONG)[0] == 200


def test_one_client_ends_while_the_others_stay_and_a_client_that_a_hand_added_is_listed(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        server.tokens, server.pause = 20, 0.1
        assert run_keys(found, [client(), client("bob", WRONG, team="finance")])["changed"]
        # At the socket alone, as somebody did who should not have been able to.
        alien = client("eve", "eves-key-" + "0" * 32)
        found.tell(f"add map {found.paths['maps']}/clients.map {alien.sha256[0]} eve")
        given = {"directory": found.paths["maps"], "socket": found.paths["socket"], "group": "root"}
        listed = run_module("gateway_keys", **given)
        assert not listed["changed"] and sorted(listed["present"]) == ["alice", "bob", "eve"]
        assert (listed["present"]["bob"]["team"], listed["present"]["bob"]["expires"]) == ("finance", "never")
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
        connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {WRONG}"})
        answer = connection.getresponse()
        answer.readline()
        assert run_module("gateway_keys", remove="bob", _ansible_check_mode=True, **given)["changed"]
        assert found.ask("GET", "/v1/models", WRONG)[0] == 200
        removed = run_module("gateway_keys", remove="bob", _ansible_diff=True, **given)
        assert removed["removed"] == ["bob"] and "bob" not in removed["diff"]["after"]
        assert [found.ask("GET", "/v1/models", key)[0] for key in (WRONG, KEY)] == [401, 200]
        assert answer.read().count(b"data:") == 19
        connection.close()
        # What is in no file went with it.
        assert list(run_module("gateway_keys", **given)["present"]) == ["alice"]
        assert not run_module("gateway_keys", remove="bob", **given)["changed"]


def test_a_key_ends_by_itself_and_cuts_no_stream(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        server.tokens, server.pause = 100_000, 0.1
        assert run_keys(found, [client(ends=2**31), client("bob", WRONG)])["changed_clients"] == ["alice"]
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
        connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        ends = int(time.time()) + 3
        run_keys(found, [client(ends=ends), client("bob", WRONG)])
        assert found.ask("GET", "/v1/models", KEY)[0] == 200 or time.time() >= ends
        until(lambda: found.ask("GET", "/v1/models", KEY)[0] == 401)
        assert time.time() >= ends
        ended = time.monotonic()
        for path, form in (("/v1/chat/completions", "invalid_request_error"), ("/v1/messages", "authentication_error")):
            status, headers, body = found.ask("POST", path, KEY)
            error = json.loads(body)["error"]
            assert (status, error["type"], error["code"]) == (401, form, "key_expired"), body
            assert headers["www-authenticate"] == "Bearer"
            expected = time.strftime("The API key expired on %Y-%m-%d at %H:%M:%S UTC.", time.gmtime(ends))
            assert error["message"] == expected
        assert found.ask("GET", "/v1/models", WRONG)[0] == 200
        while float(answer.readline().split()[1]) <= ended:
            answer.readline()
        server.freed.set()
        answer.read()
        connection.close()
        assert run_keys(found, [client(ends=int(time.time()) + 600), client("bob", WRONG)])["changed"]
        assert found.ask("GET", "/v1/models", KEY)[0] == 200


def test_a_drained_server_stays_drained_over_reloads_restarts_and_other_ports(tmp_path):
    with engine() as first, engine() as second, gateway(tmp_path, [first.server_port, second.server_port]) as found:
        found.tell("set server chat/gw--chat-1 state drain")
        found.reload()
        assert found.state("gw--chat-1").startswith("DRAIN")
        found.save()
        found.stop()
        found.start()
        assert found.state("gw--chat-1").startswith("DRAIN")
        for _n in range(4):
            assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert first.asked == []
        found.ports = [second.server_port, first.server_port]
        found.write()
        found.reload()
        assert found.state("gw--chat-1").startswith("DRAIN")
        before = len(second.asked)
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert (len(first.asked), len(second.asked)) == (1, before)
        found.tell("set server chat/gw--chat-1 state ready")
        found.reload()
        until(lambda: found.state("gw--chat-1") == "UP")


def test_a_reload_cuts_no_stream(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        server.tokens, server.pause = 30, 0.1
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
        connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        answer.readline()
        found.reload()
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert answer.read().count(b"data:") == 29
        connection.close()


def test_a_worker_that_cannot_start_is_told_and_the_next_run_tries_again(tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "START", 5)
    with engine() as server, gateway(tmp_path, [server.server_port]) as found, socket.socket() as other:
        told = {"ports": {}, "socket": found.paths["socket"], "files": [str(tmp_path / "haproxy.cfg"), "/no/such"]}
        assert run_module("gateway_preflight", **told)["unread"] == []
        other.bind(("127.0.0.1", 0))
        other.listen()
        served, found.port = found.port, other.getsockname()[1]
        found.write()
        # The worker tells when it began in whole seconds.
        os.utime(tmp_path / "haproxy.cfg", (time.time() + 2, time.time() + 2))
        with pytest.raises(
            SystemExit, match="HAProxy still runs with its old configuration: no new worker started within 5 s"
        ):
            tool.replace(found.paths["socket"], str(found.process.pid))
        until(lambda: "cannot bind" in found.log.read_text())
        other.close()
        found.port = served
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert run_module("gateway_preflight", **told)["unread"] == [str(tmp_path / "haproxy.cfg")]
        time.sleep(2)
        found.reload()
        found.port = found.decided["services"][0]["port"]
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert run_module("gateway_preflight", **told)["unread"] == []


def test_a_server_that_is_dead_is_taken_out_and_asked_nothing(tmp_path):
    with engine() as first, engine() as second, gateway(tmp_path, [first.server_port, second.server_port]) as found:
        first.healthy = False
        until(lambda: found.state("gw--chat-1") == "DOWN", 60)
        before = len(first.asked)
        assert {found.ask("GET", "/v1/models", KEY)[0] for _n in range(4)} == {200}
        assert len(first.asked) == before
        first.healthy = True
        until(lambda: found.state("gw--chat-1") == "UP", 60)


@contextlib.contextmanager
def impatient():
    """A server that closes a kept connection after 20 ms without a request. For the first one it has time."""

    async def answer(reader, writer):
        with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            head, patience = b"", 10.0
            while b"onnection: close" not in head:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patience)
                patience = 0.02
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def test_a_request_is_not_lost_when_a_server_closes_its_idle_connections(tmp_path):
    with impatient() as port, gateway(tmp_path, [port]) as found:
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
        for number in range(300):
            connection.request("POST", "/v1/completions", b"", {"Authorization": f"Bearer {KEY}"})
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"{}")
            time.sleep(0.018 + number % 10 * 0.0003)
        connection.close()
