# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent of this gateway has written about the number of replicas."""

from __future__ import annotations

from typing import Any

from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json

# Of the agent's own user (DynamicUser); /var/lib/gateway-agent is a link to it.
DIRECTORY, FILE = "/var/lib/private/gateway-agent", "scale.json"
_NUMBERS, _TEXTS = ("min", "max", "waiting"), ("mode", "last")
# Characters of a text; names and reasons are the agent's own.
_LONGEST = 300


def read_report(directory: str = DIRECTORY) -> dict[str, Any]:
    """Return what the agent decided by service; empty at a gateway that does not decide, and for a damaged file."""
    try:
        found = load_json(ForeignDirectory(directory).text(FILE))
        services = found["services"] if found["decides"] is True else {}
        return {str(name)[:_LONGEST]: _entry(each) for name, each in services.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _entry(each: Any) -> dict[str, Any]:
    """Return the fields of a service. Raises KeyError, TypeError and ValueError."""
    replicas = {str(state)[:_LONGEST]: int(count) for state, count in each["replicas"].items()}
    texts = {name: str(each[name])[:_LONGEST] for name in _TEXTS}
    # The agent of 0.10.0 names no hosts.
    names = {key: [str(name)[:_LONGEST] for name in each.get(key, [])] for key in ("idle", "hosts")}
    return {**{name: int(each[name]) for name in _NUMBERS}, **texts, "replicas": replicas, **names}
