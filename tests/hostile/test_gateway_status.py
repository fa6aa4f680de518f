# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reaches the port for health and metrics reads names and figures, and neither changes anything nor reads more."""

from __future__ import annotations

import hashlib
import http.client
import os

import pytest

from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import HAPROXY, KEY, client, free_port, gateway, until
from tests.fakes.usage_service import service, stored

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
PAGES = ("/metrics", "/metrics/usage", "/health")
OTHERS = (
    "/", "/stats", "/haproxy?stats", "/haproxy_stats", "/;csv", "/metrics/", "/metrics/../stats", "/metrics/usage/x",
    "/v1/models", "/gateway/usage", "//metrics", "/%6detrics",
)  # fmt: skip
PROMPT = "a-prompt-that-nobody-else-reads"


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body)
    found = connection.getresponse()
    text = found.read().decode()
    connection.close()
    return found.status, text


def test_it_tells_names_and_figures_and_nothing_else(tmp_path_factory):
    place, tokens_port = tmp_path_factory.mktemp("s"), free_port()
    (place / "gw").mkdir()
    secret = "s" * 40
    variables = {"gateway_tokens": True}
    more = {
        "options": {"tokens": True, "tokens_port": tokens_port}, "variables": variables, "secret": secret,
    }  # fmt: skip
    with counted_engine(place / "run0") as engine:
        found = gateway(place / "gw", [engine.port], [client(team="research")], name="gw", **more)
        with found as running, service(place, "gw", [engine], tokens_port):
            until(lambda: running.state("gw--chat-1") == "UP")
            body = f'{{"model": "m", "messages": "{PROMPT}"}}'.encode()
            assert running.ask("POST", "/v1/chat/completions", KEY, body)[0] == 200
            until(lambda: stored(place, "gw"))
            pages = {path: ask(running.stats_port, "GET", path) for path in PAGES}
            assert {status for status, _text in pages.values()} == {200}
            told = "".join(text for _status, text in pages.values())
            assert 'server="gw--chat-1"' in told and 'client="alice",team="research"' in told
            keys = (running.directory / "secret").read_text().split()[1::2]
            for unsaid in (KEY, hashlib.sha256(KEY.encode()).hexdigest(), PROMPT, secret, *keys, str(engine.port)):
                assert unsaid not in told
            for path in OTHERS:
                assert ask(running.stats_port, "GET", path)[0] == 404, path
            # It changes nothing, whatever the method.
            before = running.tell("show servers state")
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                for path in (*PAGES, *OTHERS):
                    ask(running.stats_port, method, path, b"s=gw--chat-1&action=drain&b=chat")
            assert running.tell("show servers state").split()[:20] == before.split()[:20]
            assert running.state("gw--chat-1") == "UP"
