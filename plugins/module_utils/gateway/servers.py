# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which servers of a gateway are in service, who took one out, and who may take it out or back in. No I/O.

A record says who drained a server. It counts only while the server is in the state that the record names: whoever
changes a server by hand at the socket makes it void.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import nearest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.state import READY, Server, View

STATUS, DRAINED, READIED = "status", "drained", "ready"
ROLLOUT, ADMIN = "rollout", "admin"
SCHEMA = 1
_OWNER = re.compile(r"(?P<kind>rollout|admin):[\w.@+-]+\Z", re.ASCII)
_FIELDS = ("owner", "reason", "since", "state")

Records = Mapping[str, Mapping[str, str]]


class ServersError(Exception):
    """The servers cannot be looked at or changed as asked; the message is the whole sentence."""


class RecordsError(ValueError):
    """The file that says who drained what is damaged; the message says how, as a clause."""


@dataclass(frozen=True)
class Wish:
    """What is asked for. ``least``: servers of each service that stay in service; ``now``: the time for a record."""

    state: str
    owner: str = ""
    reason: str = ""
    least: int = 1
    force: bool = False
    now: str = ""


@dataclass
class Turn:
    """What is to be done: ``commands`` for HAProxy, and the ``records`` as they are afterwards.

    ``changed`` are the servers whose state or record becomes another, ``held`` those that somebody else drained.
    """

    commands: list[str] = field(default_factory=list)
    records: dict[str, dict[str, str]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


def check_wish(wish: Wish, names: Sequence[str], hosts: Sequence[str]) -> None:
    """Raise ServersError for a wish that says too little."""
    if wish.least < 0:
        raise ServersError(f"least: found {wish.least}, expected 0 or more")
    if wish.state == STATUS:
        return
    if not names and not hosts:
        raise ServersError(f"servers: the list is empty, expected the servers that are to be {wish.state}")
    if not _OWNER.match(wish.owner):
        raise ServersError(
            f"owner: found {wish.owner!r}, expected rollout: or admin: with an ID or a user, such as admin:alice"
        )


def chosen(view: View, names: Sequence[str], hosts: Sequence[str], gateway: str) -> list[str]:
    """Return the servers that are meant, all of them where none is named. Raises ServersError for an unknown one."""
    unknown = [name for name in names if name not in view.servers]
    if unknown:
        said = "; ".join(f"{name} ({nearest(name, view.servers)})" for name in unknown)
        raise ServersError(f"{gateway}: the gateway has no server {said}; run playbooks/gateway.yml first")
    found = dict.fromkeys(names)
    for host in hosts:
        start = start_of(host)
        of_host = [name for name in view.servers if name.startswith(start)]
        if not of_host:
            known = {name.partition("--")[0] for name in view.servers}
            raise ServersError(
                f"{gateway}: the gateway has no server of the host {host} ({nearest(host, known)}); "
                "run playbooks/gateway.yml first"
            )
        found.update(dict.fromkeys(of_host))
    return list(found) if names or hosts else list(view.servers)


def start_of(host: str) -> str:
    """Return what the names of a host's servers begin with."""
    return re.sub(r"[^A-Za-z0-9_.:-]", "_", f"{host}--")


def record_of(server: Server, records: Records) -> Mapping[str, str]:
    """Return who drained a server; empty where it is in service, and where it was done by hand."""
    record = records.get(server.name, {})
    return record if server.state != READY and record.get("state") == server.state else {}


def decide(view: View, names: Sequence[str], wish: Wish, records: Records) -> Turn:
    """Return what is to be done to these servers. Raises ServersError where too few would be left."""
    known = {name: dict(record_of(server, records)) for name, server in view.servers.items()}
    turn = Turn(records={name: record for name, record in known.items() if record})
    if wish.state == STATUS:
        return turn
    step = _drain if wish.state == DRAINED else _make_ready
    for name in names:
        step(view.servers[name], wish, turn)
    if wish.state == DRAINED:
        _refuse_too_few(view, turn, wish.least)
    return turn


def _drain(server: Server, wish: Wish, turn: Turn) -> None:
    before = turn.records.get(server.name, {})
    if server.state != READY and not _may_take(before, wish):
        turn.held.append(server.name)
        return
    drained = server.state != READY
    after = {
        "owner": wish.owner,
        "reason": wish.reason,
        "since": before.get("since") or wish.now,
        "state": server.state if drained else "drain",
    }
    if not drained:
        turn.commands.append(f"set server {server.backend}/{server.name} state drain")
    if after != before:
        turn.records[server.name] = after
        turn.changed.append(server.name)


def _may_take(record: Mapping[str, str], wish: Wish) -> bool:
    """Return whether what is drained already may become the owner's."""
    owner = record.get("owner", "")
    if owner == wish.owner or wish.force:
        return True
    # A rollout goes on with what another one began; an admin takes what a hand at the socket left without a name.
    return kind_of(owner) == ROLLOUT if kind_of(wish.owner) == ROLLOUT else not owner


def _make_ready(server: Server, wish: Wish, turn: Turn) -> None:
    if server.state == READY:
        return
    owner = turn.records.get(server.name, {}).get("owner", "")
    if not wish.force and kind_of(wish.owner) != kind_of(owner):
        turn.held.append(server.name)
        return
    turn.commands.append(f"set server {server.backend}/{server.name} state ready")
    if server.weightless:
        turn.commands.append(f"set server {server.backend}/{server.name} weight 100%")
    turn.records.pop(server.name, None)
    turn.changed.append(server.name)


def kind_of(owner: str) -> str:
    """Return ``rollout`` or ``admin``; whoever drained a server at the socket and left no name is an admin."""
    return owner.partition(":")[0] or ADMIN


def _refuse_too_few(view: View, turn: Turn, least: int) -> None:
    """Raise ServersError where draining what serves now leaves a service with fewer servers than ``least``."""
    going = {command.split()[2] for command in turn.commands}
    problems = []
    for backend in dict.fromkeys(server.backend for server in view.servers.values()):
        servers = [server for server in view.servers.values() if server.backend == backend]
        leaving = [each.name for each in servers if each.serves and f"{backend}/{each.name}" in going]
        left = [each.name for each in servers if each.serves and f"{backend}/{each.name}" not in going]
        if leaving and len(left) < least:
            others = [each for each in servers if not each.serves]
            why = "; ".join(f"{each.name} is {in_words(each, turn.records)}" for each in others)
            problems.append(
                f"service {backend}: without {', '.join(leaving)} it has {', '.join(left) or 'no server'} left, and "
                f"least is {least}{f' ({why})' if why else ''}; bring others back first, or lower least"
            )
    if problems:
        raise ServersError("\n".join(problems))


def growth(before: View, now: View, names: Sequence[str]) -> list[str]:
    """Return what is wrong with servers that have just been brought back: errors since ``before``, checks that fail.

    Where HAProxy was started again in between, its counters tell nothing of the time before that.
    """
    problems = []
    for name in names:
        server, earlier = now.servers[name], before.servers[name]
        errors, asked = server.errors - earlier.errors, server.requests - earlier.requests
        if now.started == before.started and errors > 0:
            problems.append(f"{name}: {errors} errors in {asked} requests since it is back, expected none")
        elif server.state == READY and not server.up:
            problems.append(f"{name} was up and is {in_words(server, {})}")
    return problems


def in_words(server: Server, records: Records) -> str:
    """Return how a server is, for people: ``ready``, ``drained by admin:alice``, ``down (L4CON ...)``."""
    if server.state == READY:
        return "ready" if server.up else f"down ({server.why})" if server.why else "down"
    word = "drained" if server.state == "drain" else "in maintenance"
    record = record_of(server, records)
    by = f" by {record['owner']}" if record else " by hand"
    reason = f" ({record['reason']})" if record.get("reason") else ""
    return f"{word}{by}{reason}"


def read_records(data: Any) -> dict[str, dict[str, str]]:
    """Return the records in what the file of owners holds. Raises RecordsError."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("servers"), dict):
        raise RecordsError(f"holds no records, expected an object with schema {SCHEMA} and servers")
    found = {}
    for name, record in data["servers"].items():
        if not isinstance(record, dict) or not all(isinstance(record.get(key), str) for key in _FIELDS):
            raise RecordsError(f"has no whole record of {name}, expected {', '.join(_FIELDS)}")
        found[name] = {key: record[key] for key in _FIELDS}
    return found


def document(records: Records) -> dict[str, Any]:
    """Return what the file of owners holds for these records."""
    return {"schema": SCHEMA, "servers": {name: dict(records[name]) for name in sorted(records)}}
