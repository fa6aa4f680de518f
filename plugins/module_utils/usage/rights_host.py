# SPDX-License-Identifier: GPL-3.0-or-later
"""Which clients an instance may name in its records: an instance that is taken over must not charge any of them."""

from __future__ import annotations

import os
import threading
from typing import Any, Iterable, Mapping

from ..common.files_host import text_of
from .record import UNKNOWN, Part

# Rows of a server that this gateway does not know: clients of other gateways, adapters that were loaded since.
MOST_OTHERS = 256
# In place of a service in the map of rights: all of them.
_ANY = "*"
# What a record has for a client without a team.
_NONE = {"-", ""}


class Rights:
    """The maps of the gateway with the rights and teams of its clients, in ``directory``.

    What a client had since the start stays, because an answer may end after its right has.
    """

    def __init__(self, directory: str, gateway: str, gateways: Iterable[str] = ()) -> None:
        self.paths = [os.path.join(directory, name) for name in ("rights.map", "teams.map")]
        self.gateway, self.gateways = gateway, {gateway, *gateways}
        self.services: dict[str, set[str]] = {}
        self.teams: dict[str, set[str]] = {}
        self.all_teams: set[str] = set()
        self.lock = threading.Lock()
        self.seen: list[tuple[int, int, int]] = []
        self.others: dict[str, set[tuple[object, ...]]] = {}
        self._read()

    def check(self, server: Mapping[str, Any], parts: Iterable[Part]) -> int:
        """Replace the clients that have no right to a service, and teams that are not theirs; return how many.

        ``server`` has the names of itself, its ``service`` and its ``models``. A client that this gateway does not have
        may be another gateway's; it has no part in a team of this one.
        """
        foreign = 0
        with self.lock:
            self._read()
            for record in (record for part in parts for record in part.records):
                if record.get("gateway") not in self.gateways:
                    record["gateway"] = UNKNOWN
                if not self._holds(server["service"], record) or not self._has_room(server, record):
                    record.update(client=UNKNOWN, team=UNKNOWN)
                    foreign += 1
        return foreign

    def _read(self) -> None:
        """Add what the maps have now; a right is in its file before HAProxy has it."""
        seen = [_version(path) for path in self.paths]
        if seen == self.seen:
            return
        rights, teams = ([line.split() for line in text_of(path).splitlines()] for path in self.paths)
        for client, _colon, service in (words[0].partition(":") for words in rights if words):
            self.services.setdefault(client, set()).add(service.partition("=")[0])
            self.teams.setdefault(client, set(_NONE))
        for client, team in (words for words in teams if len(words) == 2):
            self.teams.setdefault(client, set(_NONE)).add(team)
            self.all_teams.add(team)
        self.seen = seen

    def _holds(self, service: str, record: Mapping[str, Any]) -> bool:
        client, team = str(record.get("client")), record.get("team")
        if client not in self.services:
            own = self.services and record.get("gateway") == self.gateway and client not in _NONE
            return team not in self.all_teams and not own
        return bool({_ANY, service} & self.services[client]) and team in self.teams[client]

    def _has_room(self, server: Mapping[str, Any], record: dict[str, Any]) -> bool:
        """Return whether a row is known or one of a few others; a model that has no room is replaced."""
        client, model = record.get("client"), record.get("model")
        is_known = client in self.services or client in _NONE
        if is_known and (model == "" or model in server["models"]):
            return True
        others = self.others.setdefault(server["name"], set())
        row = tuple(record.get(name) for name in ("gateway", "client", "team", "model"))
        if row in others or len(others) < MOST_OTHERS:
            others.add(row)
            return True
        record["model"] = UNKNOWN
        return is_known


def _version(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
