# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of a gateway: asks each engine, and answers HAProxy whether it serves."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import math
import os
import re
import socketserver
import threading
import time
from typing import Any, Callable, Mapping

from ..common.bounded_server_host import BoundedServer
from ..common.files_host import text_of
from ..common.lines_host import write_line
from ..common.loop_host import Loop
from ..common.passed_socket_host import listen
from ..common.unix_socket_host import ask_root
from ..instance.api_host import read_body, within
from ..instance.marks import UNHEALTHY, header_text
from ..instance.metrics import WORK, sums
from .places import FIGURES, Places, load_of
from .planned_stops_host import StopsFile
from .scale_host import AUTO, INTERVAL, Scaler
from .service_watch import ServiceWatch, read_servers
from .shared_address_host import SharedAddress
from .verdict import UNKNOWN, UP, Watched

# Bytes read of a page of metrics.
MAX_METRICS_BYTES = 8 * 1024 * 1024
# Seconds until HAProxy is asked again whether it is another worker.
NOTICED = 0.1
FAULTS = (OSError, ValueError, http.client.HTTPException)


def ask(address: str, method: str, path: str, body: bytes | None, timeout: float) -> tuple[int, str, str]:
    """Return status and text of an answer, and why the instance is sick. Raises one of FAULTS."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    with contextlib.closing(connection), within(timeout, connection):
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        # A byte for each character: one outside of Latin-1 would make the text four times as large.
        text = read_body(answer, MAX_METRICS_BYTES).decode("latin-1")
        return answer.status, text, header_text(answer.getheader(UNHEALTHY, ""))


def probe(address: str, model: str, timeout: float) -> tuple[str, bool]:
    """Request one token; return the fault, empty for success, and whether it was an answer 5xx."""
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1}).encode()
    try:
        status, _text, _sick = ask(address, "POST", "/v1/completions", body, timeout)
    except TimeoutError:
        return f"no token within {timeout:.0f} s", False
    except FAULTS as exc:
        return f"no token: {type(exc).__name__}", False
    # An engine that refuses the request is alive; a wrong request is not its fault.
    return (f"the request for a token was answered with HTTP {status}", True) if status >= 500 else ("", False)


def check_instance(address: str, model: str, watched: Watched) -> None:
    """Query an instance once and update its state."""
    try:
        status, text, sick = ask(address, "GET", "/metrics", None, max(5.0, watched.stuck_after / 2))
        metrics = sums(text, {*WORK, *FIGURES}) if status == http.client.OK else {}
        watched.sick, watched.sick_since = sick, min(watched.sick_since, time.monotonic()) if sick else math.inf
    except TimeoutError:
        return watched.lost(time.monotonic())
    except FAULTS:
        metrics = {}
    if not metrics:
        return watched.refused(time.monotonic())
    watched.load = load_of(metrics, watched.own or 0)
    # Before HAProxy has reported how many requests it has there, an agent that has just started would cut all of them.
    if watched.places and watched.own is not None:
        watched.places.update(watched.load, time.monotonic())
    if watched.saw(metrics, time.monotonic()):
        fault, is_refusal = probe(address, model, watched.stuck_after)
        watched.probed(fault, time.monotonic(), is_refusal)
    return None


def report(name: str, address: str, before: str, after: str) -> None:
    """Log a change of an answer."""
    if after != before and (before or after != UP):
        write_line(f"{name} ({address}): {after}")


def is_there(pid: int) -> bool:
    """Return whether a process exists. It is asked for by signal: the unit hides /proc of other users."""
    try:
        os.kill(pid, 0)
    except OSError as exc:
        return isinstance(exc, PermissionError)
    return True


def read_counters(path: str) -> str:
    """Return HAProxy's counters. Raises OSError and ValueError."""
    # Shorter than the pause after which SharedAddress begins to count again.
    return ask_root(path, "show stat -1 4 -1", 5, 10)


class HaproxyWatch:
    """Read HAProxy's counters: which servers are up, how many errors they answered."""

    def __init__(self, config: Mapping[str, Any], watched: Mapping[str, Watched]) -> None:
        self.servers, self.watched, self.path = config["servers"], watched, config["stats"]
        scaled = config.get("scale", {}).get("services", {})
        empty = [name for name, each in scaled.items() if not each["min"] and each["mode"] == AUTO]
        self.services = ServiceWatch(self.servers, watched, config["min_available"], empty)
        self.address = SharedAddress(config["unusable"], config["interval"])
        self.stops = StopsFile(config["stops"])
        self.asking, self.asked_at, self.worker = threading.Lock(), -math.inf, ""

    def notice_reload(self, now: float) -> None:
        """Note when another worker of HAProxy answers and the one before is still there, unlike after a restart."""
        with self.asking, contextlib.suppress(OSError):
            if now - self.asked_at < NOTICED:
                return
            self.asked_at = now
            found = re.search(r"(?m)^Pid: (\d{1,9})$", ask_root(self.path, "show info", 1, 1))
            before, self.worker = self.worker, found[1] if found else self.worker
            if before not in ("", self.worker) and is_there(int(before)):
                for watched in self.watched.values():
                    if watched.places:
                        watched.places.reloaded_at = now

    def check(self, now: float) -> None:
        """Read the counters once and update all instances and the file for keepalived."""
        before = {address: watched.answer for address, watched in self.watched.items()}
        try:
            found = read_servers(read_counters(self.path))
            names = (server["name"] for server in self.servers.values())
            self.stops.update({name: found[name].look for name in names if name in found})
            fault = self.services.update(found, now)
        except (ConnectionRefusedError, FileNotFoundError):
            fault = "ended"
        except (OSError, ValueError):
            fault = "silent"
        for address, answer in before.items():
            report(self.servers[address]["name"], address, answer, self.watched[address].answer)
        self.address.saw(fault, now)
        self.address.write()


class AgentAnswer(socketserver.StreamRequestHandler):
    """Answer one query of HAProxy."""

    timeout = 5

    def handle(self) -> None:
        """Send the state of the requested server."""
        with contextlib.suppress(OSError):
            asked = self.rfile.readline(256).decode("ascii", "replace").strip()
            # A connection that is closed with unread headers is reset, and the answer may be lost.
            while asked.startswith("GET ") and self.rfile.readline(8192).strip():
                pass
            agent: Agent = self.server  # type: ignore[assignment]
            watched = agent.watched.get(asked)
            if watched and watched.places:
                agent.haproxy.notice_reload(time.monotonic())
            answer = agent.page() if asked.startswith("GET /metrics ") else f"{watched.line if watched else UNKNOWN}\n"
            self.wfile.write(answer.encode("ascii", "replace"))


class Agent(BoundedServer):
    """Answer HAProxy; one thread checks each instance."""

    request_queue_size = 128

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(("127.0.0.1", config["port"]), AgentAnswer, bind_and_activate=False)
        self.socket.close()
        self.socket = listen("127.0.0.1", config["port"], self.request_queue_size)
        limits = (config["stuck_after"], config["probe_after"], config["error_limit"])
        self.interval, self.readers = config["interval"], config.get("readers", "")
        self.watched = {
            address: Watched(*limits, places=Places(*server["places"]) if "places" in server else None)
            for address, server in config["servers"].items()
        }
        self.haproxy = HaproxyWatch(config, self.watched)
        # A run of gateway.yml may restart this agent just before it reloads HAProxy.
        self.haproxy.notice_reload(time.monotonic())
        # When each was checked last.
        self.checked_at: dict[str, float] = {}
        for address, server in config["servers"].items():
            self._start(server["name"], functools.partial(self._check, address, server))
        self._start("haproxy", lambda: self.haproxy.check(time.monotonic()))
        watch = (config["stats"], self.watched, self.interval, self.haproxy.notice_reload)
        self.scaler = Scaler(config["scale"], *watch) if "scale" in config else None
        if self.scaler:
            # At its own pace: the lease of a gateway is some seconds, whatever the checks wait.
            self._start("scale", self.scaler.step, INTERVAL)

    def _start(self, name: str, check: Callable[[], object], interval: float | None = None) -> None:
        """Check again and again in a thread."""
        pause = float(self.interval if interval is None else interval)

        def step() -> float:
            check()
            self.checked_at[name] = time.time()
            return pause

        Loop(name, step, pause).start()

    def _check(self, address: str, server: Mapping[str, Any]) -> None:
        """Check an instance, and log a change of its state."""
        watched = self.watched[address]
        before = watched.answer
        check_instance(address, server["model"], watched)
        report(server["name"], address, before, watched.answer)

    def page(self) -> str:
        """Return the answer to GET /metrics: when each check last worked, and how many slow readers were ended."""
        name = "inference_gateway_agent_check_timestamp_seconds"
        lines = [
            f"# TYPE {name} gauge",
            *(f'{name}{{of="{of}"}} {at:.0f}' for of, at in sorted(self.checked_at.items())),
        ]
        ended = re.fullmatch(r"(\d{1,18})\n", text_of(self.readers)) if self.readers else None
        name = "inference_gateway_slow_readers_ended_total"
        lines += [f"# TYPE {name} counter", f"{name} {ended[1]}"] if ended else []
        lines += self.scaler.metrics() if self.scaler else []
        return "\r\n".join(["HTTP/1.0 200 OK", "Content-Type: text/plain; version=0.0.4", "", "\n".join([*lines, ""])])


def serve(config: Mapping[str, Any]) -> None:
    """Answer until the unit stops."""
    with Agent(config) as agent:
        agent.serve_forever()
