# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of a gateway with the tokens of its clients."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from typing import Any

from ..common.lines_host import write_line
from .record import DAY, HOUR, Part, row_of

# Files and processes of a server whose places are known, those that were read last; an instance keeps fewer.
KEPT = 256
# Different names in the records of a server; the rest has one row. One that is taken over names ever new ones.
NAMES = 4096
SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    hour INTEGER, gateway TEXT, client TEXT, team TEXT, model TEXT,
    requests INTEGER, aborted INTEGER, uncounted INTEGER, prompt INTEGER, cached INTEGER, completion INTEGER,
    PRIMARY KEY (hour, gateway, client, team, model)
) WITHOUT ROWID;
-- A larger "seen" was read later. Clocks jump, so it is no time, though it was one in databases of earlier releases.
CREATE TABLE IF NOT EXISTS files (
    server TEXT, file TEXT, offset INTEGER, seen INTEGER, PRIMARY KEY (server, file)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS processes (
    server TEXT, process TEXT, number INTEGER, seen INTEGER, PRIMARY KEY (server, process)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gaps (
    hour INTEGER, server TEXT, missing INTEGER, PRIMARY KEY (hour, server)
) WITHOUT ROWID;
-- Servers that have proven once that an answer is their own.
CREATE TABLE IF NOT EXISTS proven (server TEXT PRIMARY KEY) WITHOUT ROWID;
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


class Store:
    """The database. One thread at a time uses it."""

    def __init__(self, path: str, months: int) -> None:
        self.path, self.months = path, months
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self.pruned_at = 0
        self.names: dict[str, set[tuple[str, ...]]] = {}
        # Servers that know their places, and those that have to ask again, because the database may be another one.
        self.begun: set[str] = set()
        self.stale: set[str] = set()
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
        """Return how far the files of a server were read, in the order of reading. Raises sqlite3.Error."""
        with self.lock, self._reporting():
            query = "SELECT file, offset FROM files WHERE server = ? ORDER BY seen"
            found = dict(self._open().execute(query, (server,)).fetchall())
            self.begun.add(server)
            self.stale.discard(server)
            return found

    def proven(self, server: str) -> bool:
        """Return whether a server has proven an answer. Raises sqlite3.Error."""
        with self.lock, self._reporting():
            return bool(self._open().execute("SELECT 1 FROM proven WHERE server = ?", (server,)).fetchall())

    def set_proven(self, server: str) -> None:
        """Keep that a server has proven an answer. Raises sqlite3.Error."""
        with self.lock, self._reporting():
            self._open().execute("INSERT OR IGNORE INTO proven VALUES (?)", (server,))

    def used(self, since: int) -> list[tuple[str, str, int]]:
        """Return clients, their teams and their tokens in the hours from ``since`` on. Raises sqlite3.Error."""
        with self.lock, self._reporting():
            # Not SUM, which ends with an error beyond SQLite's numbers.
            tokens = "CAST(TOTAL(prompt + completion) AS INTEGER)"
            query = f"SELECT client, team, {tokens} FROM usage WHERE hour >= ? GROUP BY client, team"  # noqa: S608
            return self._open().execute(query, (since,)).fetchall()

    def add(self, server: str, parts: list[Part], now: int) -> tuple[list[dict[str, Any]], int]:
        """Store the records of a server; return what was added, and how many are missing. Raises sqlite3.Error.

        Each row has the ``process`` and the ``number`` of its record.
        """
        with self.lock:
            if server in self.stale:
                raise sqlite3.DatabaseError("the places of this server may be those of another database")
            with self._reporting():
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
            query = "SELECT IFNULL(MAX(seen), 0) + 1 FROM files WHERE server = ?"
            seen = connection.execute(query, (server,)).fetchone()[0]
            query = "SELECT number FROM processes WHERE server = ? AND process = ?"
            before = (connection.execute(query, (server, part.process)).fetchone() or (None,))[0]
            for record in part.records:
                with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
                    row, number = row_of(record, now, oldest), int(record["number"])
                    if before is not None and number <= before:
                        continue
                    missing += max(0, number - before - 1) if before is not None else 0
                    before = number
                    rows.append({**self._bounded(server, row), "process": part.process, "number": number})
            connection.execute(
                "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?)", (server, part.process, before or 0, seen)
            )
            connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", (server, part.file, part.end, seen))
        for table in ("files", "processes"):
            # NULL, which removes nothing, for a server with fewer.
            last = f"SELECT seen FROM {table} WHERE server = ?1 ORDER BY seen DESC LIMIT 1 OFFSET ?2"  # noqa: S608
            connection.execute(f"DELETE FROM {table} WHERE server = ?1 AND seen <= ({last})", (server, KEPT))  # noqa: S608
        connection.executemany(ADD, rows)
        if missing:
            connection.execute(ADD_GAP, (now // HOUR * HOUR, server, missing))
        if now - self.pruned_at >= DAY:
            self._prune(connection, oldest)
            self.pruned_at = now
        return rows, missing

    def _bounded(self, server: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row, as one of "unknown" where its server has had too many names."""
        names, known = ("gateway", "client", "team", "model"), self.names.setdefault(server, set())
        key = tuple(row[name] for name in names)
        if key not in known and len(known) >= NAMES:
            return {**row, **dict.fromkeys(names, "unknown")}
        known.add(key)
        return row

    def _prune(self, connection: sqlite3.Connection, oldest: int) -> None:
        for table in ("usage", "gaps"):
            connection.execute(f"DELETE FROM {table} WHERE hour < ?", (oldest,))  # noqa: S608  (two fixed names)

    @contextlib.contextmanager
    def _reporting(self) -> Any:
        """Log when the database fails, and when it works again; a damaged one is put aside."""
        try:
            yield
        except sqlite3.Error as exc:
            if not self.fault:
                write_line(f"{self.path}: {exc}; the records wait at the instances")
            self.fault = str(exc)
            self.stale |= self.begun
            if self.connection is not None:
                self.connection.close()
                self.connection = None
            if "malformed" in str(exc) or "not a database" in str(exc):
                self._put_aside()
            raise
        if self.fault:
            write_line(f"{self.path}: works again")
            self.fault = ""

    def _put_aside(self) -> None:
        aside = f"{self.path}.damaged-{int(time.time())}"
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.replace(self.path + suffix, aside + suffix)
        write_line(f"{self.path}: damaged; it is now {aside}, and a new one is made")
