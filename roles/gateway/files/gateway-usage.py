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

import calendar
import contextlib
import http.client
import json
import os
import socket
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Mapping, NamedTuple
from urllib.parse import quote

RECORDS_PATH = "/gateway/usage"
# Seconds that an instance may wait for a record, and after a failure.
WAIT, PAUSE = 5, 1.0
# Seconds until an instance that does not count is asked again.
PATIENCE = 30.0
# More files than an instance keeps.
MOST_FILES = 64
MAX_ANSWER_BYTES = 8 * 1024 * 1024
HOUR, DAY = 3600, 86400
# Seconds between two looks at HAProxy's map.
SYNC = 0.25
# Seconds for which a record's clock may be ahead.
AHEAD = 300
# Seconds after which the place in a file is forgotten that no instance has had since.
FORGET = 90 * DAY
FAULTS = (OSError, ValueError, KeyError, TypeError, OverflowError, http.client.HTTPException)
# A larger number in a record is damage. SQLite would refuse it, and all records of that answer with it, for ever.
LARGEST = 10**12
SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    hour INTEGER, gateway TEXT, client TEXT, team TEXT, model TEXT,
    requests INTEGER, aborted INTEGER, uncounted INTEGER, prompt INTEGER, cached INTEGER, completion INTEGER,
    PRIMARY KEY (hour, gateway, client, team, model)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    server TEXT, file TEXT, offset INTEGER, seen INTEGER, PRIMARY KEY (server, file)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS processes (
    server TEXT, process TEXT, number INTEGER, seen INTEGER, PRIMARY KEY (server, process)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gaps (
    hour INTEGER, server TEXT, missing INTEGER, PRIMARY KEY (hour, server)
) WITHOUT ROWID;
"""
ADD = """
INSERT INTO usage VALUES (
    :hour, :gateway, :client, :team, :model, 1, :aborted, :uncounted, :prompt, :cached, :completion
) ON CONFLICT (hour, gateway, client, team, model) DO UPDATE SET
    requests = requests + 1, aborted = aborted + :aborted, uncounted = uncounted + :uncounted,
    prompt = prompt + :prompt, cached = cached + :cached, completion = completion + :completion
"""
ADD_GAP = """
INSERT INTO gaps VALUES (?, ?, ?) ON CONFLICT (hour, server) DO UPDATE SET missing = missing + excluded.missing
"""


class Part(NamedTuple):
    """Records of one file of an instance, and the offset behind them."""

    file: str
    end: int
    records: list[dict[str, Any]]

    @property
    def process(self) -> str:
        """The process that wrote the file; a process may have written several."""
        return self.file.split(".")[1] if self.file.count(".") == 2 else self.file


def read_parts(text: str) -> list[Part]:
    """Return the files in an instance's answer. Raises ValueError; a damaged record is left out."""
    parts: list[Part] = []
    for line in text.split("\n"):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if not isinstance(found, dict):
            continue
        if "file" in found:
            parts.append(Part(str(found["file"]), int(found["end"]), []))
        elif parts:
            parts[-1].records.append(found)
    return parts


def row_of(record: Mapping[str, Any], now: int, oldest: int) -> dict[str, Any]:
    """Return what a record adds. Raises KeyError, ValueError, TypeError and OverflowError for anything else.

    A clock that is wrong must not hide tokens in a month that nobody looks at.
    """
    at = int(record["at"])
    if not oldest <= at <= now + AHEAD:
        at = now
    tokens = {name: int(record[name]) for name in ("prompt", "cached", "completion")}
    if not all(0 <= count <= LARGEST for count in (*tokens.values(), int(record["number"]))):
        raise ValueError("no count")
    names = {name: str(record[name])[:256] for name in ("gateway", "client", "team", "model")}
    # What the gateway writes where a client has no team.
    names["team"] = "" if names["team"] == "-" else names["team"]
    state = record["state"]
    return {
        **names, **tokens, "at": min(at, now), "hour": min(at, now) // HOUR * HOUR,
        "aborted": int(state == "aborted"), "uncounted": int(state == "uncounted"),
        "id": str(record.get("id", ""))[:128],
    }  # fmt: skip


class Store:
    """The database. One thread at a time uses it."""

    def __init__(self, path: str, months: int) -> None:
        self.path, self.months = path, months
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self.pruned_at = 0
        self.fault = ""

    def _open(self) -> sqlite3.Connection:
        if self.connection is None:
            connection = sqlite3.connect(self.path, timeout=2, check_same_thread=False, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.executescript(SCHEMA)
            except sqlite3.Error:
                connection.close()
                raise
            self.connection = connection
        return self.connection

    def offsets(self, server: str) -> dict[str, int]:
        """Return how far the files of a server were read. Raises sqlite3.Error."""
        with self.lock, self._reporting():
            query = "SELECT file, offset FROM files WHERE server = ?"
            return dict(self._open().execute(query, (server,)).fetchall())

    def used(self, since: int) -> list[tuple[str, str, int]]:
        """Return clients, their teams and their tokens in the hours from ``since`` on. Raises sqlite3.Error."""
        with self.lock, self._reporting():
            query = "SELECT client, team, SUM(prompt + completion) FROM usage WHERE hour >= ? GROUP BY client, team"
            return self._open().execute(query, (since,)).fetchall()

    def add(self, server: str, parts: list[Part], now: int) -> tuple[list[dict[str, Any]], int]:
        """Store the records of a server; return what was added, and how many are missing. Raises sqlite3.Error."""
        with self.lock, self._reporting():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                found = self._add(connection, server, parts, now)
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            return found

    def _add(
        self, connection: sqlite3.Connection, server: str, parts: list[Part], now: int
    ) -> tuple[list[dict[str, Any]], int]:
        rows, missing, oldest = [], 0, now - self.months * 31 * DAY
        for part in parts:
            query = "SELECT number FROM processes WHERE server = ? AND process = ?"
            before = (connection.execute(query, (server, part.process)).fetchone() or (None,))[0]
            for record in part.records:
                with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
                    row, number = row_of(record, now, oldest), int(record["number"])
                    missing += max(0, number - before - 1) if before is not None else 0
                    before = number
                    rows.append(row)
            connection.execute(
                "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?)", (server, part.process, before or 0, now)
            )
            connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", (server, part.file, part.end, now))
        connection.executemany(ADD, rows)
        if missing:
            connection.execute(ADD_GAP, (now // HOUR * HOUR, server, missing))
        if now - self.pruned_at >= DAY:
            self._prune(connection, now, oldest)
            self.pruned_at = now
        return rows, missing

    def _prune(self, connection: sqlite3.Connection, now: int, oldest: int) -> None:
        for table in ("usage", "gaps"):
            connection.execute(f"DELETE FROM {table} WHERE hour < ?", (oldest,))  # noqa: S608  (two fixed names)
        for table in ("files", "processes"):
            connection.execute(f"DELETE FROM {table} WHERE seen < ?", (now - FORGET,))  # noqa: S608

    @contextlib.contextmanager
    def _reporting(self) -> Any:
        """Log when the database fails, and when it works again; a damaged one is put aside."""
        try:
            yield
        except sqlite3.Error as exc:
            if not self.fault:
                print(f"{self.path}: {exc}; the records wait at the instances", flush=True)
            self.fault = str(exc)
            if self.connection is not None:
                self.connection.close()
                self.connection = None
            if "malformed" in str(exc) or "not a database" in str(exc):
                self._put_aside()
            raise
        if self.fault:
            print(f"{self.path}: works again", flush=True)
            self.fault = ""

    def _put_aside(self) -> None:
        aside = f"{self.path}.damaged-{int(time.time())}"
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.replace(self.path + suffix, aside + suffix)
        print(f"{self.path}: damaged; it is now {aside}, and a new one is made", flush=True)


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


def window(period: str, now: int) -> tuple[int, int]:
    """Return when the ``minute``, ``day`` or ``month`` of ``now`` begins and ends, in UTC."""
    if period == "month":
        year, month = time.gmtime(now)[:2]
        following = (year + month // 12, month % 12 + 1)
        return calendar.timegm((year, month, 1, 0, 0, 0)), calendar.timegm((*following, 1, 0, 0, 0))
    seconds = {"minute": 60, "day": DAY}[period]
    return now // seconds * seconds, now // seconds * seconds + seconds


class Budgets:
    """The tokens of clients and teams in this minute, day and month, and HAProxy's map of those who used them up.

    HAProxy forgets the map with each reload, so it is compared again several times a second.
    """

    def __init__(self, limits: Mapping[str, Mapping[str, int]], path: str, stats: str) -> None:
        self.limits, self.path, self.stats = limits, path, stats
        self.lock = threading.Lock()
        # The beginning of a window, and the tokens in it.
        self.used: dict[tuple[str, str], tuple[int, int]] = {}
        self.reached = threading.Event()
        self.fault = ""

    def load(self, store: Store, now: int) -> None:
        """Begin with what the database has; a minute begins with nothing. Raises sqlite3.Error."""
        for period in ("day", "month"):
            begins = window(period, now)[0]
            for client, team, tokens in store.used(begins):
                self._count(client, team, period, begins, tokens)

    def add(self, rows: list[dict[str, Any]], now: int) -> None:
        """Count rows of the store."""
        for period in ("minute", "day", "month"):
            begins = window(period, now)[0]
            for row in rows:
                if row["at"] >= begins:
                    self._count(row["client"], row["team"], period, begins, row["prompt"] + row["completion"])

    def _count(self, client: str, team: str, period: str, begins: int, tokens: int) -> None:
        for owner in (client, f"@{team}"):
            limit = self.limits.get(owner, {}).get(period)
            if limit is None:
                continue
            with self.lock:
                since, before = self.used.get((owner, period), (begins, 0))
                before = before if since == begins else 0
                self.used[owner, period] = begins, before + tokens
            if before < limit <= before + tokens:
                self.reached.set()

    def over(self, now: int) -> dict[str, str]:
        """Return what the map should have: for each owner the budget that ends last of those that are used up."""
        found: dict[str, tuple[int, str]] = {}
        with self.lock:
            used = dict(self.used)
        for (owner, period), (since, tokens) in used.items():
            begins, ends = window(period, now)
            limit = self.limits[owner][period]
            if since == begins and tokens >= limit:
                kind = "team" if owner.startswith("@") else "client"
                value = f"{ends}|{kind}|{owner.lstrip('@')}|{limit}|{period}"
                found[owner] = max(found.get(owner, (0, "")), (ends, value))
        return {owner: value for owner, (_ends, value) in found.items()}

    def text(self, now: int) -> str:
        """Return what Prometheus reads: the tokens of each budget, and those that are used in its present window."""
        with self.lock:
            used = dict(self.used)
        lines = []
        for owner, periods in sorted(self.limits.items()):
            kind = "team" if owner.startswith("@") else "client"
            for period, limit in sorted(periods.items()):
                begins, tokens = used.get((owner, period), (0, 0))
                labels = f'kind="{kind}",owner="{escaped(owner.lstrip("@"))}",period="{period}"'
                lines.append(f"inference_usage_budget_tokens{{{labels}}} {limit}")
                present = tokens if begins == window(period, now)[0] else 0
                lines.append(f"inference_usage_budget_used_tokens{{{labels}}} {present}")
        types = [f"# TYPE inference_usage_budget_{name} gauge" for name in ("tokens", "used_tokens")]
        return "\n".join([*types, *sorted(lines), ""]) if lines else ""

    def sync(self, now: int) -> None:
        """Change HAProxy's map to what it should have."""
        requested = self.over(now)
        try:
            lines = self._tell(f"show map {self.path}").splitlines()
            present = dict(line.split()[1:3] for line in lines if len(line.split()) == 3 and line.startswith("0x"))
            commands = [f"del map {self.path} {owner}" for owner in present if owner not in requested]
            for owner, value in requested.items():
                if present.get(owner) != value:
                    commands.append(f"{'set' if owner in present else 'add'} map {self.path} {owner} {value}")
            fault = "".join(self._tell(command).strip() for command in commands)
        except (OSError, ValueError) as exc:
            fault = f"{self.stats}: {exc}"
        if fault and fault != self.fault:
            print(f"budgets are not enforced: {fault}", flush=True)
        self.fault = fault

    def _tell(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(self.stats)
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode("utf-8", "replace")

    def run(self) -> None:
        """Keep HAProxy's map forever."""
        while self.limits:
            self.reached.wait(SYNC)
            self.reached.clear()
            self.sync(int(time.time()))


def log_lines(rows: list[dict[str, Any]], gateway: str) -> str:
    """Return a line of JSON for each answer of a gateway to a request that has an id."""
    names = ("id", "client", "team", "model", "aborted", "uncounted", "prompt", "cached", "completion")
    return "".join(
        json.dumps({name: row[name] for name in names}) + "\n"
        for row in rows
        if row["id"] and row["gateway"] == gateway
    )


def escaped(text: str) -> str:
    """Return the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class NotCountedError(Exception):
    """The instance has no records, because it was started by an earlier release."""


def ask(address: str, offsets: Mapping[str, int]) -> list[Part]:
    """Return the records of an instance after the offsets. Raises NotCountedError and one of FAULTS."""
    # Names begin with a time, and an instance has few files.
    after = ",".join(f"{name}:{offsets[name]}" for name in sorted(offsets)[-MOST_FILES:])
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
                self.offsets.update((part.file, part.end) for part in parts)
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
