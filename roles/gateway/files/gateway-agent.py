# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report to HAProxy which instances of vLLM are sick although they answer /health.

    gateway-agent.py CONFIG

CONFIG is JSON: ``port`` to answer on (loopback), ``interval``, ``stuck_after`` and ``probe_after`` in seconds,
``error_limit``, ``min_available`` (servers that each service keeps, however sick), ``stats`` (HAProxy's socket with
its counters), ``unusable`` (a file for keepalived, or nothing), and ``servers``: ``ADDRESS:PORT`` -> ``name``,
``service``, ``model`` and, where several are one instance, ``group``. HAProxy connects, sends ADDRESS:PORT and a
newline, and reads ``up``, ``down #reason``, or an empty line while the state is unknown, which changes nothing.

An engine is stuck when requests run and no counter of its work changes for ``stuck_after`` seconds. After
``probe_after`` seconds without requests, and after ``error_limit`` answers 5xx within WINDOW seconds, the agent
requests one token, until it gets one: requests of one client may fail on a healthy engine. An engine that refuses with
5xx stays in service as long as its service has no better one.

An instance whose host says that it is sick (the header ``unhealthy`` of GET /metrics, from the role health) goes out
of service with ``down #sick: ...``, the sickest first, as long as its service keeps ``min_available`` others; else it
stays with ``up #sick, ...``.

``down #hangs: ...`` means that its running requests never end; gateway-hanging.lua ends them.

The servers of a group share the model's experts: where HAProxy's own check finds one of them unhealthy, all are down.
"""

from __future__ import annotations

import contextlib
import csv
import http.client
import json
import math
import os
import re
import socket
import socketserver
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping

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
# The header by which a host calls its instance sick, and the actions that its text begins with, weakest first.
SICK = "unhealthy"
SEVERITIES = ("restart_instance", "reset_chip", "isolate_host")
LONGEST_REASON = 200
# Seconds over which errors are counted.
WINDOW = 10.0
# A shared address moves only after this long: without servers, or without an answer of a HAProxy that still listens.
# The second is long because a machine without free CPU time answers late. If HAProxy does not listen, it has ended.
NO_SERVER_SECONDS, SILENT_SECONDS, ENDED_SECONDS = 10.0, 60.0, 3.0
FAULTS = (OSError, ValueError, http.client.HTTPException)


@dataclass
class Watched:
    """The state of an instance; ``verdict`` is what the agent found, ``answer`` what it tells HAProxy."""

    stuck_after: float
    probe_after: float
    error_limit: int = 0
    verdict: str = UNKNOWN
    # Why the instance is refusing requests although it works, and whether another server of its service is better.
    refusal: str = ""
    replaceable: bool = False
    # Why its host calls the instance sick, and whether its service can do without it.
    sick: str = ""
    sick_since: float = math.inf
    spare: bool = False
    # The unhealthy server of its group, empty for none.
    incomplete: str = ""
    work: tuple[float, ...] = ()
    # Times when the work changed last, when the instance proved last that it serves, and when it answered last.
    moved_at: float = field(default_factory=time.monotonic)
    proven_at: float = field(default_factory=time.monotonic)
    heard_at: float = field(default_factory=time.monotonic)
    # Times and numbers of answers 5xx. HAProxy's counters of them and of bytes, and when bytes came last.
    errors: tuple[tuple[float, int], ...] = ()
    counted: tuple[int, int] | None = None
    flowed_at: float = -math.inf

    @property
    def answer(self) -> str:
        """The answer to HAProxy."""
        if self.incomplete and not self.verdict.startswith("down #hangs"):
            return f"down #{self.incomplete}, which serves together with it, is missing"
        if self.refusal and self.replaceable:
            return f"down #{self.refusal}"
        if self.sick and self.verdict == UP:
            return f"down #sick: {self.sick}" if self.spare else f"up #sick, and the service needs it: {self.sick}"
        return self.verdict

    @property
    def severity(self) -> int:
        """How sick it is; of several, the sickest goes first."""
        return next((number for number, word in enumerate(SEVERITIES, 1) if self.sick.startswith(word)), 0)

    def lost(self, now: float) -> None:
        """Record that the instance did not answer; the check of /health decides whether it is up."""
        self.work, self.moved_at = (), now
        # Twice, as for an engine that is stuck. One that is stopping answers nothing and completes its streams.
        if self.stuck_after * 2 <= now - max(self.heard_at, self.flowed_at):
            self.verdict = f"down #hangs: no answer for {now - self.heard_at:.0f} s"

    def refused(self, now: float) -> None:
        """Record that nothing listens at the instance's port: it has ended, and so have its requests."""
        self.heard_at = now
        self.lost(now)

    def saw(self, metrics: Mapping[str, float], now: float) -> bool:
        """Update the state from metrics; return whether the agent must request a token."""
        work = tuple(metrics.get(name, 0.0) for name in WORK)
        first, moved = not self.work, work != self.work
        self.heard_at = now
        if self.verdict.startswith("down #hangs: no answer"):
            self.verdict = "down #answers again, and has given no token yet"
        if moved:
            self.work, self.moved_at = work, now
        if moved and not first:
            self.verdict, self.proven_at = UP, now
        return self._stuck_or_idle(metrics, now) or self._suspect(now)

    def _stuck_or_idle(self, metrics: Mapping[str, float], now: float) -> bool:
        if metrics.get(RUNNING, 0.0) > 0:
            if now - self.moved_at < self.stuck_after:
                return False
            if not self.verdict.startswith("down #hangs"):
                self.verdict = f"down #requests run and nothing has moved for {now - self.moved_at:.0f} s"
            # vLLM may still report requests that were all aborted. No new ones arrive, so the agent requests a token.
            return True
        self.moved_at = now
        if self.verdict.startswith("down"):
            return True
        self.verdict = UP
        return bool(self.probe_after) and now - self.proven_at >= self.probe_after

    def _suspect(self, now: float) -> bool:
        """Return whether the instance refused a token, or answered so many requests with errors that a probe is due."""
        recent = sum(number for at, number in self.errors if now - at <= WINDOW)
        return bool(self.refusal) or 0 < self.error_limit <= recent

    def counts(self, errors: int, sent: int, now: float) -> None:
        """Record HAProxy's counters of answers 5xx and of bytes, which begin at zero again with each worker."""
        before, self.counted = self.counted or (errors, sent), (errors, sent)
        new = errors - before[0]
        if sent != before[1]:
            self.flowed_at = now
        if new > 0:
            self.errors = (*(each for each in self.errors if now - each[0] <= WINDOW), (now, new))

    def probed(self, fault: str, now: float, refused: bool = False) -> None:
        """Update the state from a probe; ``fault`` is why there was no token, ``refused`` an answer 5xx."""
        self.proven_at = now
        self.refusal = fault if refused else ""
        if refused:
            return
        if not fault:
            self.verdict, self.moved_at, self.errors = UP, now, ()
        elif self.verdict.startswith("down #requests run") and now - self.flowed_at >= self.stuck_after:
            self.verdict = f"down #hangs: {self.verdict.partition('#')[2]}, and {fault}"
        elif not self.verdict.startswith("down"):
            # The first reason says more, so it stays.
            self.verdict = f"down #{fault}"


def read_metrics(text: str) -> dict[str, float]:
    """Return the metrics in WORK and RUNNING, summed over engines and models. Raises ValueError."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and (match["name"] in WORK or match["name"] == RUNNING):
            value = float(match["value"])
            # NaN differs from itself, so a stuck engine would seem to work.
            if math.isfinite(value):
                found[match["name"]] = found.get(match["name"], 0.0) + value
    return found


@contextlib.contextmanager
def deadline(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Connect, and break the connection off after ``seconds``: a timeout of a socket begins again with each byte."""
    connection.connect()
    opened = connection.sock

    def break_off() -> None:
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, break_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def ask(address: str, method: str, path: str, body: bytes | None, timeout: float) -> tuple[int, str, str]:
    """Return status and text of an answer, and why the instance is sick. Raises one of FAULTS."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    ends = time.monotonic() + timeout
    try:
        with deadline(connection, timeout):
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            text = answer.read(MAX_METRICS_BYTES).decode("utf-8", "replace")
            found = answer.status, text, sickness(answer.getheader(SICK, ""))
    except FAULTS:
        if time.monotonic() < ends:
            raise
        found = None
    finally:
        connection.close()
    if found is None or time.monotonic() >= ends:
        raise TimeoutError("no complete answer")
    return found


def sickness(text: str) -> str:
    """Return a reason as HAProxy can take it in a line: printable ASCII, and not too long."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:LONGEST_REASON]


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
        metrics = read_metrics(text) if status == http.client.OK else {}
        watched.sick, watched.sick_since = sick, min(watched.sick_since, time.monotonic()) if sick else math.inf
    except TimeoutError:
        return watched.lost(time.monotonic())
    except FAULTS:
        metrics = {}
    if not metrics:
        return watched.refused(time.monotonic())
    if watched.saw(metrics, time.monotonic()):
        fault, is_refusal = probe(address, model, watched.stuck_after)
        watched.probed(fault, time.monotonic(), is_refusal)
    return None


def watch(address: str, server: Mapping[str, Any], watched: Watched, interval: float) -> None:
    """Check an instance forever, and log changes of its state."""
    while True:
        before = watched.answer
        check_instance(address, server["model"], watched)
        report(server["name"], address, before, watched.answer)
        time.sleep(interval)


def report(name: str, address: str, before: str, after: str) -> None:
    """Log a change of an answer."""
    if after != before and (before or after != UP):
        print(f"{name} ({address}): {after}", flush=True)


@dataclass(frozen=True)
class Counted:
    """A server in HAProxy's counters: whether it is in service, and whether its own check of /health succeeds."""

    up: bool
    healthy: bool
    errors: int
    sent: int


def read_servers(text: str) -> dict[str, Counted]:
    """Return the servers in HAProxy's counters by their names. Raises ValueError."""
    if not text.startswith("# pxname,") or not text.endswith("\n\n"):
        raise ValueError("no complete answer")
    try:
        rows = csv.DictReader(text[2:].splitlines(), strict=True)
        return {
            row["svname"]: Counted(
                row["status"].startswith("UP"),
                # Not the state in service, which has the agent's answer in it. NOLB: the server is stopping.
                int(row["check_health"] or 0) >= int(row["check_rise"] or 0) and not row["status"].startswith("NOLB"),
                int(row["hrsp_5xx"] or 0),
                int(row["bout"] or 0),
            )
            for row in rows
            if row["svname"] not in ("FRONTEND", "BACKEND")
        }
    except (AttributeError, KeyError, TypeError, csv.Error) as exc:
        raise ValueError(f"invalid counters ({exc!r})") from exc


NOT_SEEN = Counted(False, True, 0, 0)


def read_counters(path: str) -> str:
    """Return HAProxy's counters. Raises OSError and ValueError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        connection.sendall(b"show stat -1 4 -1\n")
        ends = time.monotonic() + 10
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
            if time.monotonic() > ends or len(parts) > 10_000:
                raise TimeoutError("no complete answer")
        return b"".join(parts).decode("ascii")


@dataclass
class SharedAddress:
    """Whether this gateway should have the shared address; ``path`` is the file for keepalived, empty for none."""

    path: str
    interval: float
    usable: bool = True
    # The fault that was seen last, since when, and when it was seen.
    fault: str = ""
    since: float = 0.0
    seen_at: float = 0.0

    def saw(self, fault: str, now: float) -> bool:
        """Return whether the gateway is usable; ``fault`` is ``ended``, ``silent``, ``no server`` or nothing."""
        # A process that did not run itself has not seen how long a fault lasted.
        if fault != self.fault or now - self.seen_at > 3 * self.interval + 2:
            self.fault, self.since = fault, now
        self.seen_at = now
        patience = {"ended": ENDED_SECONDS, "silent": SILENT_SECONDS, "no server": NO_SERVER_SECONDS, "": self.interval}
        if now - self.since >= patience[fault]:
            self.usable = not fault
        return self.usable

    def write(self) -> None:
        """Write the file for keepalived if its content changes; keepalived reads it then."""
        if not self.path:
            return
        text = f"{int(not self.usable)}\n"
        with contextlib.suppress(OSError, ValueError), open(self.path, encoding="ascii") as file:
            if file.read() == text:
                return
        try:
            with open(f"{self.path}.new", "w", encoding="ascii") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(text)
            os.replace(f"{self.path}.new", self.path)
            note = f"shared address: this gateway is {'usable' if self.usable else f'not usable: {self.fault}'}"
        except OSError as exc:
            note = f"{self.path}: cannot be written: {exc.strerror}"
        print(note, flush=True)


class HaproxyWatch:
    """Read HAProxy's counters: which servers are up, how many errors they answered."""

    def __init__(self, config: Mapping[str, Any], watched: Mapping[str, Watched]) -> None:
        self.servers, self.watched, self.path = config["servers"], watched, config["stats"]
        self.min_available = config["min_available"]
        self.address = SharedAddress(config["unusable"], config["interval"])

    def check(self, now: float) -> None:
        """Read the counters once and update all instances and the file for keepalived."""
        try:
            found = read_servers(read_counters(self.path))
            fault = self._update(found, now)
        except (ConnectionRefusedError, FileNotFoundError):
            fault = "ended"
        except (OSError, ValueError):
            fault = "silent"
        self.address.saw(fault, now)
        self.address.write()

    def _update(self, found: Mapping[str, Counted], now: float) -> str:
        """Update the instances; return ``no server`` if a service has none."""
        up: dict[str, int] = {}
        better: dict[str, int] = {}
        sick: dict[str, list[str]] = {}
        for address, server in self.servers.items():
            seen = found.get(server["name"], NOT_SEEN)
            # Not the errors of its router, which has some where other hosts than this one are lost.
            router = found.get(f"router:{server['name']}", NOT_SEEN)
            self.watched[address].counts(seen.errors, seen.sent + router.sent, now)
            service = server["service"]
            up[service] = up.get(service, 0) + seen.up
            well = seen.up and not self.watched[address].refusal and not self.watched[address].sick
            better[service] = better.get(service, 0) + well
            if self.watched[address].sick:
                sick.setdefault(service, []).append(address)
        now_up = {address for address, server in self.servers.items() if found.get(server["name"], NOT_SEEN).up}
        spare = {address for service, each in sick.items() for address in self._spare(each, better[service], now_up)}
        for address, server in self.servers.items():
            watched = self.watched[address]
            before = watched.answer
            watched.replaceable = better[server["service"]] > 0
            watched.incomplete = self._missing_beside(server, found)
            watched.spare = address in spare
            report(server["name"], address, before, watched.answer)
        return "" if all(up.values()) else "no server"

    def _spare(self, sick: list[str], others: int, now_up: set[str]) -> list[str]:
        """Return the sick instances of a service that it can do without: the sickest, then those that were sick first.

        So one that is out stays out when another becomes as sick. ``others`` is the number of servers up and well. One
        that is up leaves only when HAProxy has the ones that stay up too: it asks for each server at another moment.
        """

        def rank(address: str) -> tuple[int, float, str]:
            watched = self.watched[address]
            return -watched.severity, watched.sick_since, self.servers[address]["name"]

        order = sorted(sick, key=rank)
        leaving = order[: len(order) - max(0, self.min_available - others)]
        staying = others + len(now_up.intersection(order[len(leaving) :]))
        return leaving if staying >= self.min_available else [each for each in leaving if each not in now_up]

    def _missing_beside(self, server: Mapping[str, Any], found: Mapping[str, Counted]) -> str:
        """Return the first other server of a server's group that HAProxy's own check finds unhealthy, or nothing."""
        group = server.get("group")
        others = [each["name"] for each in self.servers.values() if group and each.get("group") == group]
        missing = (name for name in others if name != server["name"] and not found.get(name, NOT_SEEN).healthy)
        return next(missing, "")

    def run(self) -> None:
        """Check forever."""
        while True:
            self.check(time.monotonic())
            time.sleep(self.address.interval)


class AgentAnswer(socketserver.StreamRequestHandler):
    """Answer one query of HAProxy."""

    timeout = 5

    def handle(self) -> None:
        """Send the state of the requested server."""
        with contextlib.suppress(OSError):
            address = self.rfile.readline(256).decode("ascii", "replace").strip()
            watched = self.server.watched.get(address)  # type: ignore[attr-defined]
            self.wfile.write(f"{watched.answer if watched else UNKNOWN}\n".encode("ascii", "replace"))


class Agent(socketserver.ThreadingTCPServer):
    """Answer HAProxy; one thread checks each instance."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(("127.0.0.1", config["port"]), AgentAnswer)
        limits = (config["stuck_after"], config["probe_after"], config["error_limit"])
        self.watched = {address: Watched(*limits) for address in config["servers"]}
        for address, server in config["servers"].items():
            arguments = (address, server, self.watched[address], config["interval"])
            threading.Thread(target=watch, args=arguments, daemon=True).start()
        threading.Thread(target=HaproxyWatch(config, self.watched).run, daemon=True).start()


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
