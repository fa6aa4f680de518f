# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the hosts of an instance together: where one is lost, end this side too, so that all start again.

    vllm-group.py NAME

Started as vllm-group@NAME.service beside vllm@NAME.service on each host of the group. vLLM does not do this itself: a
worker whose head is gone runs on for ever, and a head without its worker answers GET /health with 200. So this looks at
what the kernel knows: the TCP connections of the unit's processes with the other hosts and, where a host lost its
power and closed none of them, whether it still answers. It opens no port, and no host needs a key for another: each
ends its own vLLM, and systemd starts it again. Where hosts compute prompts for this one, a silent one ends nothing: the
router's connections with it are closed, so that its requests are repeated elsewhere.

/run/vllm-group/NAME/state tells vllm-wait-ready.py whether all hosts are connected. While one is missing, gateways see
GET /health answer 503.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

CONFIG, RUN, STATE = Path("/etc/vllm"), Path("/run/vllm"), Path("/run/vllm-group")
PROC = Path("/proc")
INTERVAL = 2.0
# Seconds without a connection: closed sockets are certain, but a few may be replaced by others.
LOST_AFTER = 6.0
# Seconds without an answer, longer than a switch needs to start again.
SILENT_AFTER = 20.0
PROBE_TIMEOUT = 2.0
# The first of these TCP ports that a host answers is asked from then on. A refusal is an answer, and leaves no line in
# a log: nothing listens on the first one.
PROBE_PORTS = (9, 22)
ESTABLISHED = "01"
_RUNNING = re.compile(r"(?m)^vllm:num_requests_running(?:\{[^\n]*\})? +(\S+)")
_TOKENS = re.compile(r"(?m)^vllm:(?:prompt|generation)_tokens_total(?:\{[^\n]*\})? +(\S+)")


@dataclass(frozen=True)
class Unit:
    """The instance's unit: its state and the id of this run of it."""

    active: str
    sub: str
    invocation: str

    @property
    def runs(self) -> bool:
        """Whether vLLM runs or starts, so that it can be ended; a requested stop is not touched."""
        return self.active in ("active", "activating") and self.sub not in ("auto-restart", "auto-restart-queued")


@dataclass
class Watch:
    """What is known of the other hosts in this run of the unit. It counts only hosts that were connected in it."""

    watched: list[str]
    stall: float = 0.0
    invocation: str = ""
    seen: set[str] = field(default_factory=set)
    missing: dict[str, float] = field(default_factory=dict)
    silent: dict[str, float] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    tokens: float = -1.0
    since: float = 0.0

    def begin(self, invocation: str) -> None:
        """Forget what was seen in another run of the unit."""
        if invocation != self.invocation:
            self.invocation = invocation
            for known in (self.seen, self.missing, self.silent, self.answered):
                known.clear()
            self.tokens = -1.0

    @property
    def complete(self) -> bool:
        """Whether every host is connected now."""
        return self.seen == set(self.watched) and not self.missing

    def connections(self, now: float, counts: dict[str, int]) -> str:
        """Take the number of connections with each host; return why this side has to end, else an empty text."""
        for address in self.watched:
            if counts.get(address):
                self.seen.add(address)
                self.missing.pop(address, None)
            elif address in self.seen and now - self.missing.setdefault(address, now) >= LOST_AFTER:
                return f"no connection with {address} is left"
        return ""

    def answers(self, now: float, answers: dict[str, bool]) -> str:
        """Take which hosts answer; return why this side has to end."""
        for address, silent in self.silences(now, answers).items():
            if address in self.seen:
                return f"{address} has not answered for {silent:.0f} s"
        return ""

    def silences(self, now: float, answers: dict[str, bool]) -> dict[str, float]:
        """Take which hosts answer; return the seconds of those that stopped a while ago."""
        for address, answer in answers.items():
            if answer:
                self.answered.add(address)
                self.silent.pop(address, None)
            elif address in self.answered:
                self.silent.setdefault(address, now)
        return {address: now - since for address, since in self.silent.items() if now - since >= SILENT_AFTER}

    def progress(self, now: float, running: float, tokens: float) -> str:
        """Take running requests and tokens so far; return why this side has to end: requests that do not move."""
        if not running or tokens != self.tokens:
            self.tokens, self.since = tokens, now
        elif self.stall and now - self.since >= self.stall:
            return f"{running:g} requests have run for {now - self.since:.0f} s without a token"
        return ""


def processes_of(name: str, container: str) -> Iterator[str]:
    """Yield the processes of the unit and, with docker, of its container, which is in no unit."""
    scope = f"|{container}" if container else ""
    of_unit = re.compile(rf"/vllm@{re.escape(name)}\.service(?:/|$){scope}", re.MULTILINE)
    for entry in os.listdir(PROC):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if of_unit.search((PROC / entry / "cgroup").read_text(encoding="utf-8")):
                    yield entry


def sockets_of(processes: Iterator[str]) -> set[str]:
    """Return the inodes of the processes' sockets."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(PROC / process / "fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(PROC / process / "fd" / descriptor)
                    if target.startswith("socket:["):
                        found.add(target[8:-1])
    return found


def connections(table: str, inodes: set[str], served: int) -> Counter[str]:
    """Return how many established connections there are with each address, in the text of /proc/net/tcp or tcp6.

    Those at the port ``served`` are requests and say nothing about the group.
    """
    found: Counter[str] = Counter()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) <= 9 or fields[3] != ESTABLISHED or fields[9] not in inodes:
            continue
        if int(fields[1].rsplit(":", 1)[1], 16) != served:
            found[address_of(fields[2].rsplit(":", 1)[0])] += 1
    return found


def address_of(text: str) -> str:
    """Return an address of the kernel's tables, which are hexadecimal words in the processor's order of bytes."""
    words = [bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8)]
    raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def answers(address: str, port: int) -> bool:
    """Return whether a host answers at a port, be it with a refusal."""
    try:
        socket.create_connection((address, port), PROBE_TIMEOUT).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


class Host:
    """What is read of this host, and done to it."""

    def __init__(self, name: str, group: dict[str, Any]) -> None:
        self.name, self.group = name, group
        self.unit_name = f"vllm@{name}.service"
        # The port that each host answers at.
        self.ports: dict[str, int] = {}
        # Hosts whose connections could not be closed.
        self.told: set[str] = set()
        # Where a router runs on this host: the hosts that compute prompts for it, with the port of their vLLM.
        listed = group.get("prefill", []) if group.get("router") else []
        self.prefill = {host.strip("[]"): port for host, _colon, port in (each.rpartition(":") for each in listed)}

    def unit(self) -> Unit:
        """Return the state of the unit."""
        words = ["systemctl", "show", self.unit_name, "--property=ActiveState,SubState,InvocationID"]
        text = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        return Unit(*(found.get(key, "") for key in ("ActiveState", "SubState", "InvocationID")))

    def container(self) -> str:
        """Return the id of the instance's container with docker, else an empty text."""
        if self.group["engine"] != "docker":
            return ""
        words = [self.group["command"], "inspect", "--format", "{{.Id}}", f"vllm-{self.name}"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

    def counts(self) -> dict[str, int]:
        """Return the number of connections with each address."""
        inodes = sockets_of(processes_of(self.name, self.container()))
        found: Counter[str] = Counter()
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                text = (PROC / "net" / table).read_text(encoding="utf-8")
                found += connections(text, inodes, int(self.group["listen"].get("port", 0)))
        return dict(found)

    def asked(self, addresses: list[str]) -> dict[str, bool]:
        """Return which hosts answer."""
        found = {}
        for address in addresses:
            ports = [self.ports[address]] if address in self.ports else PROBE_PORTS
            port = next((port for port in ports if answers(address, port)), None)
            if port is not None:
                self.ports[address] = port
            found[address] = port is not None
        return found

    def load(self) -> tuple[float, float] | None:
        """Return how many requests run and how many tokens there were, None where vLLM does not tell.

        What runs is vLLM's own figure, or the number of requests without an answer where that is larger: the engine
        reports after each step, so when it hangs in one, a request that came to an idle instance is not in the figure.
        """
        listen = self.group["listen"]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen["host"], listen["host"])  # noqa: S104
        connection = http.client.HTTPConnection(host, listen["port"], timeout=5)
        if self.group["tls"]:
            # It is asked on its own host, by an address that is in no certificate.
            context = ssl._create_unverified_context()  # noqa: S323
            connection = http.client.HTTPSConnection(host, listen["port"], timeout=5, context=context)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
            running, tokens = _RUNNING.findall(text), _TOKENS.findall(text)
            if not running or not tokens:
                return None
            unanswered = float(answer.headers.get("unanswered", 0))
            return max(unanswered, sum(map(float, running))), sum(map(float, tokens))
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def publish(self, invocation: str, complete: bool) -> None:
        """Tell vllm-wait-ready.py, and gateways through availability.py, whether all hosts are connected."""
        place = STATE / self.name / "state"
        partial = place.with_suffix(".partial")
        partial.write_text(json.dumps({"invocation": invocation, "complete": complete}), encoding="utf-8")
        partial.replace(place)
        ready, withdrawn = RUN / self.name / "ready", RUN / self.name / "withdrawn"
        with contextlib.suppress(OSError):
            # availability.py tells about unanswered requests only where somebody asks.
            (RUN / self.name / "watched").touch()
            if not complete and ready.exists():
                ready.rename(withdrawn)
            elif complete and withdrawn.exists():
                withdrawn.rename(ready)

    def close_connections(self, address: str, port: str) -> None:
        """Close the router's connections with a prefill host: the kernel would keep them for 12 minutes and more."""
        host = f"[{address}]" if ":" in address else address
        words = ["ss", "--kill", "--no-header", "--tcp", "--numeric", "dst", host, "dport", "=", f":{port}"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            closed, wrong = len(done.stdout.splitlines()), done.stderr.strip()
        except OSError as exc:
            closed, wrong = 0, str(exc)
        if closed:
            print(f"{address} is silent: closed the router's connections with it ({closed})", flush=True)
        elif wrong and address not in self.told:
            # Once: this comes every two seconds while the host is silent.
            self.told.add(address)
            print(f"{address} is silent, and the router's connections with it stay open: {wrong}", flush=True)

    def end(self) -> None:
        """End vLLM at once: its requests are lost already, and systemd starts it again."""
        words = ["systemctl", "kill", f"--signal={signal.SIGKILL.value}", self.unit_name]
        subprocess.run(words, check=False)


def check(host: Host, watch: Watch, clock: Callable[[], float] = time.monotonic) -> str:
    """Look once; return why the instance was ended, else an empty text."""
    unit = host.unit()
    if not unit.runs:
        return ""
    watch.begin(unit.invocation)
    why = watch.connections(clock(), host.counts())
    host.publish(watch.invocation, watch.complete)
    why = why or watch.answers(clock(), host.asked(watch.watched))
    asked = host.asked(list(host.prefill))
    silent = watch.silences(clock(), asked) if asked else {}
    for address in silent.keys() & asked.keys():
        host.close_connections(address, host.prefill[address])
    if not why and watch.stall and unit.active == "active" and host.group["listen"]:
        load = host.load()
        why = watch.progress(clock(), *load) if load else ""
    # The unit may have ended and begun again meanwhile, and that run has done nothing wrong.
    if why and host.unit() == unit:
        host.end()
        return why
    return ""


def main() -> None:
    """Run the command of the command line."""
    name = sys.argv[1]
    group = json.loads((CONFIG / f"{name}.group.json").read_text(encoding="utf-8"))
    host, watch = Host(name, group), Watch(group["watched"], group["stall"])
    print(f"Watching {', '.join(group['watched']) or 'no other host'} as {group['role']} of {name}", flush=True)
    complete = False
    while True:
        why = check(host, watch)
        if why:
            print(f"{why}: ended vLLM, so that all hosts of {name} start again", flush=True)
        if watch.complete != complete:
            complete = watch.complete
            print("All hosts are connected" if complete else "Not all hosts are connected", flush=True)
        time.sleep(INTERVAL)


if __name__ == "__main__":
    main()
