# SPDX-License-Identifier: GPL-3.0-or-later
"""The door of an engine host: gateways start and stop replicas through it, put them to sleep and wake them.

It does nothing else, for the instances that its file names only, and for a gateway that has the key of this host only.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import socket
import socketserver
import subprocess
import threading
import time
from typing import Any, Mapping

from ..common.bounded_server_host import BoundedServer
from ..common.foreign_files_host import ForeignDirectory
from ..common.lines_host import write_line
from .marks import CONFIG_DIR, RUN_DIR, SPARE, STOPPED_DIR, unit_of
from .scale_door import (
    KEYS_FILE,
    MOST_BYTES,
    PORT,
    SLEEP,
    START,
    STOP,
    WAKE,
    Board,
    RefusedError,
    gateway_in,
    order_in,
    seal,
    served_in,
    unseal,
)
from .systemd_host import show_instances

# Seconds of a connection, and connections at the same time, of addresses that have proven a key as of all others.
# KEPT: so long an answer of systemd is good.
SECONDS, MOST = 5.0, 16
KEPT = 0.9
_PROPERTIES = ("ActiveState", "SubState", "ActiveEnterTimestampMonotonic", "NRestarts")


class Door(BoundedServer):
    """Listens for gateways."""

    request_queue_size = MOST
    # A change by systemd may take longer than what is read.
    seconds = math.inf

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.host, self.instances = str(config["host"]), dict(config["instances"])
        # The units' properties, and until when they are good: each gateway asks every second.
        self.units: dict[str, dict[str, str]] = {}
        self.good_until = 0.0
        self.board, self.lock = Board(), threading.Lock()
        # Addresses that have proven what they are, and the places of both kinds: those of gateways are nobody else's.
        self.proven: set[str] = set()
        self.places = {proven: threading.BoundedSemaphore(MOST) for proven in (False, True)}
        self.address_family = socket.AF_INET6 if ":" in config["listen"] else socket.AF_INET
        super().__init__((config["listen"], config.get("port", PORT)), Visit)

    def free_for(self, address: str) -> threading.BoundedSemaphore:
        """Return the places that are there for an address."""
        return self.places[address in self.proven]

    def answer(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a gateway asks for; return who decides, what gateways report, and the state of the instances."""
        now = time.monotonic()
        gateway = gateway_in(document, self.host)
        verb, name = order_in(document, self.instances)
        with self.lock:
            self.board.report(gateway, document.get("report"), now)
            for each in served_in(document, self.instances):
                self.board.take(gateway, each, now)
            if verb and self.board.holder(name) != gateway:
                raise RefusedError(f"{self.board.holder(name) or 'nobody'} decides")
            if verb:
                self.act(verb, name)
                self.good_until = now
                write_line(f"{gateway}: {verb} {name}")
            reports = {each: report for each, (_at, report) in self.board.reports.items()}
            return {"reports": reports, "instances": self.states(now)}

    def act(self, verb: str, name: str) -> None:
        """Start or stop a unit, or set the mark that keeps gateways from sending requests. Raises OSError."""
        marks, stopped = ForeignDirectory(f"{RUN_DIR}/{name}"), f"{STOPPED_DIR}/{name}"
        if verb == WAKE:
            marks.remove(SPARE)
        elif verb == SLEEP:
            marks.touch(SPARE)
        elif verb == STOP:
            # What a person stops stays stopped, so this notes what it stops. Before the stop, so that one that is
            # killed in between has not lost it.
            with open(stopped, "w", encoding="ascii") as file:
                file.write(str(time.monotonic()))
            try:
                _systemctl("stop", name)
            except OSError:
                # It runs on, and a stop that comes later is a person's.
                os.unlink(stopped)
                raise
        elif verb == START and os.path.exists(stopped):
            _systemctl("start", name)

    def states(self, now: float) -> dict[str, Any]:
        """Return the state of each instance: of its unit, for how many seconds, whether it sleeps, who stopped it."""
        found = {}
        if now >= self.good_until:
            self.units, self.good_until = show_instances(list(self.instances), _PROPERTIES), now + KEPT
        for name, unit in self.units.items():
            active, stopped = unit.get("ActiveState", ""), f"{STOPPED_DIR}/{name}"
            entered = unit.get("ActiveEnterTimestampMonotonic", "")
            since = int(entered) / 1e6 if entered.isdecimal() and active == "active" else now
            if active == "active" and since > _stopped_at(stopped):
                # A person or site.yml has started it meanwhile, or this program. The stop may still be in the queue.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(stopped)
            found[name] = {
                "holder": self.board.holder(name),
                "active": active,
                "sub": unit.get("SubState", ""),
                "restarts": unit.get("NRestarts", "0") != "0",
                "seconds": round(now - since),
                "spare": ForeignDirectory(f"{RUN_DIR}/{name}").has(SPARE),
                "stopped": os.path.exists(stopped),
            }
        return found


class Visit(socketserver.BaseRequestHandler):
    """One connection of a gateway."""

    server: Door

    def handle(self) -> None:
        """Answer one line; one without the proof gets no answer."""
        nonce = secrets.token_hex(32)
        with contextlib.suppress(OSError):
            self.request.settimeout(SECONDS)
            self.request.sendall(f"{nonce}\n".encode())
            line = read_line(self.request, time.monotonic() + SECONDS)
            try:
                secret, document = unseal(_keys(), nonce, line)
            except RefusedError:
                return
            self.server.proven.add(self.client_address[0])
            self.server.kept.add(self.request)
            try:
                answer = self.server.answer(document)
            except (RefusedError, OSError) as exc:
                answer = {"error": str(exc)}
            self.request.sendall(seal(secret, f"{nonce} answer", answer))


def read_line(connection: socket.socket, until: float, most: int = MOST_BYTES) -> bytes:
    """Return a line. Raises OSError where it is too long, or not complete in time."""
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.01, until - time.monotonic()))
        part = connection.recv(65536)
        line += part
        if not part or len(line) > most or time.monotonic() > until:
            raise OSError("no complete line")
    return line


def _keys() -> list[str]:
    """Return the keys of this host: two while the gateways' secret changes."""
    try:
        with open(KEYS_FILE, encoding="ascii") as file:
            return file.read(1024).split()
    except (OSError, ValueError):
        return []


def _stopped_at(path: str) -> float:
    """Return when this program has stopped an instance, since the boot; 0 where it has not, or does not say it."""
    try:
        with open(path, encoding="ascii") as file:
            return float(file.read(64))
    except (OSError, ValueError):
        return 0.0


def _systemctl(verb: str, name: str) -> None:
    """Have systemd begin to start or stop a unit. Raises OSError."""
    try:
        subprocess.run(
            ["systemctl", verb, "--no-block", "--", unit_of(name)], check=True, capture_output=True, timeout=SECONDS
        )
    except subprocess.SubprocessError as exc:
        raise OSError(f"systemctl {verb} {unit_of(name)} failed: {exc}") from exc


def wake_all() -> list[str]:
    """Let gateways send requests to all instances again; return the names of those that slept. Raises OSError."""
    woken = []
    for name in sorted(os.listdir(RUN_DIR)) if os.path.isdir(RUN_DIR) else ():
        marks = ForeignDirectory(f"{RUN_DIR}/{name}")
        if marks.has(SPARE):
            marks.remove(SPARE)
            woken.append(name)
    return woken


def start_all() -> list[str]:
    """Begin to start all instances that gateways have stopped, and return their names. Raises OSError."""
    with open(f"{CONFIG_DIR}/scale.json", encoding="utf-8") as file:
        stopped = [name for name in sorted(json.load(file)["instances"]) if os.path.exists(f"{STOPPED_DIR}/{name}")]
    for name in stopped:
        _systemctl("start", name)
    return stopped


def serve(path: str) -> None:
    """Serve until the unit stops."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    with Door(config) as door:
        door.serve_forever()
