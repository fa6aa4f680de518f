# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that another model on the host has too, such as shards of an earlier revision: stored once, by hard links."""

from __future__ import annotations

import contextlib
import os

from ..transfer.partial_file import make_directory
from .files_host import ModelState, file_status, read_stamp
from .owners_host import Owners
from .plan import STAMP_NAME, parse_stamp

# Smaller files are fetched: a link would save nothing.
LEAST = 2**20


def find_shared_files(root: str, state: ModelState) -> dict[str, str]:
    """Return the paths of files of other published models that have the content of missing ones, by these names.

    A stamp vouches for each: the file is as it was when its hash was right. It is read again before it is published.
    What another user can change is left out: the link would stay that user's file.
    """
    wanted = {(file.size, file.sha256): file.name for file in state.missing if file.size >= LEAST}
    found: dict[str, str] = {}
    owners = Owners(root)
    for directory in owners.find_revisions()[0] if wanted else ():
        if directory == state.directory or owners.find_foreign(directory, [STAMP_NAME]):
            continue
        for name, (status, sha256) in parse_stamp(read_stamp(directory)).items():
            path = os.path.join(directory, name)
            missing = wanted.get((status.size, sha256))
            with contextlib.suppress(OSError):
                if missing and file_status(os.lstat(path)) == status and not owners.find_foreign(directory, [name]):
                    found.setdefault(missing, path)
    return found


def link_shared_files(root: str, state: ModelState) -> list[str]:
    """Link what other models have into the partial directory; return the names. What cannot be linked is fetched."""
    parent, linked = os.path.dirname(state.partial), []
    for name, path in sorted(find_shared_files(root, state).items()):
        dest = os.path.join(state.partial, name)
        make_directory(os.path.dirname(dest), parent)
        if os.path.lexists(dest):
            continue
        # Another file system, too many links, or a model that was removed just now.
        with contextlib.suppress(OSError):
            os.link(path, dest)
            linked.append(name)
    return linked
