# SPDX-License-Identifier: GPL-3.0-or-later
"""An instance that nobody drained stops behind a real HAProxy under load: no request is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.gateways import HANGS, HAPROXY, KEY, gateway, until
from tests.fakes.stopping_engine import TOKENS, stopping_engine

COLLECTIONS = Path(__file__).resolve().parents[2] / ".collections"
# Runs the program for an instance whose files are not in /etc/vllm, as if this host were a gateway too.
STOP = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.baremetal.inference.plugins.module_utils.instance import config_file, drain_host
drain_host.GATEWAY = "/"
print(drain_host.Drain(config_file.Listening("127.0.0.1", int(sys.argv[2])), sys.argv[3]).run(30.0, 3.0))
"""

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


class Load:
    """Clients that request streams, one after the other, until they are told to stop."""

    def __init__(self, found, clients):
        self.found, self.statuses, self.short, self.on = found, [], 0, True
        self.threads = [threading.Thread(target=self.ask) for _client in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while self.on:
            status, _headers, body = self.found.ask("POST", "/v1/chat/completions", KEY, b'{"stream": true}')
            self.statuses.append(status)
            self.short += body.count(b"data:") != TOKENS

    def end(self):
        self.on = False
        for thread in self.threads:
            thread.join()


def test_no_request_fails_when_an_instance_stops_under_load(tmp_path):
    with stopping_engine(tmp_path) as left, stopping_engine() as kept, gateway(
        tmp_path, [left.port, kept.port]
    ) as found:
        until(lambda: found.state("gw--chat-1") == "UP" and found.state("gw--chat-2") == "UP")
        load = Load(found, 16)
        until(lambda: left.asked and kept.asked)
        command = [sys.executable, "-c", STOP, str(COLLECTIONS), str(left.port), str(tmp_path)]
        stop = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        until(lambda: found.state("gw--chat-1").startswith("NOLB"))
        said = stop.communicate(timeout=HANGS)[0]
        # SIGTERM: from here on vLLM gives no answer until it closes its port.
        left.stopped = True
        before = len(load.statuses)
        time.sleep(4)
        until(lambda: len(load.statuses) > before + 50)
        load.end()
        assert not left.late and found.state("gw--chat-1").startswith("NOLB")
        assert set(load.statuses) == {200} and not load.short
        assert said == "Stopping: no request runs\n"
