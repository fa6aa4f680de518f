# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task learns about the servers of a gateway."""

from __future__ import annotations

from typing import Any

from .drain_host import ServersOutcome
from .servers import DRAINED, ServersRequest, describe_server, valid_record
from .state import HaproxyServer

FIGURES = ("backend", "address", "state", "up", "why", "sessions", "queued", "changed_s", "downs")
COUNTERS = ("requests", "errors", "retries", "redispatches")


def result_of(outcome: ServersOutcome) -> dict[str, Any]:
    """Return the values that the module returns."""
    view, (before, records) = outcome.view, outcome.before
    return {
        "changed": outcome.changed,
        "servers": {name: row_of(view.servers[name], outcome.records) for name in outcome.names},
        "held": {name: owner_of(before.servers[name], records) for name in outcome.change.held},
        "idle": outcome.idle(),
        "up": outcome.up(),
        "waited_s": round(outcome.waited, 3),
        "backends": view.backends(),
        "frontends": view.frontends,
        "address_arrivals": outcome.arrivals,
        "started": view.started,
    }


def row_of(server: HaproxyServer, records: Any) -> dict[str, Any]:
    """Return the values of a server."""
    return {
        **{name: getattr(server, name) for name in FIGURES},
        **owner_of(server, records),
        **{name: getattr(server, name) for name in COUNTERS},
    }


def owner_of(server: HaproxyServer, records: Any) -> dict[str, str]:
    """Return who drained a server, empty strings for an unknown owner."""
    record = valid_record(server, records)
    return {name: record.get(name, "") for name in ("owner", "reason", "since")}


def diff_of(outcome: ServersOutcome, request: ServersRequest, check: bool) -> dict[str, str]:
    """Return a line for each changed server, from before and after the change."""
    before, records = outcome.before
    after = outcome.view.servers
    lines = {"before": "", "after": ""}
    for name in outcome.change.changed:
        lines["before"] += f"{name}: {describe_server(before.servers[name], records)}\n"
        lines["after"] += (
            f"{name}: {planned(outcome, name, request) if check else describe_server(after[name], outcome.records)}\n"
        )
    return lines


def planned(outcome: ServersOutcome, name: str, request: ServersRequest) -> str:
    """Return the state of a server after the change that check mode leaves out."""
    if request.state != DRAINED:
        return "ready"
    reason = f" ({request.reason})" if request.reason else ""
    word = "in maintenance" if outcome.change.records[name]["state"] == "maint" else "drained"
    return f"{word} by {request.owner}{reason}"
