# SPDX-License-Identifier: GPL-3.0-or-later
"""Files, directories and links of a role: compare them with the host, and write them one after the other."""

from __future__ import annotations

import errno
import grp
import os
import stat
from typing import Any, Mapping, NamedTuple

from .files_host import make_directories, open_regular, publish, publish_link
from .foreign_trees_host import remove_tree

FILE, DIRECTORY, LINK, ABSENT, REMOVED = "file", "directory", "link", "absent", "removed"
# More of a file is not read: it differs from every one of a role.
MOST_BYTES = 16 * 1024 * 1024
_TYPES = {stat.S_IFREG: FILE, stat.S_IFDIR: DIRECTORY, stat.S_IFLNK: LINK}


class FileSetError(Exception):
    """An entry cannot be written; the message names its path."""


class Entry(NamedTuple):
    """One path and what is requested there; the owner is the user of the process, root in every role."""

    path: str
    state: str
    mode: int | None = None  # of files and directories
    group: str | None = None  # of files and directories
    content: bytes = b""  # of files
    target: str = ""  # of links

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Entry:
        """Return the entry of a module's option. Raises FileSetError."""
        try:
            mode = None if entry["mode"] is None else int(entry["mode"], 8)
        except ValueError:
            raise FileSetError(
                f"{entry['path']}: mode {entry['mode']!r} is not octal; expected one like 0644"
            ) from None
        if entry["state"] in (FILE, DIRECTORY) and mode is None:
            raise FileSetError(f"{entry['path']}: a {entry['state']} needs a mode")
        if not os.path.isabs(entry["path"]):
            raise FileSetError(f"{entry['path']}: expected an absolute path")
        content = (entry["content"] or "").encode()
        return cls(entry["path"], entry["state"], mode, entry["group"], content, entry["target"] or "")


class Found(NamedTuple):
    """What is at a path; type is empty where nothing is."""

    type: str = ""
    mode: int | None = None
    uid: int = -1
    gid: int = -1
    content: bytes = b""
    target: str = ""


def inspect(entry: Entry) -> Found:
    """Return what is at the entry's path. Raises FileSetError where it can be neither kept nor replaced."""
    try:
        status = os.lstat(entry.path)
    except FileNotFoundError:
        return Found()
    except NotADirectoryError:
        raise FileSetError(f"{entry.path}: a directory above it is a file") from None
    kind = _TYPES.get(stat.S_IFMT(status.st_mode), "special file")
    # A link is replaced by a file or another link. A link of this user to a directory is the site's own directory;
    # one of another user, such as Prometheus in its own directory, could name any.
    own_link = kind == LINK and status.st_uid == os.geteuid()
    if entry.state == DIRECTORY and own_link and os.path.isdir(entry.path):
        status, kind = os.stat(entry.path), DIRECTORY
    replaceable = entry.state in (kind, REMOVED) or (kind in (FILE, LINK) and entry.state in (FILE, LINK, ABSENT))
    if not replaceable:
        expected = FILE if entry.state == ABSENT else entry.state
        raise FileSetError(f"{entry.path} is a {kind}; expected a {expected}: move it away and run again")
    content = b""
    if kind == FILE and entry.state == FILE:
        with open(open_regular(entry.path, os.O_NOFOLLOW), "rb") as file:
            content = file.read(MOST_BYTES)
    target = os.readlink(entry.path) if kind == LINK else ""
    return Found(kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, content, target)


def differs(entry: Entry, found: Found, gid: int | None) -> bool:
    """Return whether the entry must be written. ``gid`` is None where its group does not exist yet."""
    if entry.state in (ABSENT, REMOVED):
        return bool(found.type)
    if found.type != entry.state:
        return True
    if entry.state == LINK:
        return found.target != entry.target
    owned = found.uid == os.geteuid() and found.gid == gid
    return found.mode != entry.mode or not owned or (entry.state == FILE and found.content != entry.content)


def group_id(entry: Entry) -> int | None:
    """Return the number of the entry's group, the process's own where it names none; None for an unknown group."""
    if entry.group is None:
        return os.getegid()
    try:
        return grp.getgrnam(entry.group).gr_gid
    except KeyError:
        return None


def put_in_place(entry: Entry, found: Found) -> None:
    """Make the path what the entry requests. Raises FileSetError."""
    gid = group_id(entry)
    if gid is None:
        raise FileSetError(f"{entry.path}: the group {entry.group!r} does not exist on this host")
    try:
        if entry.state == REMOVED and found.type == DIRECTORY:
            remove_tree(entry.path)
        elif entry.state in (ABSENT, REMOVED):
            os.unlink(entry.path)
        elif entry.state == LINK:
            publish_link(entry.target, entry.path)
        elif entry.state == DIRECTORY:
            if not found.type:
                make_directories(entry.path)
            _set_attributes(entry, gid)
        elif found.type == FILE and found.content == entry.content and found.uid == os.geteuid():
            _set_attributes(entry, gid)
        else:
            publish(entry.path, entry.content, entry.mode or 0, entry.group)
    except OSError as exc:
        raise FileSetError(f"{entry.path}: {exc.strerror or errno.errorcode.get(exc.errno or 0, exc)}") from exc


def _set_attributes(entry: Entry, gid: int) -> None:
    """Set owner and mode of what is open: who owns the directory can replace the path by a link at any time."""
    if entry.state == FILE:
        descriptor = open_regular(entry.path, os.O_NOFOLLOW)
    else:
        followed = 0 if os.path.islink(entry.path) else os.O_NOFOLLOW
        descriptor = os.open(entry.path, os.O_DIRECTORY | os.O_CLOEXEC | followed)
    try:
        os.fchown(descriptor, os.geteuid(), gid)
        os.fchmod(descriptor, entry.mode or 0)
    finally:
        os.close(descriptor)
