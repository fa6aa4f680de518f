# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which servers of a gateway may be drained or returned to service, and by whom.

A record names who drained a server. It counts only while the server is in the state that the record names: a change
made directly at the admin socket voids it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..common.foreign_text import quote_foreign
from ..common.kinds import show_value
from ..common.spelling import nearest
from .state import READY, HaproxyServer, HaproxyView

STATUS, DRAINED, RETURNED = "status", "drained", "ready"
ADMIN, EVENT = "admin", "event"
SCHEMA = 1
_OWNER = re.compile(r"(?P<kind>rollout|admin|event):[\w.@+-]+\Z", re.ASCII)
# Why remove.yml has drained a server, where nobody gave another reason.
REMOVED = "removed from the host"
_FIELDS = ("owner", "reason", "since", "state")

Records = Mapping[str, Mapping[str, str]]


class ServersError(Exception):
    """The servers cannot be read or changed as requested; the message is a whole sentence."""


class RecordsError(ValueError):
    """The owners file is damaged; the message describes the damage, as a clause."""


@dataclass(frozen=True)
class ServersRequest:
    """A requested state. ``min_available``: servers of each service that stay in service; ``now``: time of a record."""

    state: str
    owner: str = ""
    reason: str = ""
    min_available: int = 1
    force: bool = False
    now: str = ""


@dataclass
class ServersChange:
    """The decided change: ``commands`` for HAProxy, and the ``records`` after it.

    ``changed`` are the servers whose state or record changes, ``held`` those that somebody else drained.
    """

    commands: list[str] = field(default_factory=list)
    records: dict[str, dict[str, str]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """The servers that are asked for: by name, by host, and those of instances that span several hosts.

    Each entry of ``groups`` has the names that the servers of one instance may have; a gateway has one at least.
    """

    names: Sequence[str] = ()
    hosts: Sequence[str] = ()
    groups: Sequence[Sequence[str]] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.hosts or self.groups)


def check_request(request: ServersRequest, selection: Selection) -> None:
    """Raise ServersError for an incomplete or invalid request."""
    if request.min_available < 0:
        raise ServersError(f"min_available: found {request.min_available}, expected 0 or more")
    if request.state == STATUS:
        return
    if not selection:
        raise ServersError(f"servers: the list is empty, expected the servers to make {request.state}")
    if not _OWNER.match(request.owner):
        raise ServersError(
            f"owner: found {show_value(request.owner)}, expected rollout:ID, admin:USER or event:NAME, "
            "such as admin:alice"
        )


def select_servers(view: HaproxyView, selection: Selection, gateway: str) -> list[str]:
    """Return the selected servers, all of them when none is named. Raises ServersError for an unknown one."""
    unknown = [name for name in selection.names if name not in view.servers]
    if unknown:
        listed = "; ".join(f"{name} ({nearest(name, view.servers)})" for name in unknown)
        raise ServersError(f"{gateway}: the gateway has no server {listed}; run playbooks/gateway.yml first")
    found = dict.fromkeys(selection.names)
    for names in selection.groups:
        of_group = [name for name in names if name in view.servers]
        if not of_group:
            raise ServersError(
                f"{gateway}: the gateway has none of the servers {', '.join(names)}, which are one instance; "
                "run playbooks/gateway.yml first"
            )
        found.update(dict.fromkeys(of_group))
    for host in selection.hosts:
        prefix = server_prefix(host)
        of_host = [name for name in view.servers if name.startswith(prefix)]
        # A host may have no server of its own, and serve together with others.
        if not of_host and not any(name.startswith(prefix) for names in selection.groups for name in names):
            known = {name.partition("--")[0] for name in view.servers}
            raise ServersError(
                f"{gateway}: the gateway has no server of the host {host} ({nearest(host, known)}); "
                "run playbooks/gateway.yml first"
            )
        found.update(dict.fromkeys(of_host))
    return list(found) if selection else list(view.servers)


def server_name(host: str, instance: str) -> str:
    """Return the name that gateways have for an instance of a host; HAProxy takes no other characters."""
    return re.sub(r"[^A-Za-z0-9_.:-]", "_", f"{host}--{instance}")


def server_prefix(host: str) -> str:
    """Return the prefix of the names of a host's servers."""
    return server_name(host, "")


def valid_record(server: HaproxyServer, records: Records) -> Mapping[str, str]:
    """Return the record of a drained server; empty for one in service and for one that was drained by hand."""
    record = records.get(server.name, {})
    return record if server.state != READY and record.get("state") == server.state else {}


def decide_change(view: HaproxyView, names: Sequence[str], request: ServersRequest, records: Records) -> ServersChange:
    """Return the change of these servers. Raises ServersError when too few would stay in service."""
    known = {name: dict(valid_record(server, records)) for name, server in view.servers.items()}
    change = ServersChange(records={name: record for name, record in known.items() if record})
    if request.state == STATUS:
        return change
    apply_to = _drain if request.state == DRAINED else _make_ready
    for name in names:
        apply_to(view.servers[name], request, change)
    if request.state == DRAINED:
        _check_min_available(view, change, request.min_available)
    return change


def _drain(server: HaproxyServer, request: ServersRequest, change: ServersChange) -> None:
    before = change.records.get(server.name, {})
    if server.state != READY and not _may_take(before, request):
        change.held.append(server.name)
        return
    drained = server.state != READY
    after = {
        "owner": request.owner,
        "reason": request.reason,
        "since": before.get("since") or request.now,
        "state": server.state if drained else "drain",
    }
    if not drained:
        change.commands.append(f"set server {server.backend}/{server.name} state drain")
    if after != before:
        change.records[server.name] = after
        change.changed.append(server.name)


def _may_take(record: Mapping[str, str], request: ServersRequest) -> bool:
    """Return whether the request may take over a server that is already drained."""
    owner = record.get("owner", "")
    if owner == request.owner or request.force:
        return True
    kind = owner_kind(request.owner)
    if kind == ADMIN:
        # A person takes over what was drained by hand or by an alert, so that no alert returns it.
        return not owner or owner_kind(owner) == EVENT
    # A rollout continues what another one began, and an event what another one drained.
    return owner_kind(owner) == kind


def _make_ready(server: HaproxyServer, request: ServersRequest, change: ServersChange) -> None:
    if server.state == READY:
        return
    record = change.records.get(server.name, {})
    kind = owner_kind(record.get("owner", ""))
    by = owner_kind(request.owner)
    if not request.force and by != kind and (by, kind) != (ADMIN, EVENT):
        change.held.append(server.name)
        return
    if record.get("reason") == REMOVED and not (server.up or request.force):
        raise ServersError(
            f"{server.name}: its instance was removed from the host, and nothing answers there; install it with "
            "`inference apply HOST`, or remove it from vllm_instances, then `inference apply gateways`"
        )
    change.commands.append(f"set server {server.backend}/{server.name} state ready")
    if server.weightless:
        change.commands.append(f"set server {server.backend}/{server.name} weight 100%")
    change.records.pop(server.name, None)
    change.changed.append(server.name)


def owner_kind(owner: str) -> str:
    """Return ``rollout``, ``admin`` or ``event``; a server without an owner was drained by hand, so by an admin."""
    return owner.partition(":")[0] or ADMIN


def _check_min_available(view: HaproxyView, change: ServersChange, min_available: int) -> None:
    """Raise ServersError when the change leaves a service with fewer than ``min_available`` servers."""
    drained = {command.split()[2] for command in change.commands}
    problems = []
    for backend in dict.fromkeys(server.backend for server in view.servers.values()):
        servers = [server for server in view.servers.values() if server.backend == backend]
        leaving = [each.name for each in servers if each.serves and f"{backend}/{each.name}" in drained]
        left = [each.name for each in servers if each.serves and f"{backend}/{each.name}" not in drained]
        if leaving and len(left) < min_available:
            others = [each for each in servers if not each.serves]
            why = "; ".join(f"{each.name} is {describe_server(each, change.records)}" for each in others)
            problems.append(
                f"service {backend}: without {', '.join(leaving)}, {', '.join(left) or 'no server'} would remain, but "
                f"min_available is {min_available}{f' ({why})' if why else ''}; return others to service first, or "
                "lower min_available (-e drain_min_available=0, in a rollout rollout_min_available)"
            )
    if problems:
        raise ServersError("\n".join(problems))


def describe_faults(before: HaproxyView, now: HaproxyView, names: Sequence[str]) -> list[str]:
    """Return the faults of servers that have just returned to service: errors since ``before``, failing checks.

    After a restart of HAProxy its counters begin at zero, so errors are not compared then.
    """
    problems = []
    for name in names:
        server, earlier = now.servers[name], before.servers[name]
        errors, requests = server.errors - earlier.errors, server.requests - earlier.requests
        if now.started == before.started and errors > 0:
            problems.append(f"{name}: {errors} errors in {requests} requests since it returned, expected none")
        elif server.state == READY and not server.up:
            problems.append(f"{name} was up and is {describe_server(server, {})}")
    return problems


def describe_server(server: HaproxyServer, records: Records) -> str:
    """Return the state of a server for people: ``ready``, ``drained by admin:alice``, ``down (L4CON ...)``."""
    if server.state == READY:
        return "ready" if server.up else f"down ({server.why})" if server.why else "down"
    word = "drained" if server.state == "drain" else "in maintenance"
    record = valid_record(server, records)
    by = f" by {record['owner']}" if record else " by hand"
    reason = f" ({record['reason']})" if record.get("reason") else ""
    return f"{word}{by}{reason}"


def read_records(data: Any) -> dict[str, dict[str, str]]:
    """Return the records of the parsed owners file. Raises RecordsError."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("servers"), dict):
        raise RecordsError(f"holds no records, expected an object with schema {SCHEMA} and servers")
    found = {}
    for name, record in data["servers"].items():
        if not isinstance(record, dict) or not all(isinstance(record.get(key), str) for key in _FIELDS):
            raise RecordsError(f"has no complete record of {quote_foreign(name)}, expected {', '.join(_FIELDS)}")
        found[name] = {key: record[key] for key in _FIELDS}
    return found


def records_document(records: Records) -> dict[str, Any]:
    """Return the content of the owners file for these records."""
    return {"schema": SCHEMA, "servers": {name: dict(records[name]) for name in sorted(records)}}
