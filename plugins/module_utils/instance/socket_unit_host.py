# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the unit of the process that made a listening socket, by the control group that the kernel keeps with it.

Instances of a host have one user, so the owner of a socket does not tell them apart. The kernel tells everybody the
control group (sock_diag, from Linux 5.9), a process cannot choose its own, and systemd has one for each unit.
"""

from __future__ import annotations

import os
import re
from collections import deque
from typing import Iterator

from ..common.files_host import text_of
from ..common.foreign_files_host import ForeignDirectory
from .marks import CONTAINER, RUN_DIR, STATE_DIR

# Where the second version of control groups is mounted; systemd's hybrid layout has it below the first one.
ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
SELF, _MARK = "/proc/self/cgroup", "cgroup.controllers"
# Slices, units and scopes, and the groups that a container engine makes below one.
_DEPTH, _MOST = 7, 20_000
_ENGINE = re.compile(r"(?:(?:docker|libpod|libpod-payload|cri-containerd|crio)-)?([0-9a-f]{64})(?:\.scope)?")


class BeyondError(Exception):
    """A control group is not among the first ones of the host."""


def stranger_at(groups: set[int], instance: str, of_root: bool = False) -> str:
    """Return the first of these control groups that is not the instance's, empty where there is none or it is unknown.

    A container of docker has a separate group, named after its id, which docker writes for root beside the instance's
    marks, where it is until the instance stops. Each container counts as the instance's for other users, and for root
    where release 0.9.0 has made the command of the instance. So does the group of this process.

    Root's own programs can be what they want: ``of_root``, only another instance or another container is a stranger,
    and root knows the instance's by that file alone.
    """
    identity = ForeignDirectory(f"{RUN_DIR}/{instance}").text(CONTAINER).strip()
    known = identity or (os.geteuid() == 0 and (of_root or _writes_id(instance)))
    units = {f"vllm@{instance}.service", f"vllm-router@{instance}.service"}
    try:
        for path in paths_of(groups):
            parts = path.split("/")
            # Only systemd names the first one: whom a group is delegated to can call those in it as it likes.
            service = next((part for part in parts if part.endswith(".service")), "")
            if path == own_group() or service in units:
                continue
            ids = [found.group(1) for found in map(_ENGINE.fullmatch, parts) if found]
            if of_root and not ids and not service.startswith("vllm@"):
                continue
            if service or not ids or (known and identity != ids[0]):
                return path
    except BeyondError:
        return f"(a control group behind the first {_MOST} of this host)"
    return ""


def _writes_id(instance: str) -> bool:
    """Return whether the command of an instance has docker write the id of its container, or starts none."""
    command = text_of(f"{STATE_DIR}/{instance}/serve")
    return "--cidfile" in command or not re.search(r"docker\S* run ", command)


def own_group() -> str:
    """Return the path of this process's control group, empty where there is none of the second version."""
    found = re.search(r"(?m)^0::(.*)$", text_of(SELF))
    return found.group(1) if found else ""


def paths_of(groups: set[int]) -> Iterator[str]:
    """Yield the paths of control groups below the root; a group that is gone or out of sight is left out.

    Those of logins come last, because users make as many as they like there. Raises BeyondError where one is not among
    the first ones of the host.
    """
    root = next((path for path in ROOTS if os.path.exists(f"{path}/{_MARK}")), "")
    waiting, left, seen = deque([(root, 0)] if root else []), set(groups), 0
    while waiting and left:
        if seen == _MOST:
            raise BeyondError
        path, depth = waiting.popleft()
        seen += 1
        try:
            found = os.stat(path).st_ino
            if found in left:
                left.remove(found)
                yield path[len(root) :] or "/"
            below = [each.path for each in os.scandir(path) if depth < _DEPTH and each.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        waiting.extend((inner, depth + 1) for inner in sorted(below, key=lambda name: name.endswith("/user.slice")))
