# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report to HAProxy which instances of vLLM are stuck although they answer /health.

    gateway-agent.py CONFIG

CONFIG is JSON: ``port`` to answer on (loopback), ``interval``, ``stuck_after`` and ``probe_after`` in seconds, and
``servers``: ``ADDRESS:PORT`` -> ``name`` and ``model``. HAProxy connects, sends ADDRESS:PORT and a newline, and reads
``up``, ``down #reason``, or an empty line while the state is unknown, which changes nothing.

An engine is stuck when requests run and no counter of its work changes for ``stuck_after`` seconds. After
``probe_after`` seconds without requests the agent requests one token. In both cases the engine is up again as soon as
a counter changes.
"""

from __future__ import annotations

import http.client
import json
import re
import socketserver
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Mapping

# All work of the engine changes one of these; no client can change one without it.
WORK = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:request_success_total",
    "vllm:iteration_tokens_total_count",
    "vllm:kv_cache_usage_perc",
)
RUNNING = "vllm:num_requests_running"
_LINE = re.compile(r"(?P<name>[a-z_:]+)(?:\{[^}]*\})?\s+(?P<value>\S+)", re.ASCII)
# Bytes read of a page of metrics.
MAX_METRICS_BYTES = 8 * 1024 * 1024
UNKNOWN, UP = "", "up"


@dataclass
class Watched:
    """The state of an instance; ``verdict`` is the answer to HAProxy."""

    stuck_after: float
    probe_after: float
    verdict: str = UNKNOWN
    work: tuple[float, ...] = ()
    # Times when the work changed last, and when the instance proved last that it serves.
    moved_at: float = field(default_factory=time.monotonic)
    proven_at: float = field(default_factory=time.monotonic)

    def lost(self, now: float) -> None:
        """Record that the instance did not answer; the check of /health decides whether it is up."""
        self.work, self.moved_at = (), now

    def saw(self, metrics: Mapping[str, float], now: float) -> bool:
        """Update the state from metrics; return whether the agent must request a token."""
        work = tuple(metrics.get(name, 0.0) for name in WORK)
        first, moved = not self.work, work != self.work
        if moved:
            self.work, self.moved_at = work, now
        if moved and not first:
            self.verdict, self.proven_at = UP, now
        if metrics.get(RUNNING, 0.0) > 0:
            if now - self.moved_at < self.stuck_after:
                return False
            self.verdict = f"down #requests run and nothing has moved for {now - self.moved_at:.0f} s"
            # vLLM may still report requests that were all aborted. No new ones arrive, so the agent requests a token.
            return True
        self.moved_at = now
        if self.verdict.startswith("down"):
            return True
        self.verdict = UP
        return bool(self.probe_after) and now - self.proven_at >= self.probe_after

    def probed(self, fault: str, now: float) -> None:
        """Update the state from a probe; ``fault`` is why the instance gave no token."""
        if not fault:
            self.verdict = UP
        elif not self.verdict.startswith("down"):
            # The first reason says more, so it stays.
            self.verdict = f"down #{fault}"
        self.proven_at = now
        if not fault:
            self.moved_at = now


def read_metrics(text: str) -> dict[str, float]:
    """Return the metrics in WORK and RUNNING, summed over engines and models."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and (match["name"] in WORK or match["name"] == RUNNING):
            found[match["name"]] = found.get(match["name"], 0.0) + float(match["value"])
    return found


def ask(address: str, method: str, path: str, body: bytes | None, timeout: float) -> tuple[int, str]:
    """Return status and text of an answer. Raises OSError and HTTPException."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_METRICS_BYTES).decode("utf-8", "replace")
    finally:
        connection.close()


def probe(address: str, model: str, timeout: float) -> str:
    """Request one token; return the fault, an empty string for success."""
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1}).encode()
    try:
        status, _text = ask(address, "POST", "/v1/completions", body, timeout)
    except (OSError, http.client.HTTPException) as exc:
        return (
            f"no token within {timeout:.0f} s" if isinstance(exc, TimeoutError) else f"no token: {type(exc).__name__}"
        )
    # An engine that refuses the request is alive; a wrong request is not its fault.
    return f"the request for a token was answered with HTTP {status}" if status >= 500 else ""


def check_instance(address: str, model: str, watched: Watched) -> None:
    """Query an instance once and update its state."""
    try:
        status, text = ask(address, "GET", "/metrics", None, max(5.0, watched.stuck_after / 2))
        metrics = read_metrics(text) if status == http.client.OK else {}
    except (OSError, ValueError, http.client.HTTPException):
        metrics = {}
    if not metrics:
        watched.lost(time.monotonic())
    elif watched.saw(metrics, time.monotonic()):
        watched.probed(probe(address, model, watched.stuck_after), time.monotonic())


def watch(address: str, server: Mapping[str, Any], watched: Watched, interval: float) -> None:
    """Check an instance forever, and log changes of its state."""
    while True:
        before = watched.verdict
        check_instance(address, server["model"], watched)
        if watched.verdict != before and (before or watched.verdict != UP):
            print(f"{server['name']} ({address}): {watched.verdict}", flush=True)
        time.sleep(interval)


class AgentAnswer(socketserver.StreamRequestHandler):
    """Answer one query of HAProxy."""

    timeout = 5

    def handle(self) -> None:
        """Send the state of the requested server."""
        address = self.rfile.readline(256).decode("ascii", "replace").strip()
        watched = self.server.watched.get(address)  # type: ignore[attr-defined]
        self.wfile.write(f"{watched.verdict if watched else UNKNOWN}\n".encode("ascii", "replace"))


class Agent(socketserver.ThreadingTCPServer):
    """Answer HAProxy; one thread checks each instance."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(("127.0.0.1", config["port"]), AgentAnswer)
        self.watched = {address: Watched(config["stuck_after"], config["probe_after"]) for address in config["servers"]}
        for address, server in config["servers"].items():
            arguments = (address, server, self.watched[address], config["interval"])
            threading.Thread(target=watch, args=arguments, daemon=True).start()


def main() -> None:
    """Answer until the unit stops."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        config = json.load(file)
    threading.stack_size(512 * 1024)
    with Agent(config) as agent:
        agent.serve_forever()


if __name__ == "__main__":
    main()
