# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what is installed of each instance of this host, and the mark of a rollout."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from typing import Any, Callable

from ..common.files_host import listed, target_of, text_of
from ..common.foreign_files_host import ForeignDirectory
from ..instance.config_file import InstanceError
from ..instance.config_host import group_in, names_in
from ..instance.marks import APPLIED, CONFIG_DIR, RUN_DIR, STATE_DIR
from ..vllm.files import (
    QUADLET,
    TEMPLATE,
    UNIT,
    env_path,
    group_files,
    group_path,
    metadata_files,
    metadata_path,
    preload_files,
    preload_path,
    quadlet_path,
    resident_files,
    residents_path,
    unit_path,
)
from .state import Entry, Image, SlotState, files_of_kind, launch_of, link_of, slots_of

# Returns the id of an image by the engine's command and the image's name; empty where the store lacks it.
ImageId = Callable[[str, str], str]


class Host:
    """The files of this host below ``root``."""

    def __init__(self, root: str, image_id: ImageId) -> None:
        self.root, self.image_id = root.rstrip("/"), image_id

    def at(self, path: str) -> str:
        """Return the real path of a path of the host."""
        return self.root + path

    def names(self) -> list[str]:
        """Return the instances that have files or slots here, sorted."""
        kept = [name for name in listed(self.at(STATE_DIR)) if os.path.isdir(self.at(slots_of(name)))]
        return sorted({*names_in(self.at(CONFIG_DIR)), *kept})

    def kind(self, name: str) -> str:
        """Return the kind of an instance's unit: its own unit takes precedence over the shared one."""
        if os.path.exists(self.at(unit_path(name))):
            return UNIT
        return QUADLET if os.path.exists(self.at(quadlet_path(name))) else TEMPLATE

    def spans(self, name: str) -> bool:
        """Return whether the installed instance spans several hosts."""
        return os.path.exists(self.at(group_path(name)))

    def has_metadata(self, name: str) -> bool:
        """Return whether vLLM has another name in the environment of the installed instance."""
        return metadata_path(name) in text_of(self.at(env_path(name)))

    def extras(self, name: str) -> list[dict[str, Any]]:
        """Return the files that this installed instance has besides: it spans hosts, shares its chips, is preloaded."""
        found = group_files(name, "") if self.spans(name) else []
        found += metadata_files(name) if self.has_metadata(name) else []
        found += resident_files(name) if os.path.exists(self.at(residents_path(name))) else []
        return [*found, *(preload_files(name) if os.path.exists(self.at(preload_path(name))) else [])]

    def group(self, name: str) -> dict[str, Any]:
        """Return ``hosts`` and ``role`` of an installed instance that spans several hosts, empty for any other one."""
        try:
            found = group_in(self.at(CONFIG_DIR), name)
            return {"hosts": [str(host) for host in found["hosts"]], "role": str(found["role"])}
        except (InstanceError, KeyError, TypeError):
            return {}

    def is_installed(self, name: str) -> bool:
        """Return whether the instance has its configuration file, by which the role recognises it."""
        return os.path.exists(self.at(f"{CONFIG_DIR}/{name}.yaml"))

    def state(self, name: str) -> SlotState:
        """Return the installed state; missing files are left out."""
        kind = self.kind(name)
        listed_files = [*files_of_kind(name, kind), *self.extras(name)]
        found = {entry["path"]: self._read(entry["path"]) for entry in listed_files}
        texts = {path: read[1].decode(errors="replace") for path, read in found.items() if read}
        launch = launch_of(name, kind, texts)
        image = None
        if launch.ref:
            image = Image(launch.ref, self.image_id(launch.engine, launch.ref), launch.engine)
        files = tuple(read[0] for _path, read in sorted(found.items()) if read)
        return SlotState(kind, files, target_of(self.at(link_of(name))), image, launch.venv)

    def missing(self, name: str, state: SlotState) -> list[str]:
        """Return the paths that a complete instance has and this one lacks."""
        there = {entry.path for entry in state.files}
        whole = [*files_of_kind(name, state.kind), *self.extras(name)]
        gone = [entry["path"] for entry in whole if entry["path"] not in there]
        return gone + ([] if state.model else [link_of(name)])

    def changed(self, name: str, state: SlotState) -> tuple[float, str]:
        """Return when the newest file or link of an installed state changed last, and its path.

        A configuration that the running engine has taken over does not count: the module instance_adapters notes that.
        """
        newest = (0.0, "")
        # Only root's mark: the engine owns the directory, and could hide that it runs with an older configuration.
        mark = ForeignDirectory(self.at(f"{RUN_DIR}/{name}")).text(APPLIED, owner=os.geteuid())
        config, applied = f"{CONFIG_DIR}/{name}.yaml", mark.strip()
        files = [entry.path for entry in state.files if (entry.path, entry.sha256) != (config, applied)]
        for path in [*files, link_of(name)]:
            with contextlib.suppress(OSError):
                newest = max(newest, (os.lstat(self.at(path)).st_ctime, path))
        return newest

    def entry(self, path: str) -> Entry | None:
        """Return the file at a path, None where there is none."""
        read = self._read(path)
        return read[0] if read else None

    def _read(self, path: str) -> tuple[Entry, bytes] | None:
        try:
            with open(self.at(path), "rb") as file:
                content, seen = file.read(), os.fstat(file.fileno())
        except FileNotFoundError:
            return None
        mode = f"{stat.S_IMODE(seen.st_mode):04o}"
        return Entry(path, hashlib.sha256(content).hexdigest(), mode, seen.st_uid, seen.st_gid), content


def turn_of(host: Host) -> dict[str, Any] | None:
    """Return the marker of a rollout that is updating this host, None without a readable one."""
    try:
        with open(host.at(f"{STATE_DIR}/rollout.json"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
