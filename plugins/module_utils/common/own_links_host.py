# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow symbolic links of this user, and of root, to the file to replace."""

from __future__ import annotations

import errno
import os
import stat

_MOST_LINKS = 40


def follow_links(path: str) -> str:
    """Return the path without symbolic links, of which the last parts may not exist yet.

    Raises OSError for a link of anybody else: in a directory such as /tmp it would choose which file is replaced.
    """
    done, ahead, links = "/", os.path.abspath(os.path.expanduser(path)).split("/")[::-1], 0
    while ahead:
        here = os.path.normpath(os.path.join(done, ahead.pop()))
        target = _target(here)
        if target is None:
            done = here
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        ahead += target.split("/")[::-1]
        done = "/" if target.startswith("/") else done
    return done


def _target(path: str) -> str | None:
    """Return where a link leads; None for all else. Raises OSError for a link of another user."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISLNK(found.st_mode):
        return None
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, f"{path} is a link of another user (uid {found.st_uid}); name another path")
    return os.readlink(path)
