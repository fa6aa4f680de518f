# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare a new state on its host as a slot, so that changing to it is as fast as a rollback."""

from __future__ import annotations

import grp
import hashlib
import pwd
from typing import Any, Mapping, Sequence

from ..vllm.files import QUADLET, TEMPLATE, UNIT, quadlet_path, unit_path
from .host import Slots
from .installed_host import Host
from .state import Entry, Image, Slot, SlotError, SlotState, launch_of


def stage(
    host: Host,
    name: str,
    files: Sequence[Mapping[str, Any]],
    contents: Mapping[str, str],
    model: str,
    make: bool = True,
) -> str:
    """Return the digest of the slot for an instance's planned files; create the slot with ``make``.

    ``files`` have ``path``, ``mode``, ``owner`` and ``group``, ``contents`` their texts by path; ``model`` is the
    target of the link to the weights. Raises SlotError, OSError.
    """
    entries = tuple(sorted((_entry(file, contents[file["path"]]) for file in files), key=lambda entry: entry.path))
    kind = _kind(name, {entry.path for entry in entries})
    launch = launch_of(name, kind, contents)
    image = Image(launch.ref, host.image_id(launch.engine, launch.ref), launch.engine) if launch.ref else None
    slot = Slot("", SlotState(kind, entries, model, image, launch.venv))
    slots = Slots(host, name)
    digest = slot.state.digest
    if make:
        with slots.locked():
            slots.add(Slot(digest, slot.state), {path: text.encode() for path, text in contents.items()})
    return digest


def _entry(file: Mapping[str, Any], text: str) -> Entry:
    try:
        uid, gid = pwd.getpwnam(file["owner"]).pw_uid, grp.getgrnam(file["group"]).gr_gid
    except KeyError as exc:
        raise SlotError(f"{file['path']} is to belong to {file['owner']}:{file['group']}: {exc.args[0]}") from exc
    return Entry(file["path"], hashlib.sha256(text.encode()).hexdigest(), f"{int(file['mode'], 8):04o}", uid, gid)


def _kind(name: str, paths: set[str]) -> str:
    if quadlet_path(name) in paths:
        return QUADLET
    return UNIT if unit_path(name) in paths else TEMPLATE
