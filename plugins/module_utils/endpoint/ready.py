# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until an endpoint is ready; stop waiting when it has died."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..vllm.unit import Unit, explain_failure
from .client import Reply, TimedClient

_FIRST_PAUSE = 0.2
# Seconds, and fraction of the time waited so far: a short start is noticed at once, a long one is not asked too often.
_USUAL_PAUSE, _PAUSE_SHARE = 0.5, 0.02
_LONGEST_PAUSE = 2.0
# /health does no work: an idle server answers at once, a busy one within seconds.
_PROBE_TIMEOUT = 5.0


@dataclass(frozen=True)
class Wait:
    """The end of a wait. problem: why the endpoint is not ready, a sentence, or empty. seconds: its duration."""

    problem: str
    seconds: float


class Watch:
    """A unit that is checked repeatedly, from the creation of this object on.

    now: its state at the last check. invocation: the run of the unit whose journal has the details.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._first = self.now = unit.state()
        self.invocation = self.now.invocation

    def check(self) -> str:
        """Return why the unit will not answer, as a sentence; empty while it may still start."""
        self.now = self.unit.state()
        problem = explain_failure(self._first, self.now)
        # If systemd has restarted it since, the run that died is the one watched so far.
        again = self.now.restarts > self._first.restarts and self.now.sub != "auto-restart"
        if not (problem and again and self.invocation):
            self.invocation = self.now.invocation
        return f"unit {self.unit.name} {problem}" if problem else ""

    def in_short(self, instance: str) -> str:
        """Return why an instance is not ready, in one short sentence, from the last check."""
        problem = explain_failure(self._first, self.now)
        if problem:
            return f"{instance} {problem}; see `inference logs HOST {instance}`."
        if self.now.active == "active":
            return f"{instance} runs, and does not answer."
        if not self.now.began or self.now.active == "inactive":
            return f"{instance} waits for systemd to start it."
        return f"{instance} is still starting after {time.monotonic() - self.now.began:.0f} s."


def wait_until_ready(client: TimedClient | None, watch: Watch | None, timeout: float) -> Wait:
    """Poll /health until it answers 200 and the unit (if any) is active, until the unit dies, or until the timeout.

    Without a client only the unit counts: a worker of an instance that spans hosts answers nobody.
    """
    began = time.monotonic()
    pause = _FIRST_PAUSE
    while True:
        reply = client.request("GET", "/health", None, min(_PROBE_TIMEOUT, timeout)) if client else None
        # Checked after the probe, so that the answer is not from a unit that has died since.
        problem = watch.check() if watch else ""
        seconds = time.monotonic() - began
        if problem:
            return Wait(f"{problem}{_other(client, reply)}", seconds)
        # A unit in the state activating has not reported that it is ready.
        if (reply is None or reply.status == 200) and (watch is None or watch.now.active == "active"):
            return Wait("", seconds)
        if seconds + pause > timeout:
            if client is None or reply is None:
                return Wait(f"has not joined its head after {timeout:g} s", seconds)
            found = reply.failure or f"answered {reply.status}"
            return Wait(f"not ready after {timeout:g} s: GET {client.url}/health: {found}", seconds)
        time.sleep(pause)
        pause = min(pause * 1.5, max(_USUAL_PAUSE, _PAUSE_SHARE * seconds), _LONGEST_PAUSE)


def _other(client: TimedClient | None, reply: Reply | None) -> str:
    """Return that something else has the port of a unit that has failed; a stranger was sent nothing."""
    if client is None or reply is None or not (reply.status or reply.stranger):
        return ""
    who = f": {reply.failure}" if reply.stranger else ""
    return f"; something else answers at {client.url}{who}"
