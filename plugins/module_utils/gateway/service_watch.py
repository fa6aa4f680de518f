# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which engines of a service leave it: HAProxy's counters and the verdicts of all servers in one place.

An instance whose host says that it is sick goes out of service, the sickest first, as long as its service keeps
``min_available`` others. An engine that refuses with 5xx stays as long as its service has no better one. The servers of
a group share the model's experts: where HAProxy's own check finds one of them unhealthy, all are down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Mapping

from .stat_rows import read_rows
from .verdict import Watched


@dataclass(frozen=True)
class Counted:
    """A server in HAProxy's counters: whether it is in service, and whether its own check of /health succeeds.

    ``look`` is its status, and how often it went down.
    """

    up: bool
    healthy: bool
    errors: int
    sent: int
    running: int = 0
    look: tuple[str, int] = ("", 0)


def read_servers(text: str) -> dict[str, Counted]:
    """Return the servers in HAProxy's counters by their names. Raises ValueError."""
    try:
        return {
            row["svname"]: Counted(
                row["status"].startswith("UP"),
                # Not the state in service, which has the agent's answer in it. NOLB: the server is stopping.
                int(row["check_health"] or 0) >= int(row["check_rise"] or 0) and not row["status"].startswith("NOLB"),
                int(row["hrsp_5xx"] or 0),
                int(row["bout"] or 0),
                int(row.get("scur") or 0),
                (row["status"], int(row.get("chkdown") or 0)),
            )
            for row in read_rows(text)
            if row["svname"] not in ("FRONTEND", "BACKEND")
        }
    except KeyError as exc:
        raise ValueError(f"HAProxy's counters lack {exc}") from exc


NOT_SEEN = Counted(False, True, 0, 0)


class ServiceWatch:
    """The servers by their addresses, as the agent's configuration has them, and their verdicts."""

    def __init__(
        self,
        servers: Mapping[str, Mapping[str, Any]],
        watched: Mapping[str, Watched],
        min_available: int,
        may_be_empty: Collection[str] = (),
    ) -> None:
        self.servers, self.watched, self.min_available = servers, watched, min_available
        self.may_be_empty = may_be_empty

    def update(self, found: Mapping[str, Counted], now: float) -> str:
        """Update the instances; return ``no server`` if services without a server have most of the hosts."""
        up: dict[str, int] = {}
        better: dict[str, int] = {}
        sick: dict[str, list[str]] = {}
        for address, server in self.servers.items():
            seen = found.get(server["name"], NOT_SEEN)
            # Not the errors of its router, which has some where other hosts than this one are lost.
            router = found.get(f"router:{server['name']}", NOT_SEEN)
            self.watched[address].counts(seen.errors, seen.sent + router.sent, now)
            self.watched[address].own = seen.running
            service = server["service"]
            up[service] = up.get(service, 0) + seen.up
            well = seen.up and not self.watched[address].refusal and not self.watched[address].sick
            better[service] = better.get(service, 0) + well
            if self.watched[address].sick:
                sick.setdefault(service, []).append(address)
        now_up = {address for address, server in self.servers.items() if found.get(server["name"], NOT_SEEN).up}
        spare = {address for service, each in sick.items() for address in self._spare(each, better[service], now_up)}
        for address, server in self.servers.items():
            watched = self.watched[address]
            watched.replaceable = better[server["service"]] > 0
            watched.incomplete = self._missing_beside(server, found)
            watched.spare = address in spare
        return "no server" if self._lacks_most(up) else ""

    def _lacks_most(self, up: Mapping[str, int]) -> bool:
        """Return whether the services without a server have more hosts than all others.

        So one engine that is taken over, or one host, does not move the address that all services share.
        """
        hosts: dict[str, set[str]] = {}
        for address, server in self.servers.items():
            hosts.setdefault(server["service"], set()).add(address.rpartition(":")[0])
        served = {host for service, count in up.items() if count for host in hosts[service]}
        empty = (service for service, count in up.items() if not count and service not in self.may_be_empty)
        lost = {host for service in empty for host in hosts[service]} - served
        return len(lost) > len(served)

    def _spare(self, sick: list[str], others: int, now_up: set[str]) -> list[str]:
        """Return the sick instances of a service that it can do without: the sickest, then those that were sick first.

        So one that is out stays out when another becomes as sick. ``others`` is the number of servers up and well. One
        that is up leaves only when HAProxy has the ones that stay up too: it asks for each server at another moment.
        """

        def rank(address: str) -> tuple[int, float, str]:
            watched = self.watched[address]
            return -watched.severity, watched.sick_since, self.servers[address]["name"]

        order = sorted(sick, key=rank)
        leaving = order[: len(order) - max(0, self.min_available - others)]
        staying = others + len(now_up.intersection(order[len(leaving) :]))
        return leaving if staying >= self.min_available else [each for each in leaving if each not in now_up]

    def _missing_beside(self, server: Mapping[str, Any], found: Mapping[str, Counted]) -> str:
        """Return the first other server of a server's group that HAProxy's own check finds unhealthy, or nothing."""
        group = server.get("group")
        others = [each["name"] for each in self.servers.values() if group and each.get("group") == group]
        missing = (name for name in others if name != server["name"] and not found.get(name, NOT_SEEN).healthy)
        return next(missing, "")
