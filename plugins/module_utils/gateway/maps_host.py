# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's maps of clients: the files and the maps of the running HAProxy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import publish
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.admin_socket_host import send_command
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import (
    ANY,
    CLIENTS,
    CONCURRENT,
    ENDS,
    RATES,
    TEAMS,
    Client,
    commands,
    differences,
    map_text,
    maps_of,
    parse_map,
    rights_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.expiry import end_in_words

Maps = Mapping[str, Mapping[str, str]]


class MapsError(Exception):
    """A map cannot be written, or HAProxy refused a change; the message names it, and shows no key."""


@dataclass(frozen=True)
class MapsOutcome:
    """Result of an update or a dry run; ``before`` and ``after`` are lines about clients for a diff."""

    changed: bool
    running: bool
    differences: dict[str, list[str]]
    before: list[str]
    after: list[str]


def update_maps(clients: Sequence[Client], directory: str, admin_socket: str, group: str, check: bool) -> MapsOutcome:
    """Update the maps in ``directory`` and those of a running HAProxy to ``clients``. Raises MapsError."""
    requested: Maps = maps_of(clients)
    texts = {name: _read(f"{directory}/{name}") for name in requested}
    before = {name: parse_map(text or "") for name, text in texts.items()}
    stale = [name for name, entries in requested.items() if texts[name] != map_text(entries)]
    known = _running_maps(admin_socket, directory, list(requested))
    pending = {name: commands(f"{directory}/{name}", now, requested[name]) for name, now in (known or {}).items()}
    if not check:
        for name in stale:
            _write(f"{directory}/{name}", map_text(requested[name]), group)
        _send(admin_socket, pending)
    return MapsOutcome(
        changed=bool(stale or any(pending.values())),
        running=known is not None,
        differences=differences(before, requested),
        before=_lines(before),
        after=_lines(requested),
    )


def _lines(maps: Maps) -> list[str]:
    """Return a line for each client with its limits, its services and the number of its keys."""
    names = list(maps.get(CLIENTS, {}).values())
    rights = rights_of(maps)
    return [
        f"{name}: keys {names.count(name)}, rate {maps[RATES].get(name, 'any')}, "
        f"concurrent {maps[CONCURRENT].get(name, 'any')}, "
        f"services {', '.join(rights.get(name, [ANY])).replace(ANY, 'any')}, "
        f"expires {end_in_words(maps.get(ENDS, {}).get(name))}"
        + (f", team {maps[TEAMS][name]}" if name in maps.get(TEAMS, {}) else "")
        for name in sorted(set(names))
    ]


def _running_maps(admin_socket: str, directory: str, names: Sequence[str]) -> dict[str, dict[str, str]] | None:
    """Return the maps that the running HAProxy uses; None when it does not run or uses none of them.

    One that was set up by an earlier release knows fewer maps, and its keys must change anyway.
    """
    try:
        paths = send_command(admin_socket, "show map")
    except OSError:
        return None
    used = [name for name in names if f"({directory}/{name})" in paths]
    if not used:
        return None
    found = {}
    for name in used:
        answer = send_command(admin_socket, f"show map {directory}/{name}")
        # Each line begins with the memory address of the entry.
        found[name] = parse_map("\n".join(line.split(None, 1)[1] for line in answer.splitlines() if " " in line))
    return found


def _send(admin_socket: str, pending: Mapping[str, Sequence[str]]) -> None:
    for name, lines in pending.items():
        for line in lines:
            answer = send_command(admin_socket, line).strip()
            if answer:
                # The command contains a hash, so the message has only its first words.
                raise MapsError(
                    f"{admin_socket}: HAProxy refused {' '.join(line.split()[:2])} for {name}: {answer.splitlines()[0]}"
                )


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise MapsError(f"{path}: cannot be read: {exc}") from exc


def _write(path: str, text: str, group: str) -> None:
    """Replace a map, readable by root and ``group``. Raises MapsError."""
    try:
        publish(path, text, 0o640, group)
    except OSError as exc:
        raise MapsError(f"{path}: cannot be written: {exc}") from exc
    except LookupError as exc:
        raise MapsError(f"{path}: the group {group} does not exist; install haproxy first") from exc
