# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.admission_report_host import (
    read_admission,
    rows_of,
)

from tests.fakes.gateways import HAPROXY, KEY, client, gateway
from tests.integration.gateway_engines import engine

NAME = "inference_gateway_admission"


def test_a_row_has_what_a_team_of_a_class_did() -> None:
    text = f"""# TYPE {NAME}_requests_total counter
{NAME}_requests_total{{service="chat",class="batch",team="nightly",decision="now"}} 770
{NAME}_requests_total{{service="chat",class="batch",team="nightly",decision="waits"}} 300
{NAME}_requests_total{{service="chat",class="batch",team="nightly",decision="refused"}} 930
{NAME}_requests{{service="chat",class="batch",team="nightly"}} 12
{NAME}_first_answer_seconds_bucket{{service="chat",class="batch",le="1"}} 5
{NAME}_first_answer_seconds_sum{{service="chat",class="batch"}} 42.000
{NAME}_first_answer_seconds_count{{service="chat",class="batch"}} 10
other{{service="chat"}} 3
{NAME}_requests{{service="chat"}} 3
{NAME}_requests{{service="chat",class="gold"}} {"9" * 5000}
"""
    assert rows_of(text)[0] == {
        "service": "chat", "class": "batch", "team": "nightly",
        "now": 12, "requests": 2000, "waited": 300, "refused": 930, "first_answer_s": 4.2,
    }  # fmt: skip
    # A number that no counter has counts as none.
    assert [row["now"] for row in rows_of(text)] == [12, 0]


@pytest.mark.skipif(HAPROXY is None, reason="needs haproxy")
def test_the_page_of_a_real_haproxy_is_found_by_its_configuration(tmp_path: Path) -> None:
    teams = {"product": {"class": "gold"}}
    with engine() as server, gateway(
        tmp_path, [server.server_address[1]], [client(team="product")], options={"admission": "auto", "teams": teams}
    ) as running:
        assert running.ask("POST", "/v1/chat/completions", KEY)[0] == 200
        (row,) = read_admission(str(tmp_path / "haproxy.cfg"))
        assert (row["service"], row["class"], row["team"], row["requests"], row["refused"]) == (
            "chat", "gold", "product", 1, 0,
        )  # fmt: skip


def test_without_admission_or_without_an_answer_there_are_no_rows(tmp_path: Path) -> None:
    assert read_admission(str(tmp_path / "none")) == []
    config = tmp_path / "haproxy.cfg"
    config.write_text("frontend gateway:status\n    bind 127.0.0.1:1\n")
    assert read_admission(str(config)) == []
    config.write_text("frontend gateway:status\n    bind 127.0.0.1:1\n    http-request use-service lua.admission\n")
    assert read_admission(str(config)) == []

    class Odd(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(b"\xff" * 5000)

        def log_message(self, *_args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as other:
        threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        config.write_text(config.read_text().replace(":1\n", f":{other.server_address[1]}\n"))
        assert read_admission(str(config)) == []
        other.shutdown()
