# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine chooses the reason of its answer to a check, which HAProxy repeats in its table of counters."""

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.scale_replicas import read_stat
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.service_watch import read_servers
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.state import VIEW_COMMANDS, read_view

from tests.fakes.gateways import HAPROXY, gateway, until
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
BAD, GOOD = "gw--chat-1", "gw--chat-2"
REASONS = ("No\x0bGo", "a\x0cgw,BACKEND,0", "a\x1cb", "a\x1db", "a\x1eb", "a\xc2\x85b", 'a"b\x0bc', "a\x1b[2Jb")


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self):
        self.wfile.write(f"HTTP/1.1 503 {self.server.reason}\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))

    def log_message(self, *_args):
        pass


def test_no_reason_hides_other_engines_from_the_gateway(tmp_path):
    bad = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    bad.reason = REASONS[0]
    Thread(target=bad.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    with bad, engine() as good, gateway(tmp_path, [bad.server_port, good.server_port]) as running:
        until(lambda: running.state(GOOD) == "UP")
        for reason in REASONS:
            bad.reason = reason
            # The text of the check in HAProxy's memory; the reason may be cut.
            expected = reason.encode("latin-1").decode("utf-8", "replace").replace('"', '""')
            table = until(
                lambda text=expected: next((found for found in [running.tell("show stat")] if text in found), "")
            )
            assert read_servers(table)[GOOD].healthy, reason
            assert GOOD in read_stat(table).up, reason
            server = read_view(running.tell(VIEW_COMMANDS)).servers[BAD]
            assert server.why.isprintable(), reason
        bad.shutdown()
