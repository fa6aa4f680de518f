# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the servers of a real gateway out and bring them back, with the module gateway_server."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from tests.fakes.gateways import HANGS, HAPROXY, KEY, gateway, until
from tests.fakes.programs import installed
from tests.fakes.wheelhouse import run_module
from tests.integration.gateway_engines import engine

ONE, TWO = "gw--chat-1", "gw--chat-2"
needs_haproxy = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


LIBRARY = tempfile.TemporaryDirectory()


@functools.lru_cache
def tool():
    """Return the program that saves the states of servers."""
    return installed("gateway-tool", Path(tempfile.mkdtemp(dir=LIBRARY.name)))


def run(found, **arguments):
    """Run the module at a gateway; without ``state`` it only looks."""
    result = run_module(
        "gateway_server",
        socket=found.paths["socket"],
        config=str(found.directory / "haproxy.cfg"),
        state_file=found.paths["state"],
        owners_file=str(found.directory / "drained.json"),
        arrivals_file=str(found.directory / "arrivals"),
        tool=str(tool()),
        **arguments,
    )
    result.pop("invocation", None)
    return result


def drain(found, *servers, owner="rollout:1", **more):
    return run(found, servers=list(servers), state="drained", owner=owner, **{"wait": 0, **more})


def ready(found, *servers, owner="rollout:1", **more):
    return run(found, servers=list(servers), state="ready", owner=owner, **more)


def owners(found):
    return json.loads((found.directory / "drained.json").read_text())["servers"]


@contextlib.contextmanager
def pair(directory, **more):
    """Two engines behind a gateway."""
    with contextlib.ExitStack() as stack:
        first, second = stack.enter_context(engine()), stack.enter_context(engine())
        found = stack.enter_context(gateway(directory, [first.server_port, second.server_port], **more))
        until(lambda: found.state(ONE) == found.state(TWO) == "UP")
        found.first, found.second = first, second
        yield found


@contextlib.contextmanager
def running(found, server):
    """A request that an engine works on until it is freed; the answer's status is in the list."""
    statuses = []
    while server.running.acquire(blocking=False):
        pass

    def ask():
        # It is cut where HAProxy is killed.
        with contextlib.suppress(OSError, http.client.HTTPException):
            statuses.append(found.ask("POST", "/v1/completions", KEY, b'{"wait": 1}')[0])

    asked = threading.Thread(target=ask)
    asked.start()
    assert server.running.acquire(timeout=HANGS)
    try:
        yield statuses
    finally:
        server.freed.set()
        asked.join()
        server.freed.clear()


def kill(found):
    """End HAProxy as a crash does."""
    worker = int(found.tell("show info").split("Pid: ")[1].split()[0])
    for pid in (found.process.pid, worker):
        os.kill(pid, signal.SIGKILL)
    found.process.wait(HANGS)
    found.process = None


def cut(handler, text, status=200):
    """Promise more than comes, but to HAProxy's checks."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(text) if handler.path == "/health" else 100_000))
    handler.end_headers()
    handler.wfile.write(text.encode())
    handler.close_connection = True
