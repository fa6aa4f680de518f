# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway's template in a real HAProxy, in front of servers that answer everything; all on loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils._gateway_clients import map_text, maps_of

from tests.unit.gateways import HAPROXY, KEY, ROLE, client, free_port, gateway, loaded, until
from tests.unit.vllm_routes import routes
from tests.unit.wheelhouse import run_module

TOP = Path(__file__).resolve().parents[2]
ROUTES = (TOP / "tests/unit/fixtures/vllm-routes/0.32.0.txt").read_text().split("\n")[:-1]
WRONG = "wrong-key-" + "fedcba9876543210" * 2
# What of vLLM's routes a client gets with its key, and what it asks instead of a placeholder.
SERVED = {
    "GET /v1/models", "POST /v1/chat/completions", "POST /v1/completions", "POST /v1/responses",
    "GET /v1/responses/{response_id}", "POST /v1/responses/{response_id}/cancel",
}  # fmt: skip

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


class Engine(BaseHTTPRequestHandler):
    """Answers every route, as a vLLM with everything switched on would."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        length = int(self.headers.get("Content-Length") or 0)
        body = b""
        while len(body) < length:
            body += self.rfile.read(min(length - len(body), 1 << 20))
        if self.path == "/metrics":
            return self.send("".join(f'{name}{{engine="0"}} {value}\n' for name, value in server.metrics.items()))
        if self.path == "/health":
            return self.send("", 200 if server.healthy else 503)
        server.asked.append((self.command, self.path, dict(self.headers), len(body)))
        if self.path == "/v1/completions" and server.stuck.is_set():
            server.freed.wait(30)
        if b'"stream"' in body:
            return self.stream()
        server.running.release()
        if b'"wait"' in body:
            server.freed.wait(30)
        return self.send(json.dumps({"path": self.path, "bytes": len(body)}))

    do_POST = do_GET  # noqa: N815

    def send(self, text, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(self.server.tokens):
            piece = b"data: %f %d\n\n" % (time.monotonic(), number)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            time.sleep(self.server.pause)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_args):
        pass


@contextlib.contextmanager
def engine():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.daemon_threads = True
    server.asked, server.healthy, server.tokens, server.pause = [], True, 10, 0.1
    server.metrics = {"vllm:num_requests_running": 0.0, "vllm:generation_tokens_total": 1.0}
    server.stuck, server.freed, server.running = threading.Event(), threading.Event(), threading.Semaphore(0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.freed.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A gateway in front of one engine, for tests that change nothing."""
    with engine() as server, gateway(tmp_path_factory.mktemp("gateway"), [server.server_port]) as found:
        found.engine = server
        yield found


def asked_as(route):
    method, path = route.split(" ", 1)
    return method, path.replace("{response_id}", "resp_1f3")


def table(found, route):
    """Return the answers without a key, with a wrong one and with the right one."""
    method, path = asked_as(route)
    return tuple(found.ask(method, path, key)[0] for key in (None, WRONG, KEY))


def test_the_list_of_routes_is_that_of_the_release():
    packages = sorted(TOP.glob(".cache/vllm/0.32.0-*/lib/python3*/site-packages/vllm"))
    if not packages:
        pytest.skip("needs .cache/vllm/0.32.0-* (tools/lab_content.sh brings it)")
    assert routes(packages[0]) == ROUTES
    assert set(ROUTES) >= SERVED


@pytest.mark.parametrize("route", ROUTES)
def test_what_a_client_gets_of_each_route_of_vllm(one, route):
    assert table(one, route) == ((401, 401, 200) if route in SERVED else (404, 404, 404))


@pytest.mark.parametrize("route", ROUTES)
def test_another_method_is_another_route(one, route):
    method, path = asked_as(route)
    other = "GET" if method == "POST" else "POST"
    if path in ("/v1/responses/render", "/v1/responses/resp_1f3") or f"{other} {path}" in SERVED:
        return
    for each in (other, "OPTIONS", "DELETE"):
        assert one.ask(each, path, KEY)[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/../../pause", "/v1/models/..%2f..%2fpause", "/v1/models/%2e%2e/pause", "//pause", "/v1//models",
        "/V1/models", "/v1/models/", "/v1/models/.", "/v1/chat/completions/", "/v1/chat/completions/../../../pause",
        "/v1/responses/a/../../pause", "/v1/models;/pause", "/v1/models%00", "/v1/models%2f..%2f..%2fmetrics", "/",
    ],
)  # fmt: skip
def test_no_path_hides_another(one, path):
    before = len(one.engine.asked)
    assert one.ask("GET", path, KEY)[0] == 404
    assert len(one.engine.asked) == before


def test_a_model_is_asked_for_by_its_id(one):
    for path in ("/v1/models/openai/gpt-oss-20b", "/v1/models/openai%2Fgpt-oss-20b", "/v1/models?limit=1"):
        assert one.ask("GET", path, KEY)[0] == 200
        assert one.engine.asked[-1][1] == path


@pytest.mark.parametrize(
    ("target", "status"), [("{url}/v1/models", 200), ("{url}/pause", 404), ("*", 0), ("http:/pause", 0)]
)
def test_a_whole_address_in_the_request_line_is_its_path(one, target, status):
    before = len(one.engine.asked)
    with socket.create_connection(("127.0.0.1", one.port), timeout=5) as connection:
        lines = [
            f"GET {target.format(url=one.url)} HTTP/1.1",
            f"Host: 127.0.0.1:{one.port}",
            f"Authorization: Bearer {KEY}",
        ]
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    # What is no path at all is refused with 400 or 404, as the version of HAProxy has it.
    assert int(answer.split()[1]) in ((status,) if status else (400, 404)), answer
    assert [path for _method, path, _headers, _length in one.engine.asked[before:]] == (
        ["/v1/models"] if status == 200 else []
    )


def test_refusals_have_the_shape_of_the_api(one):
    for key, path, kind in ((None, "/v1/models", "invalid_api_key"), (KEY, "/pause", "not_found")):
        _status, headers, body = one.ask("GET", path, key)
        assert headers["content-type"] == "application/json"
        assert json.loads(body)["error"]["code"] == kind and json.loads(body)["error"]["message"]


def test_the_key_goes_no_further_and_is_in_no_log(one):
    one.ask("GET", f"/v1/models?api_key={WRONG}", WRONG)
    one.ask("GET", "/v1/models?x=secret-in-a-query", KEY)
    _method, _path, headers, _length = one.engine.asked[-1]
    assert "authorization" not in {name.lower() for name in headers}
    until(
        lambda: (
            'client="alice" service=chat server=gw--chat-1 method=GET path="/v1/models" status=200'
            in one.log.read_text()
        )
    )
    log = one.log.read_text()
    assert KEY not in log and WRONG not in log and "secret-in-a-query" not in log
    assert KEY not in (one.directory / "haproxy.cfg").read_text()
    assert all(KEY not in path.read_text() for path in (one.directory / "maps").iterdir())


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
def test_the_word_bearer_is_written_any_way(one, scheme):
    assert one.ask("GET", "/v1/models", None, None, Authorization=f"{scheme} {KEY}")[0] == 200


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer x {KEY}"])
def test_what_is_no_key(one, value):
    assert one.ask("GET", "/v1/models", None, None, Authorization=value)[0] == 401


def test_a_prompt_of_five_megabytes_passes(one):
    body = json.dumps({"messages": "x" * 5_000_000}).encode()
    status, _headers, answer = one.ask("POST", "/v1/chat/completions", KEY, body)
    assert (status, json.loads(answer)["bytes"]) == (200, len(body))


def test_tokens_come_as_they_are_made_for_half_a_minute(one):
    one.engine.tokens, one.engine.pause = 300, 0.1
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=10)
    connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    late = []
    for number in range(300):
        made, counted = answer.readline().split()[1:]
        assert int(counted) == number
        late.append(time.monotonic() - float(made))
        answer.readline()
    assert answer.read() == b""
    connection.close()
    # Most were on their way before the next one was made, and none waited for the end; a machine may be busy.
    assert sorted(late)[150] < 0.1 and max(late) < 10


def test_the_gateway_says_whether_it_has_servers(one):
    def health():
        connection = http.client.HTTPConnection("127.0.0.1", one.stats_port, timeout=5)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status, answer.read()

    assert health() == (200, b"ok\n")
    tool = [sys.executable, ROLE / "files/gateway-tool.py", "health", "127.0.0.1", str(one.stats_port)]
    assert subprocess.run(tool, check=False).returncode == 0
    one.tell("set server chat/gw--chat-1 state maint")
    assert health() == (503, b"no server of chat\n")
    assert subprocess.run(tool, check=False).returncode == 1
    status, headers, body = one.ask("GET", "/v1/models", KEY)
    assert (status, headers["retry-after"], json.loads(body)["error"]["code"]) == (503, "5", "no_server")
    one.tell("set server chat/gw--chat-1 state ready")
    assert health()[0] == 200


def test_prometheus_reads_what_each_server_did(one):
    connection = http.client.HTTPConnection("127.0.0.1", one.stats_port, timeout=5)
    connection.request("GET", "/metrics")
    assert (
        'haproxy_server_status{proxy="chat",server="gw--chat-1",state="UP"} 1'
        in connection.getresponse().read().decode()
    )


def test_limits_of_a_client_are_its_own(tmp_path):
    clients = [client("few", rate=3), client("narrow", WRONG, concurrent=1), client("free", "f" * 32)]
    with engine() as server, gateway(tmp_path, [server.server_port], clients) as found:
        assert [found.ask("GET", "/v1/models", KEY)[0] for _n in range(5)] == [200, 200, 200, 429, 429]
        status, headers, body = found.ask("GET", "/v1/models", KEY)
        assert headers["retry-after"] == "20" and json.loads(body)["error"]["code"] == "rate_limit_exceeded"
        waiting = threading.Thread(target=found.ask, args=("POST", "/v1/completions", WRONG, b'{"wait": 1}'))
        while server.running.acquire(blocking=False):
            pass
        waiting.start()
        assert server.running.acquire(timeout=10)
        status, headers, body = found.ask("GET", "/v1/models", WRONG)
        assert (status, headers["retry-after"]) == (429, "1")
        assert json.loads(body)["error"]["code"] == "concurrency_limit_exceeded"
        assert found.ask("GET", "/v1/models", "f" * 32)[0] == 200
        server.freed.set()
        waiting.join()
        until(lambda: found.ask("GET", "/v1/models", WRONG)[0] == 200)
        assert found.ask("GET", "/v1/models", "f" * 32)[0] == 200


def test_a_client_that_goes_away_keeps_no_server_busy(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=10)
        connection.request("POST", "/v1/completions", b'{"wait": 1}', {"Authorization": f"Bearer {KEY}"})
        assert server.running.acquire(timeout=10)
        assert found.stat("gw--chat-1", "scur") == "1"
        connection.close()
        until(lambda: found.stat("gw--chat-1", "scur") == "0", 20)


def test_an_open_gateway_asks_for_no_key_and_lets_no_more_through(tmp_path):
    more = {"options": {"open": True, "clients": {}}}
    with engine() as server, gateway(tmp_path, [server.server_port], [], **more) as found:
        assert [found.ask("GET", path)[0] for path in ("/v1/models", "/metrics")] == [200, 404]


def test_a_prompt_that_is_too_much_is_told_so(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port], [client(rate=1)]) as found:
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert found.ask("POST", "/v1/chat/completions", KEY, b"x" * 200_000)[0] == 429


def run_keys(found, clients, **more):
    # Who reads the maps is not there on every machine that runs the tests.
    given = {"directory": found.paths["maps"], "socket": found.paths["socket"], "group": "root", **more}
    return run_module("gateway_keys", clients=[each.as_dict() for each in clients], **given)


def test_keys_change_without_a_reload_and_without_cutting_a_stream(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        server.tokens, server.pause = 30, 0.1
        worker = found.tell("show info").split("Pid: ")[1].split()[0]
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=10)
        connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        answer.readline()
        wanted = [client("bob", WRONG, rate=2)]
        checked = run_keys(found, wanted, _ansible_check_mode=True)
        assert checked["changed"] and found.ask("GET", "/v1/models", WRONG)[0] == 401
        result = run_keys(found, wanted)
        assert result["changed"] and (result["added"], result["removed"]) == (["bob"], ["alice"]), result
        assert [found.ask("GET", "/v1/models", key)[0] for key in (KEY, WRONG, WRONG, WRONG)] == [401, 200, 200, 429]
        assert answer.read().count(b"data:") == 29
        connection.close()
        assert found.tell("show info").split("Pid: ")[1].split()[0] == worker
        assert not run_keys(found, wanted)["changed"]
        for name, entries in maps_of(wanted).items():
            assert (tmp_path / "maps" / name).read_text() == map_text(entries)
        # Changed on the disk alone, as by a run that was killed: the next one tells HAProxy all the same.
        found.tell(f"clear map {found.paths['maps']}/clients.map")
        assert run_keys(found, wanted)["changed"]
        assert found.ask("GET", "/v1/models", WRONG)[0] == 429
        assert run_keys(found, [client("bob", WRONG, rate=9)])["changed"]
        assert found.ask("GET", "/v1/models", WRONG)[0] == 200


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
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=10)
        connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        answer.readline()
        found.reload()
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert answer.read().count(b"data:") == 29
        connection.close()


def test_a_worker_that_cannot_start_is_told_and_the_next_run_tries_again(tmp_path, monkeypatch):
    tool = loaded("gateway-tool")
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
            SystemExit, match="HAProxy goes on with what it read before: no new worker has come within 5 s"
        ):
            tool.replace(found.paths["socket"], str(found.process.pid))
        assert "cannot bind" in found.log.read_text()
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


def test_clients_that_trust_the_ca_reach_the_gateway_by_its_names_over_either_http(tmp_path):
    names = ["localhost", "127.0.0.1"]
    made = run_module("gateway_certificate", ca_dir=str(tmp_path / "ca"), host="gw", names=names)
    assert (
        made["changed"]
        and not run_module("gateway_certificate", ca_dir=str(tmp_path / "ca"), host="gw", names=names)["changed"]
    )
    shutil.copy(made["certificate"], tmp_path / "gateway.pem")
    shutil.copy(made["key"], tmp_path / "gateway.pem.key")
    more = {"options": {"tls": "own"}, "variables": {"gateway_tls": "own"}}
    with engine() as server, gateway(tmp_path, [server.server_port], **more) as found:
        # The key is in a file of its own: no command line has it.
        (tmp_path / "curl").write_text(f'header = "Authorization: Bearer {KEY}"\n')
        for name in names:
            for version in ("--http1.1", "--http2"):
                words = [
                    "curl",
                    "-sS",
                    version,
                    "--cacert",
                    tmp_path / "ca/ca.crt",
                    "-K",
                    tmp_path / "curl",
                    "-w",
                    " %{http_version}",
                ]
                done = subprocess.run(
                    [*words, f"https://{name}:{found.port}/v1/models"], check=True, capture_output=True, text=True
                )
                assert done.stdout.split(" ")[-1] == version.removeprefix("--http")
        body = tmp_path / "prompt"
        body.write_bytes(b"x" * 5_000_000)
        words = [
            "curl",
            "-sS",
            "--http2",
            "--cacert",
            tmp_path / "ca/ca.crt",
            "-K",
            tmp_path / "curl",
            "--data-binary",
            f"@{body}",
        ]
        done = subprocess.run(
            [*words, f"https://localhost:{found.port}/v1/completions"], check=True, capture_output=True, text=True
        )
        assert json.loads(done.stdout)["bytes"] == 5_000_000
        refused = subprocess.run(
            ["curl", "-sS", f"https://localhost:{found.port}/v1/models"], check=False, capture_output=True
        )
        assert refused.returncode == 60


@contextlib.contextmanager
def agent(directory, port, servers, stuck_after=1.0, probe_after=0.0):
    config = {
        "port": port, "interval": 0.2, "stuck_after": stuck_after, "probe_after": probe_after,
        "servers": {f"127.0.0.1:{each}": {"name": f"chat-{n}", "model": "m"} for n, each in enumerate(servers, 1)},
    }  # fmt: skip
    (directory / "agent.json").write_text(json.dumps(config))
    process = subprocess.Popen([sys.executable, ROLE / "files/gateway-agent.py", directory / "agent.json"])
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def test_an_engine_that_is_healthy_and_serves_nothing_is_taken_out_and_comes_back(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found:
            with agent(tmp_path, port, ports):
                first.stuck.set()
                first.metrics["vllm:num_requests_running"] = 3.0
                until(lambda: found.state("gw--chat-1") == "DOWN (agent)", 40)
                assert found.state("gw--chat-2") == "UP"
                assert {found.ask("GET", "/v1/models", KEY)[0] for _n in range(4)} == {200}
                assert not any(path == "/v1/models" for _m, path, _h, _n in first.asked)
                # At its end, or it would be stuck again before a busy machine has looked.
                first.stuck.clear()
                first.metrics["vllm:generation_tokens_total"] += 1
                first.metrics["vllm:num_requests_running"] = 0.0
                until(lambda: found.state("gw--chat-1") == "UP", 40)
                found.tell("set server chat/gw--chat-2 state drain")
            # Without its agent a server stays what it was.
            time.sleep(2.5)
            assert found.state("gw--chat-1") == "UP" and found.state("gw--chat-2").startswith("DRAIN")


def test_an_idle_engine_that_gives_no_token_is_taken_out_and_comes_back(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports, probe_after=1.0):
            first.stuck.set()
            until(lambda: found.state("gw--chat-1") == "DOWN (agent)", 60)
            assert found.state("gw--chat-2") == "UP"
            assert any(path == "/v1/completions" for _m, path, _h, _n in second.asked)
            first.stuck.clear()
            first.freed.set()
            until(lambda: found.state("gw--chat-1") == "UP", 60)


def test_an_engine_that_shows_requests_which_were_cut_off_comes_back(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        with gateway(tmp_path, ports, agent_port=port) as found, agent(tmp_path, port, ports):
            # Its figures stand still, and it gives a token to whoever asks.
            first.metrics["vllm:num_requests_running"] = 3.0
            until(lambda: any(path == "/v1/completions" for _m, path, _h, _n in first.asked), 40)
            until(lambda: found.state("gw--chat-1") == "UP", 40)


def test_what_is_stuck_stays_out_while_a_new_agent_knows_nothing(tmp_path):
    port = free_port()
    with engine() as first, engine() as second:
        ports = [first.server_port, second.server_port]
        first.stuck.set()
        first.metrics["vllm:num_requests_running"] = 3.0
        with gateway(tmp_path, ports, agent_port=port) as found:
            with agent(tmp_path, port, ports):
                until(lambda: found.state("gw--chat-1") == "DOWN (agent)", 40)
            with agent(tmp_path, port, ports, stuck_after=600):
                time.sleep(3)
                assert found.state("gw--chat-1") == "DOWN (agent)"
                assert found.state("gw--chat-2") == "UP"
