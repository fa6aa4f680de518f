# SPDX-License-Identifier: GPL-3.0-or-later
"""Take an instance out of service before systemd stops it.

After SIGTERM vLLM still accepts requests but never answers them. So first, for some seconds of notice, GET /health
answers 404, and gateways send requests elsewhere; all other requests are still served. Then the running requests get
their time to finish, and new ones are refused. The middleware answers for vLLM while the marks ``stopping`` and
``closed`` are there; systemd removes them with the unit.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import time

from ..common.foreign_files_host import ForeignDirectory
from .api_host import Answer, ask
from .config_file import InstanceError, Listening
from .config_host import listening_in
from .marks import CLOSED, CONFIG_DIR, OPEN_HEADER, RUN_DIR, STOPPING
from .metrics import RUNNING, WAITING, sums

# Exists on a host that is also a gateway: there even an instance on the loopback address is behind a gateway.
GATEWAY = "/etc/haproxy/gateway-agent.json"
# Seconds that vLLM must stay idle: a new request is not counted while its first bytes are on the way.
SETTLE = 1.0
PAUSE = 0.2
TIMEOUT = 5.0


class Drain:
    """The stop of an instance that answers at ``listening`` and obeys the marks in the directory ``run``."""

    def __init__(self, listening: Listening, run: str) -> None:
        self.listening, self.marks = listening, ForeignDirectory(run)

    def run(self, seconds: float, notice: float) -> str:
        """Take the instance out of service and wait for its requests; return a line for the journal."""
        problem = self._notify(notice)
        ended = self._finish(seconds)
        return f"{ended}; gateways were not told: {problem}" if problem else ended

    def behind_gateway(self) -> bool:
        """Return whether a gateway may send requests to it."""
        return not self.listening.on_loopback or os.path.exists(GATEWAY)

    def _get(self, path: str) -> Answer:
        return ask(self.listening, "GET", path, TIMEOUT)

    def _load(self) -> int | None:
        """Return how many requests run or wait, 0 if vLLM no longer listens, None if the number is unknown."""
        try:
            known = self._get("/health").headers.get(OPEN_HEADER, "")
            found = sums(self._get("/metrics").text, (RUNNING, WAITING))
        except ConnectionRefusedError:
            return 0
        except OSError:
            return None
        # Several API servers share the engine, and each of them knows only its own requests.
        counts = ([int(known)] if known.isdecimal() else []) + ([int(sum(found.values()))] if found else [])
        return max(counts, default=None)

    def _notify(self, notice: float) -> str:
        """Show gateways that the instance is stopping; return the reason if that failed, otherwise an empty text."""
        try:
            self.marks.touch(STOPPING)
            status = self._get("/health").status
        except OSError as exc:
            return exc.strerror or str(exc)
        if status != http.client.NOT_FOUND:
            return f"GET /health still answers {status}"
        if self.behind_gateway():
            time.sleep(notice)
        return ""

    def _finish(self, seconds: float) -> str:
        """Wait until no request runs, then refuse new ones; return how it ended."""
        began, since, closed = time.monotonic(), None, False
        while True:
            load, now = self._load(), time.monotonic()
            since = (since or now) if load == 0 else None
            if since is not None and closed:
                return "Stopping: no request runs"
            if since is not None and now - since >= SETTLE:
                # Check again: a request that arrived since the last check is still served.
                closed = self._close()
                continue
            if since is None and now - began >= seconds:
                self._close()
                left = "vLLM does not report whether requests run" if load is None else f"{load} requests still run"
                return f"Stopping: {left} after {seconds:g} s"
            time.sleep(PAUSE)

    def _close(self) -> bool:
        """Make the middleware refuse new requests; return True."""
        with contextlib.suppress(OSError):
            self.marks.touch(CLOSED)
        return True


def drain(name: str, seconds: float, notice: float) -> str:
    """Drain an instance of this host; return a line for the journal, empty where there are no requests."""
    # systemd sets it while the main process runs; without that process there are no requests.
    if "MAINPID" not in os.environ:
        return ""
    try:
        listening = listening_in(CONFIG_DIR, name)
    except InstanceError as exc:
        return f"Stopping: requests are not waited for: {exc}"
    return Drain(listening, f"{RUN_DIR}/{name}").run(seconds, notice) if listening else ""
