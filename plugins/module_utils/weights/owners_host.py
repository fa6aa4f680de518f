# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files below a root of weights other users can change: those are neither trusted by their stamp nor linked.

Models may have come with a disk or by rsync, and then belong to somebody else. Their owner can write into a file after
it was verified and set its time back, so neither a stamp nor stat says anything about its content.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from typing import Callable, Iterable, Iterator

from ..common.files_host import listed, target_of
from .manifest import WeightsError


class Owners:
    """The users who may own files below ``root``: root, this user, and the owner of ``root`` itself.

    The last one can exchange everything in it anyway, and is the user to whom an NFS server maps root.
    """

    def __init__(self, root: str) -> None:
        self.root, self.users = root.rstrip("/"), {0, os.geteuid()}
        self._exposed: dict[str, bool] = {}
        # What leads to the root is its owner's matter, and the root itself.
        self._above, self._real = set(_places(self.root)), os.path.realpath(self.root) + "/"
        if os.path.exists(root):
            self.users.add(os.stat(root).st_uid)

    def find_foreign(self, directory: str, names: Iterable[str]) -> set[str]:
        """Return the names of files in a directory below the root that another user can change or that are no plain
        files; a link on the way counts too, except above the directory, where an admin may have put it."""
        if self.is_exposed(directory):
            return set(names)
        return {name for name in names if self._is_foreign(directory, name)}

    def is_exposed(self, directory: str) -> bool:
        """Return whether another user can change the names in a directory, or in one on the way from the root to it."""
        return bool(self.exposure(directory))

    def exposure(self, directory: str, is_made: bool = False) -> str:
        """Return how another user can change the names in a directory, or in one on the way from the root to it, also
        where an admin's link leads: "alice owns /srv/models/acme". Empty where nobody can.

        Where this process has just made the directory (``is_made``), one that is missing was taken away by such a user.
        """
        shared = ""
        for place in _places(directory):
            if place in self._above:
                continue
            try:
                found = os.lstat(place)
            except FileNotFoundError:
                if is_made:
                    return f"another user has taken {place} away"
                break
            except OSError as exc:
                return f"{place} cannot be read ({exc.strerror})"
            if found.st_uid not in self.users:
                return f"{_name_of(found.st_uid)} owns {place}"
            if stat.S_ISLNK(found.st_mode):
                continue
            if not stat.S_ISDIR(found.st_mode):
                return f"{place} is no directory"
            shared = place if found.st_mode & 0o022 else ""
            # In a directory like /scratch, others make names, but rename nothing of root's.
            if shared and (f"{place}/".startswith(self._real) or not found.st_mode & stat.S_ISVTX):
                break
        return f"others can write {shared}" if shared else ""

    def check_parent(self, directory: str, is_made: bool = False) -> None:
        """Raise WeightsError where another user can change the names beside a revision: root would follow his links."""
        parent = os.path.dirname(directory)
        exposure = self.exposure(parent, is_made)
        if exposure:
            raise WeightsError(
                f"{parent}: nothing is fetched into it, because {exposure} and could exchange it; put a copy that root "
                f"has made (cp -r) in the place of {os.path.dirname(parent)}, or remove it"
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

    def _is_open(self, path: str, is_kind: Callable[[int], bool]) -> bool:
        """Return whether something is of another kind, or of another user, or others may write it."""
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return not is_kind(found.st_mode) or found.st_uid not in self.users or bool(found.st_mode & 0o022)


def _places(path: str) -> Iterator[str]:
    """Yield each directory and each link through which the kernel comes to a path, by its real name; itself last."""
    done, left, links = "/", os.path.join(os.getcwd(), path).split("/")[::-1], 0
    # The kernel follows as many links.
    while left and links <= 40:
        name = left.pop()
        if name in ("", ".", ".."):
            done = os.path.dirname(done) if name == ".." else done
            continue
        place = os.path.join(done, name)
        yield place
        target = target_of(place)
        if target:
            links += 1
            left += target.split("/")[::-1]
            done = "/" if target.startswith("/") else done
        else:
            done = place


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
