# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files below a root of weights other users can change: those are neither trusted by their stamp nor linked.

Models may have come with a disk or by rsync, and then belong to somebody else. Their owner can write into a file after
it was verified and set its time back, so neither a stamp nor stat says anything about its content.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Callable, Iterable

from ..common.files_host import listed
from .manifest import WeightsError


class Owners:
    """The users who may own files below ``root``: root, this user, and the owner of ``root`` itself.

    The last one can exchange everything in it anyway, and is the user to whom an NFS server maps root.
    """

    def __init__(self, root: str) -> None:
        self.root, self.users = root.rstrip("/"), {0, os.geteuid()}
        self._exposed: dict[str, bool] = {}
        if os.path.exists(root):
            self.users.add(os.stat(root).st_uid)

    def find_foreign(self, directory: str, names: Iterable[str]) -> set[str]:
        """Return the names of files in a directory below the root that another user can change or that are no plain
        files; a link on the way counts too, except above the directory, where an admin may have put it."""
        if self.is_exposed(directory):
            return set(names)
        return {name for name in names if self._is_foreign(directory, name)}

    def is_exposed(self, directory: str) -> bool:
        """Return whether another user can change the names in a directory, or in one between the root and it."""
        while len(directory) > len(self.root):
            if self._is_open(directory, stat.S_ISDIR, follow=True):
                return True
            directory = os.path.dirname(directory)
        return False

    def check_parent(self, directory: str) -> None:
        """Raise WeightsError where another user can change the names beside a revision: root would follow his links."""
        parent = os.path.dirname(directory)
        if self.is_exposed(parent):
            raise WeightsError(
                f"{parent}: another user owns or can write this directory or one above it, so nothing is fetched into "
                f"it; put a copy that root has made (cp -r) in the place of {os.path.dirname(parent)}, or remove it"
            )

    def find_revisions(self) -> tuple[list[str], list[str]]:
        """Return the directories of published revisions (ORGANISATION/NAME/REVISION), and those that are left out with
        everything below them, because another user could make any number of any names there."""
        places, exposed = [self.root], []
        for _level in range(3):
            paths = [os.path.join(place, name) for place in places for name in listed(place) if name[0] != "."]
            places = [path for path in paths if os.path.isdir(path)]
            exposed += [path for path in places if self.is_exposed(path)]
            places = [path for path in places if path not in exposed]
        # Names of revisions that are being fetched start with a dot.
        is_revision = re.compile("[0-9a-f]{40}").fullmatch
        return [path for path in places if is_revision(os.path.basename(path)) and not os.path.islink(path)], exposed

    def _is_foreign(self, directory: str, name: str) -> bool:
        *parents, last = name.split("/")
        for parent in parents:
            directory = os.path.join(directory, parent)
            if directory not in self._exposed:
                self._exposed[directory] = self._is_open(directory, stat.S_ISDIR)
            if self._exposed[directory]:
                return True
        return self._is_open(os.path.join(directory, last), stat.S_ISREG)

    def _is_open(self, path: str, is_kind: Callable[[int], bool], follow: bool = False) -> bool:
        """Return whether something is of another kind, or of another user, or others may write it."""
        try:
            found = os.stat(path, follow_symlinks=follow)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return not is_kind(found.st_mode) or found.st_uid not in self.users or bool(found.st_mode & 0o022)
