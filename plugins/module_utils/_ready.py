# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting until an endpoint is ready, without waiting for one that has died."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ansible_collections.baremetal.inference.plugins.module_utils._http import Client
from ansible_collections.baremetal.inference.plugins.module_utils._unit import State, Unit, trouble

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 2.0
# /health does no work: a server that is up answers at once, and a busy one within seconds.
_PROBE_TIMEOUT = 5.0


@dataclass(frozen=True)
class Wait:
    """How a wait ended.

    problem: why the endpoint is not ready, as a sentence; empty when it is. seconds: how long it took. first: the
    unit's state when the wait began. invocation: the run of the unit whose journal tells what happened.
    """

    problem: str
    seconds: float
    first: State | None = None
    invocation: str = ""


def wait_until_ready(client: Client, unit: Unit | None, timeout: float) -> Wait:
    """Ask /health until it answers 200, the unit (where there is one) dies, or timeout seconds are over."""
    began = time.monotonic()
    first = unit.state() if unit else None
    invocation = first.invocation if first else ""
    pause = _FIRST_PAUSE
    while True:
        health, found = _probe(client, min(_PROBE_TIMEOUT, timeout))
        # Asked after the probe: a unit that died meanwhile did not give that answer.
        problem, invocation = watch(unit, first, invocation)
        seconds = time.monotonic() - began
        if problem:
            other = f"; something else answers at {client.url}" if health else ""
            return Wait(f"{problem}{other}", seconds, first, invocation)
        if health:
            return Wait("", seconds, first, invocation)
        if seconds + pause > timeout:
            return Wait(f"not ready after {timeout:g} s: GET {client.url}/health: {found}", seconds, first, invocation)
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def watch(unit: Unit | None, first: State | None, invocation: str) -> tuple[str, str]:
    """Return why the unit will not answer ("" while it may) and the invocation to read the journal of.

    That is the one watched so far (invocation) where the unit was started again since, because it is the one that died.
    """
    if unit is None or first is None:
        return "", ""
    now = unit.state()
    problem = trouble(first, now)
    if not problem:
        return "", now.invocation
    restarted = now.restarts > first.restarts and now.sub != "auto-restart"
    return f"unit {unit.name} {problem}", invocation if restarted and invocation else now.invocation


def _probe(client: Client, timeout: float) -> tuple[bool, str]:
    reply = client.request("GET", "/health", None, timeout)
    return reply.status == 200, reply.failure or f"answered {reply.status}"
