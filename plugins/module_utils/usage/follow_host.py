# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the records of an instance, as they come, into the database of a gateway."""

from __future__ import annotations

import contextlib
import hmac
import http.client
import os
import sqlite3
import time
from typing import Any, Mapping
from urllib.parse import quote

from ..common.lines_host import write_line
from ..instance.api_host import read_body, within
from .budgets import Budgets
from .counters import Counters, log_lines
from .record import (
    HEADER,
    MOST_ANSWER_BYTES,
    PROOF_HEADER,
    RECORDS_PATH,
    UNKNOWN,
    header_of_reader,
    proof_of_answer,
    read_parts,
)
from .rights_host import Rights
from .store_host import Store

# Seconds that an instance may wait for a record, and after a failure.
WAIT, PAUSE = 5, 1.0
# Seconds between two lines of the journal about records that name clients without a right.
REPORT_EVERY = 60.0
# Seconds until an instance that does not count is asked again.
PATIENCE = 30.0
# More files than an instance keeps, with one for each of its processes.
MOST_FILES = 128
FAULTS = (OSError, ValueError, KeyError, TypeError, OverflowError, http.client.HTTPException)


# Why an instance has no records for a gateway, by the status of its answer.
WHY_NOT = {
    # It was started by an earlier release.
    404: "counts no tokens; restart the instance, so that it loads the middleware of this release",
    403: "counts no tokens, because it has another gateway_secret or release; run site.yml for it, then gateway.yml",
}
UNPROVEN = (
    "counts no tokens, because the answer does not prove that it is the instance's: it runs with an earlier release or "
    "without gateway_secret (run site.yml for it, then restart it), or another process has its port"
)


class NotCountedError(Exception):
    """The instance has no records for this gateway; the message says why, and what to do."""


def ask(address: str, offsets: Mapping[str, int], key: str) -> tuple[str, bool]:
    """Return what an instance says of its records after the offsets, and whether it has proven that they are its own.

    Raises NotCountedError and one of FAULTS.
    """
    # An instance has few files, and those were read last.
    after = ",".join(f"{name}:{offsets[name]}" for name in list(offsets)[-MOST_FILES:])
    connection = http.client.HTTPConnection(address, timeout=WAIT + 10)
    with contextlib.closing(connection), within(WAIT + 10, connection):
        header = header_of_reader(key, os.urandom(16).hex())
        path = f"{RECORDS_PATH}?wait={WAIT}&after={quote(after, safe=':,')}"
        connection.request("GET", path, headers={HEADER.decode(): header})
        answer = connection.getresponse()
        body = read_body(answer, MOST_ANSWER_BYTES + 1)
    if answer.status in WHY_NOT:
        raise NotCountedError(WHY_NOT[answer.status])
    if answer.status != http.client.OK:
        raise ValueError(f"HTTP {answer.status}")
    given = answer.getheader(PROOF_HEADER.decode(), "").encode("latin-1", "replace")
    proven = hmac.compare_digest(given, proof_of_answer(key, header.encode(), body).encode())
    return body.decode("utf-8", "replace"), proven


class Follower:
    """Reads the records of one instance."""

    def __init__(
        self,
        address: str,
        server: Mapping[str, Any],
        key: str,
        store: Store,
        counters: Counters,
        budgets: Budgets,
        rights: Rights,
        log: bool = False,
    ) -> None:
        """``server`` has its ``name`` at gateways, that of its ``service`` and its ``models``."""
        self.address, self.identity, self.server, self.service = address, server, server["name"], server["service"]
        self.key, self.store, self.rights = key, store, rights
        self.counters, self.budgets, self.log = counters, budgets, log
        self.offsets: dict[str, int] | None = None
        # The last record of each process that budgets and counters have. For a new database, older ones are read again.
        self.counted: dict[str, int] = {}
        # Without a secret everybody is believed; with one, besides who proves it, an instance that an earlier release
        # of the gateway has read, until its first proof: it may not have restarted since.
        self.proven = self.trusted = False
        self.foreign, self.missing, self.report_at = 0, 0, 0.0

    def step(self) -> float:
        """Read once; return the seconds until the next time."""
        try:
            if self.offsets is None:
                self.offsets = self.store.offsets(self.server)
                self.proven = self.store.proven(self.server)
                self.trusted = not self.key or (bool(self.offsets) and not self.proven)
            text, proven = ask(self.address, self.offsets, self.key)
            if proven and self.key and not self.proven:
                self.store.set_proven(self.server)
                self.proven, self.trusted = True, False
            if not proven and not self.trusted:
                raise NotCountedError(UNPROVEN)
            # An instance has no more files.
            if parts := read_parts(text)[:MOST_FILES]:
                foreign = self.rights.check(self.identity, parts)
                now = int(time.time())
                rows, missing = self.store.add(self.server, parts, now)
                rows = self._uncounted(rows)
                self.budgets.add(rows, now)
                for part in parts:
                    self.offsets.pop(part.file, None)
                    self.offsets[part.file] = part.end
                self.offsets = dict(list(self.offsets.items())[-MOST_FILES:])
                self.counters.add(rows, missing)
                if self.log:
                    write_line(log_lines(rows, self.counters.gateway).rstrip("\n"))
                self._report(foreign, missing)
        except NotCountedError as exc:
            self._state(str(exc))
            return PATIENCE
        except sqlite3.Error:
            # A new database begins with what the instances still have.
            self.offsets = None
            return PAUSE
        except FAULTS as exc:
            self._state(f"no records: {type(exc).__name__}")
            return PAUSE
        self._state("")
        self.counters.read_at[self.server] = time.time()
        return 0.01

    def _uncounted(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows that budgets and counters do not have yet; from then on they have them."""
        found = [row for row in rows if row["number"] > self.counted.get(row["process"], -1)]
        for row in found:
            self.counted.pop(row["process"], None)
            self.counted[row["process"]] = row["number"]
        self.counted = dict(list(self.counted.items())[-MOST_FILES:])
        return found

    def _state(self, why: str) -> None:
        if self.counters.servers.get(self.server, "") != why:
            write_line(f"{self.server} ({self.address}): {why or 'is counted'}")
        self.counters.servers[self.server] = why

    def _report(self, foreign: int, missing: int) -> None:
        self.foreign, self.missing = self.foreign + foreign, self.missing + missing
        if not self.foreign + self.missing or time.monotonic() < self.report_at:
            return
        self.report_at = time.monotonic() + REPORT_EVERY
        if self.foreign:
            write_line(
                f"{self.server} ({self.address}): {self.foreign} records name clients that have no right to "
                f"{self.service}, or another team; their tokens are those of {UNKNOWN}"
            )
        if self.missing:
            write_line(f"{self.server} ({self.address}): {self.missing} records are missing")
        self.foreign = self.missing = 0
