# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of the replicas of a service: HAProxy's view, their hosts' and the reports of the other gateways."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping

from ..common.foreign_numbers import read_count
from .places import Load
from .scale import ASLEEP, LOST, SERVING, STARTING, STOPPED, Replica
from .stat_rows import read_rows

# The seconds until HAProxy's checks notice a replica that has just started: at least, and in intervals of the checks.
NOTICED, NOTICED_INTERVALS = 20, 5
MOST = 10**6


@dataclass(frozen=True)
class Seen:
    """A gateway's view: requests that wait by service, the servers in service, and those that somebody has drained.

    ``there``: requests that each server has from this gateway. ``begins``: HAProxy has a new worker, which sends few
    requests at first, so that the others wait, and does not know those of the worker before.
    """

    waiting: dict[str, int] = field(default_factory=dict)
    there: dict[str, int] = field(default_factory=dict)
    up: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    begins: bool = False


def read_stat(text: str) -> Seen:
    """Return what HAProxy's table of backends and servers says. Raises ValueError."""
    waiting: dict[str, int] = {}
    there: dict[str, int] = {}
    of_server: dict[str, int] = {}
    up, held, serving = set(), set(), set()
    try:
        for row in read_rows(text):
            waiting[row["pxname"]] = waiting.get(row["pxname"], 0) + (read_count(row["qcur"] or "0") or 0)
            if row["svname"] == "BACKEND":
                there[row["pxname"]] = read_count(row["scur"] or "0") or 0
            else:
                of_server[row["svname"]] = read_count(row["scur"] or "0") or 0
                serving |= {row["pxname"]} if row["status"].startswith("UP") else set()
                up |= {row["svname"]} if row["status"].startswith("UP") else set()
                held |= {row["svname"]} if row["status"].startswith(("DRAIN", "MAINT")) else set()
    except KeyError as exc:
        raise ValueError(f"HAProxy's counters lack {exc}") from exc
    # Without a server they wait before any queue (gateway-await.lua).
    waiting.update({name: count for name, count in there.items() if name not in serving})
    return Seen(waiting, of_server, frozenset(up), frozenset(held))


def reported(reports: Iterable[Any], service: str) -> tuple[int, set[str]]:
    """Return the requests that wait for a service at other gateways, and the servers that are drained there."""
    waiting, held = 0, set()
    for report in reports:
        if not isinstance(report, dict):
            continue
        counts, names = report.get("waiting"), report.get("held")
        count = counts.get(service) if isinstance(counts, dict) else 0
        if isinstance(count, int) and not isinstance(count, bool):
            waiting += min(max(0, count), MOST)
        held |= {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
    return waiting, held


def there_by(reports: Mapping[str, Any], gateway: str, instance: str) -> int:
    """Return the requests that the other gateways report to have at an instance of the host that has the reports."""
    found = [report.get("there") for name, report in reports.items() if name != gateway and isinstance(report, dict)]
    counts = [each.get(instance) for each in found if isinstance(each, dict)]
    return sum(min(max(0, count), MOST) for count in counts if isinstance(count, int))


def shared_out(there: int, load: Load) -> tuple[int, int]:
    """Return how many of the requests ``there`` run and wait, by what their engine says.

    It may say anything, so it says only which part of them waits. It counts sequences; a request may have many.
    """
    total = load.running + load.waiting
    number = min(there, total)
    waiting = -(-number * load.waiting // total) if total else 0
    return number - waiting, waiting


def noticed_after(interval: float) -> float:
    """Return the seconds until HAProxy, which checks so often, notices a replica that has just started."""
    return max(NOTICED, NOTICED_INTERVALS * interval)


def state_of(instance: Mapping[str, Any] | None, up: bool, noticed: float = NOTICED) -> str:
    """Return the state of a replica, from what its host says of the instance; None where the host says nothing."""
    if instance is None:
        return SERVING if up else LOST
    active, sub = instance.get("active"), str(instance.get("sub"))
    if active == "activating" and not sub.startswith("auto-restart"):
        # One that has failed before may do so again, and nobody waits for it.
        return LOST if instance.get("restarts") else STARTING
    if active == "inactive" and instance.get("stopped") is True:
        return STOPPED
    if active != "active":
        return LOST
    if instance.get("spare") is True:
        return ASLEEP
    seconds = instance.get("seconds")
    return SERVING if up else STARTING if isinstance(seconds, int) and seconds < noticed else LOST


def replica_of(
    name: str,
    server: Mapping[str, Any],
    instance: Mapping[str, Any] | None,
    up: bool,
    held: bool,
    running: int,
    noticed: float = NOTICED,
    silent: bool = False,
) -> Replica:
    """Return a replica; one whose host does not answer cannot be changed."""
    return Replica(
        name,
        state_of(instance, up, noticed),
        server["places"],
        running,
        held,
        bool(server.get("resident")),
        instance is None,
        silent,
    )
