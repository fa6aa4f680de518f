# SPDX-License-Identifier: GPL-3.0-or-later
"""The next order for a host whose power is cut and returned: stop its system, rest, start it. Pure, as states.py."""

from typing import Mapping

from .removal import OFF
from .states import (
    CHECK,
    CREATE,
    FAIL,
    POWER_OFF,
    POWER_ON,
    STOP,
    WAIT,
    Node,
    Progress,
    Step,
    bounded_step,
    enroll_step,
    in_maintenance,
)

# How long a server stays without power, so that its chips lose their state (seconds).
REST = 10
# Nodes that Ironic does not work at.
IDLE = ("manageable", "available", "active")


def next_cycle_step(node: Node | None, progress: Progress, now: float, deadlines: Mapping[str, float]) -> Step:
    """Return the next step of a host that is switched off and on."""
    return bounded_step(lambda node, progress: _by_state(node, progress, now), node, progress, now, deadlines)


def _by_state(node: Node | None, progress: Progress, now: float) -> Step:
    if node is None:
        return Step(CREATE, "enroll")
    if node.maintenance:
        return in_maintenance(node, progress)
    if node.state in ("enroll", "verifying"):
        return enroll_step(node, progress)
    if node.state not in IDLE:
        return Step(
            FAIL, "enroll", "Ironic writes or wipes this server; wait until that ends, or abort it, then run again"
        )
    if node.power == OFF:
        rests = progress.phase != "power_on" and (progress.phase != "off" or now - progress.since < REST)
        return Step(WAIT, "off") if rests else Step(POWER_ON, "power_on")
    if progress.starts:
        return Step(CHECK, "boot")
    if not progress.stops:
        return Step(STOP, "stop")
    # A system that does not stop becomes an error of Ironic.
    return Step(POWER_OFF, "power_off") if node.last_error else Step(WAIT, "stop")
