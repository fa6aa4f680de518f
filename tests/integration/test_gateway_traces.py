# SPDX-License-Identifier: GPL-3.0-or-later
"""One id of a request in the gateway's log, in the log of a real vLLM, and in the span that vLLM sends."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import threading

import pytest

from tests.fakes.gateways import HAPROXY, KEY, client, gateway, plan, until
from tests.integration.gateway_load import CHAT
from tests.integration.real_engines import real_engines
from tests.integration.test_gateway_log import line_of
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import environment

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PROMPT = "A word that nobody else says: zephyrium"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy"),
]


@contextlib.contextmanager
def collector():
    """Yield the address of an OpenTelemetry collector and what it gets: protobuf, with texts as they are."""
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
    finally:
        server.shutdown()
        server.server_close()


def test_one_id_is_in_both_logs_and_in_the_span(tmp_path, monkeypatch):
    python = fetched(environment)
    write(FAMILIES["llama"](), tmp_path / "model")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    with contextlib.ExitStack() as stack:
        address, got = stack.enter_context(collector())
        words = ("--max-model-len", "512", "--otlp-traces-endpoint", address, "--enable-log-requests")
        (engine,) = stack.enter_context(real_engines(python, tmp_path, tmp_path / "model", 1, *words))
        plans = {"chat-1": plan(engine.port, models=("m",))}
        log = {"gateway_access_log": "json"}
        found = stack.enter_context(gateway(tmp_path, [], [client()], plans=plans, variables=log))
        until(lambda: found.state("gw--chat-1") == "UP")
        body = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3}
        parent = f"00-{TRACE}-00f067aa0ba902b7-01"
        given = {"X-Request-Id": "order-7", "traceparent": parent, "Content-Type": "application/json"}
        status, headers, answer = found.ask("POST", CHAT, KEY, json.dumps(body).encode(), **given)
        assert status == 200, answer
        (made,) = [value for name, value in headers.items() if name.lower() == "x-request-id"]
        assert made.startswith("order-7-")
        assert line_of(found, made)["status"] == 200
        assert made in (engine.directory / "log").read_text()
        until(lambda: any(made.encode() in each for each in got))
        spans = b"".join(each for each in got if made.encode() in each)
        # The span belongs to the client's trace.
        assert bytes.fromhex(TRACE) in spans
        assert b"zephyrium" not in b"".join(got)
        assert "zephyrium" not in found.log.read_text()
