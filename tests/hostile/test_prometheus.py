# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus with the playbook's configuration, and an engine that wants to fill its memory."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.tree import JOBS, SERIES, whole

from tests.fakes.gateways import free_port, until

PROMETHEUS = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(
    PROMETHEUS is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs prometheus"
)


@contextlib.contextmanager
def engine(lines):
    """Yield the address of a server whose metrics are ``lines(n)`` at the nth scrape."""
    scrapes = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            scrapes.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.writelines(line.encode() for line in lines(len(scrapes)))

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def prometheus(directory, targets):
    """Yield a function that evaluates a query."""
    for part in ("targets", "rules"):
        (directory / part).mkdir()
    for job in JOBS:
        found = [{"targets": [address]} for address in targets] if job == "vllm" else []
        (directory / f"targets/{job}.json").write_text(json.dumps(found))
    (directory / "prometheus.yml").write_text(
        whole(str(directory)).replace("scrape_interval: 15s", "scrape_interval: 1s")
    )
    address = f"127.0.0.1:{free_port()}"
    words = [f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([PROMETHEUS, *words, f"--web.listen-address={address}"], stdout=log, stderr=log)

    def ask(query):
        assert process.poll() is None, (directory / "log").read_text()
        url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=30) as answer:
            return {row["metric"]["instance"]: float(row["value"][1]) for row in json.load(answer)["data"]["result"]}
        return {}

    try:
        yield ask
    finally:
        process.kill()
        process.wait()


def flood(scrape):
    return (f'vllm:x{{model_name="{scrape}-{number}"}} 1\n' for number in range(SERIES["vllm"] + 1))


def long_value(_scrape):
    return [f'vllm:x{{model_name="{"y" * 10_000}"}} 1\n']


@pytest.mark.parametrize("lines", [flood, long_value])
def test_of_an_engine_that_names_its_metrics_anew_nothing_is_kept(tmp_path, lines):
    with engine(lambda _scrape: ["vllm:x 1\n"]) as good, engine(lines) as bad, prometheus(tmp_path, [good, bad]) as ask:
        assert until(lambda: found if len(found := ask("up")) == 2 else None) == {good: 1, bad: 0}
        assert ask("count by (instance) (vllm:x)") == {good: 1}
