# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's maps of clients on the disk and in a HAProxy that runs."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from typing import Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.admin_socket_host import ask
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import (
    CLIENTS,
    CONCURRENT,
    RATES,
    Client,
    commands,
    differences,
    map_text,
    maps_of,
    parse_map,
)

Maps = Mapping[str, Mapping[str, str]]


class MapsError(Exception):
    """The maps cannot be written, or HAProxy refuses a change; the message says which, and shows no key."""


@dataclass(frozen=True)
class Brought:
    """What was done, or would be; ``before`` and ``after`` are lines about clients for a diff."""

    changed: bool
    running: bool
    differences: dict[str, list[str]]
    before: list[str]
    after: list[str]


def bring(clients: Sequence[Client], directory: str, admin: str, group: str, check: bool) -> Brought:
    """Bring the maps of ``directory`` and those of a running HAProxy to ``clients``. Raises MapsError."""
    wanted: Maps = maps_of(clients)
    texts = {name: _read(f"{directory}/{name}") for name in wanted}
    before = {name: parse_map(text or "") for name, text in texts.items()}
    stale = [name for name, entries in wanted.items() if texts[name] != map_text(entries)]
    known = _running(admin, directory, list(wanted))
    told = (
        {} if known is None else {name: commands(f"{directory}/{name}", known[name], wanted[name]) for name in wanted}
    )
    if not check:
        for name in stale:
            _write(directory, name, map_text(wanted[name]), group)
        _tell(admin, told)
    return Brought(
        changed=bool(stale or any(told.values())),
        running=known is not None,
        differences=differences(before, wanted),
        before=_lines(before),
        after=_lines(wanted),
    )


def _lines(maps: Maps) -> list[str]:
    """Return a line for each client: its limits, and how many keys it has."""
    names = list(maps.get(CLIENTS, {}).values())
    return [
        f"{name}: keys {names.count(name)}, rate {maps[RATES].get(name, 'any')}, "
        f"concurrent {maps[CONCURRENT].get(name, 'any')}"
        for name in sorted(set(names))
    ]


def _running(admin: str, directory: str, names: Sequence[str]) -> dict[str, dict[str, str]] | None:
    """Return the maps of the HAProxy that runs; None where none runs, or runs without these maps."""
    try:
        paths = ask(admin, "show map")
    except OSError:
        return None
    if not all(f"({directory}/{name})" in paths for name in names):
        return None
    found = {}
    for name in names:
        # Each line begins with where the entry lies in memory.
        lines = [
            line.split(None, 1)[1] for line in ask(admin, f"show map {directory}/{name}").splitlines() if " " in line
        ]
        found[name] = parse_map("\n".join(lines))
    return found


def _tell(admin: str, told: Mapping[str, Sequence[str]]) -> None:
    for name, lines in told.items():
        for line in lines:
            answer = ask(admin, line).strip()
            if answer:
                # The command holds a hash, so only its first words are shown.
                raise MapsError(
                    f"{admin}: HAProxy refused {' '.join(line.split()[:2])} for {name}: {answer.splitlines()[0]}"
                )


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise MapsError(f"{path}: cannot be read: {exc}") from exc


def _write(directory: str, name: str, text: str, group: str) -> None:
    """Write a map by rename, readable by root and ``group``."""
    beside = f"{directory}/.{name}.{os.getpid()}"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            shutil.chown(beside, group=group)
            os.fchmod(descriptor, 0o640)
        os.replace(beside, f"{directory}/{name}")
    except (OSError, LookupError) as exc:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise MapsError(f"{directory}/{name}: cannot be written: {exc}") from exc
