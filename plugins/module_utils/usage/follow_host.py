# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the records of an instance, as they come, into the database of a gateway."""

from __future__ import annotations

import contextlib
import http.client
import sqlite3
import time
from typing import Mapping
from urllib.parse import quote

from ..common.lines_host import write_line
from ..instance.api_host import within
from .budgets import Budgets
from .counters import Counters, log_lines
from .record import HEADER, MOST_ANSWER_BYTES, RECORDS_PATH, Part, header_of_reader, read_parts
from .store_host import Store

# Seconds that an instance may wait for a record, and after a failure.
WAIT, PAUSE = 5, 1.0
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


class NotCountedError(Exception):
    """The instance has no records for this gateway; the message says why, and what to do."""


def ask(address: str, offsets: Mapping[str, int], key: str) -> list[Part]:
    """Return the records of an instance after the offsets. Raises NotCountedError and one of FAULTS."""
    # An instance has few files, and those were read last.
    after = ",".join(f"{name}:{offsets[name]}" for name in list(offsets)[-MOST_FILES:])
    connection = http.client.HTTPConnection(address, timeout=WAIT + 10)
    with contextlib.closing(connection), within(WAIT + 10, connection):
        headers = {HEADER.decode(): header_of_reader(key)}
        connection.request("GET", f"{RECORDS_PATH}?wait={WAIT}&after={quote(after, safe=':,')}", headers=headers)
        answer = connection.getresponse()
        text = answer.read(MOST_ANSWER_BYTES + 1).decode("utf-8", "replace")
    if answer.status in WHY_NOT:
        raise NotCountedError(WHY_NOT[answer.status])
    if answer.status != http.client.OK:
        raise ValueError(f"HTTP {answer.status}")
    # More files than an instance has.
    return read_parts(text)[:MOST_FILES]


class Follower:
    """Reads the records of one instance."""

    def __init__(
        self,
        address: str,
        server: str,
        key: str,
        store: Store,
        counters: Counters,
        budgets: Budgets,
        log: bool = False,
    ) -> None:
        self.address, self.server, self.key, self.store = address, server, key, store
        self.counters, self.budgets, self.log = counters, budgets, log
        self.offsets: dict[str, int] | None = None

    def step(self) -> float:
        """Read once; return the seconds until the next time."""
        try:
            if self.offsets is None:
                self.offsets = self.store.offsets(self.server)
            parts = ask(self.address, self.offsets, self.key)
            if parts:
                now = int(time.time())
                rows, missing = self.store.add(self.server, parts, now)
                self.budgets.add(rows, now)
                for part in parts:
                    self.offsets.pop(part.file, None)
                    self.offsets[part.file] = part.end
                self.offsets = dict(list(self.offsets.items())[-MOST_FILES:])
                self.counters.add(rows, missing)
                if self.log:
                    write_line(log_lines(rows, self.counters.gateway).rstrip("\n"))
                self._report_missing(missing)
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

    def _state(self, why: str) -> None:
        if self.counters.servers.get(self.server, "") != why:
            write_line(f"{self.server} ({self.address}): {why or 'is counted'}")
        self.counters.servers[self.server] = why

    def _report_missing(self, missing: int) -> None:
        if missing:
            write_line(f"{self.server} ({self.address}): {missing} records are missing")
