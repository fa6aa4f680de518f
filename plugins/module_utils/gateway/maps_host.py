# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's maps of clients: the files and the maps of the running HAProxy."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ..common.files_host import publish
from ..common.unix_socket_host import ask_root
from .admin_socket_host import without_reload
from .clients import ANY, Maps, commands, describe_maps, differences, map_text, maps_of, parse_map, steps


class MapsError(Exception):
    """A map cannot be written, or HAProxy refused a change; the message names it, and shows no key."""


@dataclass(frozen=True)
class MapsOutcome:
    """Result of an update or a dry run; ``before`` and ``after`` are the clients as describe_maps returns them.

    ``present`` are those of the running HAProxy, which a change at its socket may have made others.
    """

    changed: bool
    running: bool
    differences: dict[str, list[str]]
    before: dict[str, dict[str, Any]]
    after: dict[str, dict[str, Any]]
    present: dict[str, dict[str, Any]]


def read_maps(directory: str) -> dict[str, dict[str, str]]:
    """Return the maps in a directory; a missing one is empty. Raises MapsError."""
    return {name: parse_map(_read(f"{directory}/{name}") or "") for name in maps_of(())}


def update_maps(requested: Maps, directory: str, admin_socket: str, group: str, check: bool) -> MapsOutcome:
    """Update the maps in ``directory`` and those of a running HAProxy to ``requested``. Raises MapsError."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(without_reload(admin_socket))
        except OSError as exc:
            raise MapsError(f"{exc.filename}: {exc.strerror}; a reload of HAProxy holds it for seconds") from exc
        return _update_maps(requested, directory, admin_socket, group, check)


def _update_maps(requested: Maps, directory: str, admin_socket: str, group: str, check: bool) -> MapsOutcome:
    texts = {name: _read(f"{directory}/{name}") for name in requested}
    before = {name: parse_map(text or "") for name, text in texts.items()}
    stale = [name for name, entries in requested.items() if texts[name] != map_text(entries)]
    known = _running_maps(admin_socket, directory, list(requested))
    if not check:
        _write_files(texts, requested, directory, group)
        _send(admin_socket, directory, known or {}, requested)
    return MapsOutcome(
        changed=bool(stale) or any(entries != requested[name] for name, entries in (known or {}).items()),
        running=known is not None,
        differences=differences(before, requested),
        before=describe_maps(before),
        after=describe_maps(requested),
        present=describe_maps({**before, **(known or {})}),
    )


def client_lines(clients: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a line for each client with its limits, its services and the number of its keys, for a diff."""
    return "".join(
        f"{name}: keys {found['keys']}, rate {found['rate'] or 'any'}, concurrent {found['concurrent'] or 'any'}, "
        f"services {', '.join(found['services']).replace(ANY, 'any')}, expires {found['expires']}"
        + (f", team {found['team']}" if found["team"] else "")
        + "\n"
        for name, found in clients.items()
    )


def _running_maps(admin_socket: str, directory: str, names: Sequence[str]) -> dict[str, dict[str, str]] | None:
    """Return the maps that the running HAProxy uses; None when it does not run or uses none of them.

    One that was set up by an earlier release knows fewer maps, and its keys must change anyway.
    """
    try:
        paths = ask_root(admin_socket, "show map")
    except OSError:
        return None
    used = [name for name in names if f"({directory}/{name})" in paths]
    if not used:
        return None
    found = {}
    for name in used:
        answer = ask_root(admin_socket, f"show map {directory}/{name}")
        # Each line begins with the memory address of the entry.
        found[name] = parse_map("\n".join(line.split(None, 1)[1] for line in answer.splitlines() if " " in line))
    return found


def _write_files(texts: Mapping[str, str | None], requested: Maps, directory: str, group: str) -> None:
    present = dict(texts)
    before = {name: parse_map(text) for name, text in texts.items() if text is not None}
    for name, entries in steps(before, requested):
        text = map_text(entries)
        if text != present[name]:
            _write(f"{directory}/{name}", text, group)
            present[name] = text


def _send(admin_socket: str, directory: str, known: Maps, requested: Maps) -> None:
    present = dict(known)
    for name, entries in steps(known, {name: requested[name] for name in requested if name in known}):
        for line in commands(f"{directory}/{name}", present[name], entries):
            answer = ask_root(admin_socket, line).strip()
            if answer:
                # The command contains a hash, so the message has only its first words.
                raise MapsError(
                    f"{admin_socket}: HAProxy refused {' '.join(line.split()[:2])} for {name}: {answer.splitlines()[0]}"
                )
        present[name] = entries


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
