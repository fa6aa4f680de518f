# SPDX-License-Identifier: GPL-3.0-or-later
"""The states of servers that HAProxy saves, and the ports of its configuration."""

from __future__ import annotations

import re


def fitted(state: str, config: str) -> str:
    """Return a state with the ports of ``config``, because HAProxy prefers those of the state to its configuration.

    Servers that are not in the configuration are left out.
    """
    lines = state.splitlines()
    if len(lines) < 2 or not lines[1].startswith("# "):
        return state
    columns = lines[1][2:].split()
    ports, agent = _ports(config)
    kept = []
    for row in (line.split(" ") for line in lines[2:]):
        entry = dict(zip(columns, row))
        port = ports.get((entry.get("be_name", ""), entry.get("srv_name", "")))
        if port:
            entry.update(srv_port=port, srv_agent_port=agent)
            kept.append(" ".join(entry.values()))
    return "\n".join([*lines[:2], *kept, "", ""])


def _ports(config: str) -> tuple[dict[tuple[str, str], str], str]:
    """Return the port of each server by backend and name, and the agent's port."""
    ports, backend, agent = {}, "", "0"
    for line in config.splitlines():
        words = line.split()
        if words[:1] == ["backend"]:
            backend = words[1]
        # HAProxy's own sockets have no state.
        elif words[:1] == ["server"] and not words[2].startswith("unix@"):
            ports[backend, words[1]] = words[2].rpartition(":")[2]
        found = re.search(r" agent-port (\d+)", line)
        agent = found.group(1) if found else agent
    return ports, agent
