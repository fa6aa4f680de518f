# SPDX-License-Identifier: GPL-3.0-or-later
"""Where something is mounted, by the kernel's list: the directories of a bind mount have the device of all others."""

from __future__ import annotations

import errno
import os
import re
from itertools import islice

from .files_host import MOST_TEXT, open_regular

_PIECE = 1 << 16
# The fifth field is where, and behind " - " comes the kind.
_MOUNT = re.compile(r"^(?:[^ \n]+ ){4}([^ \n]+) [^\n]*? - ([^ \n]+)", re.MULTILINE)


class MountedError(OSError):
    """Something is mounted in a directory that was to be removed, at ``mount``; nothing was removed."""

    def __init__(self, path: str, mount: str) -> None:
        super().__init__(errno.EBUSY, f"nothing is removed, because {mount} is mounted there; unmount it first", path)
        self.mount = mount

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def read_mounts(proc: str = "/proc") -> list[tuple[str, str]]:
    """Return each mount point with the kind of its file system; of two on one path, the later one is visible.

    Raises OSError where the kernel's list cannot be read whole.
    """
    source = f"{proc}/self/mountinfo"
    # The kernel escapes nothing else at which Python would end a line or a field, and users name their mounts.
    with open(source, encoding="utf-8", errors="surrogateescape", newline="\n", opener=open_regular) as file:
        # In pieces, because Python makes room at once for all that it may read.
        text = "".join(islice(iter(lambda: file.read(_PIECE), ""), MOST_TEXT // _PIECE))
    if not text.endswith("\n"):
        raise OSError(errno.EIO, "the list of mounts cannot be read", source)
    return [(_unescape(mount), kind) for mount, kind in _MOUNT.findall(text)]


def mount_within(path: str, proc: str = "/proc") -> str:
    """Return a mount point at a path or below, empty for none; a link at the path is not followed. Raises OSError."""
    top = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return next((mount for mount, _kind in read_mounts(proc) if f"{mount}/".startswith(f"{top}/")), "")


def check_unmounted(path: str) -> None:
    """Raise MountedError for a directory at or below which something is mounted, and OSError as ``mount_within``."""
    mount = mount_within(path)
    if mount:
        raise MountedError(path, mount)


def _unescape(field: str) -> str:
    """Return a path of mountinfo, where spaces and the like are octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
