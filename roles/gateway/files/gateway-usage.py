# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Store how many tokens the clients of the gateways used.

    gateway-usage.py CONFIG

CONFIG is JSON: ``gateway`` (the name of this gateway), ``servers`` (``ADDRESS:PORT`` -> name), ``database`` (a file of
SQLite), ``months`` to keep, ``port`` for Prometheus on the loopback address (GET /metrics/usage), ``budgets`` (the
tokens for ``minute``, ``day`` and ``month`` of clients, and of teams with @ in front), ``stats`` (a socket of HAProxy)
and ``map``, where HAProxy looks up whose budget is used up. With ``log`` each answer of this gateway is a line of JSON
with the id of its request.

Each instance keeps a record of each answer that a gateway asked it to count (vllm_usage.py). A thread for each instance
reads them all, whichever gateway served the request, so every gateway has all figures, and none is lost with a gateway.
How far it has read is stored in the same transaction, so a record counts once. While the database is full or locked the
records wait at the instances. Each record has the next number of its process: a gap in the numbers is stored too.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Mapping
from urllib.parse import quote

from gateway_usage_budgets import Budgets, escaped
from gateway_usage_store import Part, Store, read_parts

RECORDS_PATH = "/gateway/usage"
# Seconds that an instance may wait for a record, and after a failure.
WAIT, PAUSE = 5, 1.0
# Seconds until an instance that does not count is asked again.
PATIENCE = 30.0
# More files than an instance keeps.
MOST_FILES = 64
MAX_ANSWER_BYTES = 8 * 1024 * 1024
FAULTS = (OSError, ValueError, KeyError, TypeError, OverflowError, http.client.HTTPException)


class Counters:
    """What Prometheus reads: counters since the start, of the requests that this gateway served."""

    def __init__(self, gateway: str, store: Store) -> None:
        self.gateway, self.store = gateway, store
        self.lock = threading.Lock()
        self.tokens: dict[tuple[str, str, str], list[int]] = {}
        self.missing = 0
        # Why a server is not counted, by its name; empty for one that is.
        self.servers: dict[str, str] = {}

    def add(self, rows: list[dict[str, Any]], missing: int) -> None:
        """Add rows of the store."""
        with self.lock:
            self.missing += missing
            for row in rows:
                if row["gateway"] == self.gateway:
                    key = row["client"], row["team"], row["model"]
                    sums = self.tokens.setdefault(key, [0, 0, 0, 0])
                    for number, value in enumerate((1, row["prompt"], row["cached"], row["completion"])):
                        sums[number] += value

    def text(self) -> str:
        """Return the page."""
        with self.lock:
            tokens, servers = {key: list(sums) for key, sums in self.tokens.items()}, dict(self.servers)
            missing = self.missing
        lines = ["# TYPE inference_usage_requests_total counter", "# TYPE inference_usage_tokens_total counter"]
        for (client, team, model), sums in sorted(tokens.items()):
            labels = f'client="{escaped(client)}",team="{escaped(team)}",model="{escaped(model)}"'
            lines.append(f"inference_usage_requests_total{{{labels}}} {sums[0]}")
            for kind, value in zip(("prompt", "cached", "completion"), sums[1:]):
                lines.append(f'inference_usage_tokens_total{{{labels},kind="{kind}"}} {value}')
        lines += ["# TYPE inference_usage_missing_records_total counter"]
        lines += [f"inference_usage_missing_records_total {missing}"]
        lines += ["# TYPE inference_usage_store_up gauge", f"inference_usage_store_up {int(not self.store.fault)}"]
        lines += ["# TYPE inference_usage_server_counted gauge"]
        lines += [
            f'inference_usage_server_counted{{server="{escaped(name)}"}} {int(not why)}'
            for name, why in sorted(servers.items())
        ]
        return "\n".join([*lines, ""])


def log_lines(rows: list[dict[str, Any]], gateway: str) -> str:
    """Return a line of JSON for each answer of a gateway to a request that has an id."""
    names = ("id", "client", "team", "model", "aborted", "uncounted", "prompt", "cached", "completion")
    return "".join(
        json.dumps({name: row[name] for name in names}) + "\n"
        for row in rows
        if row["id"] and row["gateway"] == gateway
    )


class NotCountedError(Exception):
    """The instance has no records, because it was started by an earlier release."""


def ask(address: str, offsets: Mapping[str, int]) -> list[Part]:
    """Return the records of an instance after the offsets. Raises NotCountedError and one of FAULTS."""
    # An instance has few files, and those were read last.
    after = ",".join(f"{name}:{offsets[name]}" for name in list(offsets)[-MOST_FILES:])
    connection = http.client.HTTPConnection(address, timeout=WAIT + 10)
    try:
        connection.request("GET", f"{RECORDS_PATH}?wait={WAIT}&after={quote(after, safe=':,')}")
        answer = connection.getresponse()
        text = answer.read(MAX_ANSWER_BYTES).decode("utf-8", "replace")
    finally:
        connection.close()
    if answer.status == http.client.NOT_FOUND:
        raise NotCountedError
    if answer.status != http.client.OK:
        raise ValueError(f"HTTP {answer.status}")
    return read_parts(text)


class Follower:
    """Reads the records of one instance."""

    def __init__(
        self, address: str, server: str, store: Store, counters: Counters, budgets: Budgets, log: bool = False
    ) -> None:
        self.address, self.server, self.store = address, server, store
        self.counters, self.budgets, self.log = counters, budgets, log
        self.offsets: dict[str, int] | None = None

    def step(self) -> float:
        """Read once; return the seconds until the next time."""
        try:
            if self.offsets is None:
                self.offsets = self.store.offsets(self.server)
            parts = ask(self.address, self.offsets)
            if parts:
                now = int(time.time())
                rows, missing = self.store.add(self.server, parts, now)
                self.budgets.add(rows, now)
                for part in parts:
                    self.offsets.pop(part.file, None)
                    self.offsets[part.file] = part.end
                self.counters.add(rows, missing)
                if self.log:
                    print(log_lines(rows, self.counters.gateway), end="", flush=True)
                self._report_missing(missing)
        except NotCountedError:
            self._state("counts no tokens; restart the instance, so that it loads the middleware of this release")
            return PATIENCE
        except sqlite3.Error:
            # A new database begins with what the instances still have.
            self.offsets = None
            return PAUSE
        except FAULTS as exc:
            self._state(f"no records: {type(exc).__name__}")
            return PAUSE
        self._state("")
        return 0.01

    def _state(self, why: str) -> None:
        if self.counters.servers.get(self.server, "") != why:
            print(f"{self.server} ({self.address}): {why or 'is counted'}", flush=True)
        self.counters.servers[self.server] = why

    def _report_missing(self, missing: int) -> None:
        if missing:
            print(f"{self.server} ({self.address}): {missing} records are missing", flush=True)

    def run(self) -> None:
        """Read forever."""
        while True:
            time.sleep(self.step())


class Page(BaseHTTPRequestHandler):
    """Answers Prometheus."""

    timeout = 5

    def do_GET(self) -> None:
        """Send the counters."""
        known = self.path == "/metrics/usage"
        text = self.server.counters.text() + self.server.budgets.text(int(time.time())) if known else ""  # type: ignore[attr-defined]
        body = text.encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


def follow(followers: list[Follower], store: Store, budgets: Budgets) -> None:
    """Start all threads, once the database tells what was used before."""
    while True:
        try:
            budgets.load(store, int(time.time()))
            break
        except sqlite3.Error:
            time.sleep(PAUSE)
    for run in (budgets.run, *(follower.run for follower in followers)):
        threading.Thread(target=run, daemon=True).start()


def main() -> None:
    """Follow all instances until the unit stops."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        config = json.load(file)
    threading.stack_size(512 * 1024)
    store = Store(config["database"], config["months"])
    counters = Counters(config["gateway"], store)
    budgets = Budgets(config["budgets"], config["map"], config["stats"])
    common = (store, counters, budgets, config.get("log", False))
    followers = [Follower(address, name, *common) for address, name in config["servers"].items()]
    threading.Thread(target=follow, args=(followers, store, budgets), daemon=True).start()
    with ThreadingHTTPServer(("127.0.0.1", config["port"]), Page) as server:
        server.counters, server.budgets = counters, budgets  # type: ignore[attr-defined]
        server.serve_forever()


if __name__ == "__main__":
    main()
