# SPDX-License-Identifier: GPL-3.0-or-later
"""The next order for a host that is removed: stop its system, wipe the named disks, switch it off. Pure, as states.py.

A wipe may be repeated, so a run that finds anything but its own wipe under way begins again with a new node.
"""

from typing import Mapping

from .states import (
    CREATE,
    DONE,
    FAIL,
    POWER_OFF,
    RENEW,
    STOP,
    UNDER_WAY,
    WAIT,
    WIPE,
    Node,
    Progress,
    Step,
    because,
    bounded_step,
    enroll_step,
    in_maintenance,
)

WIPING = ("cleaning", "clean wait")
CLEAN_FAILED = "clean failed"
OFF = "power off"


def next_removal_step(
    node: Node | None, progress: Progress, now: float, deadlines: Mapping[str, float], wipes: bool
) -> Step:
    """Return the next step of a host that is removed; ``wipes`` is whether any of its disks is named."""
    return bounded_step(lambda node, progress: _by_state(node, progress, wipes), node, progress, now, deadlines)


def _by_state(node: Node | None, progress: Progress, wipes: bool) -> Step:
    if node is None:
        return Step(CREATE, "enroll")
    if node.state == CLEAN_FAILED:  # Ironic sets it aside, too
        return _failed(node, progress)
    if node.maintenance:
        return in_maintenance(node, progress)
    if node.state in ("enroll", "verifying"):
        return enroll_step(node, progress)
    if node.state == "manageable":
        return _manageable(node, progress, wipes)
    if node.state in WIPING:
        return _attach(node, progress)
    if node.state in (*UNDER_WAY, "deleting"):
        reason = "Ironic writes this server; wait until that ends, or abort it, then run again"
        return Step(FAIL, "enroll", reason)
    # The node of an earlier order: written and kept, or failed.
    return Step(RENEW, "enroll")


def _manageable(node: Node, progress: Progress, wipes: bool) -> Step:
    wipe = wipes and not progress.wipes
    if node.power == OFF:
        return Step(WIPE, "wipe") if wipe else Step(DONE, "power_off")
    if not progress.wipes and not progress.stops:
        return Step(STOP, "stop")
    if not progress.wipes and not node.last_error:  # a system that does not stop becomes an error of Ironic
        return Step(WAIT, "stop")
    return Step(WIPE, "wipe") if wipe else Step(POWER_OFF, "power_off")


def _attach(node: Node, progress: Progress) -> Step:
    if not progress.order or node.order != progress.order:
        reason = (
            "Ironic cleans this server by an order that this inventory's record does not know; wait until that ends, "
            "or abort it, then run again"
        )
        return Step(FAIL, "wipe", reason)
    return Step(WAIT, "wipe")


def _failed(node: Node, progress: Progress) -> Step:
    if progress.given_up:
        return Step(FAIL, "wipe", progress.given_up)
    if progress.wipes:
        return Step(FAIL, "wipe", f"Ironic could not wipe the disks{because(node)}")
    return Step(RENEW, "enroll")
