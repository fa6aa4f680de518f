# SPDX-License-Identifier: GPL-3.0-or-later
"""Find and remove old revisions and abandoned downloads of a model; nothing that may still be in use is removed."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from typing import Callable, Iterable, Sequence

from ..common.files_host import listed
from ..common.foreign_trees_host import remove_tree, walk_tree
from ..common.mounts_host import check_unmounted, mount_within, read_mounts
from ..common.processes_host import texts_of_processes
from .lock_host import lock_model_directory
from .manifest import Manifest, WeightsError
from .owners_host import Owners
from .plan import STAMP_NAME

REVISION, ABANDONED = "revision", "abandoned"
# The next step where another user could lead root elsewhere.
ROOTS_ALONE = "give that directory alone, not its files, to root (chown root, chmod go-w), then run this again"

_NAME = re.compile(r"(?P<revision>[0-9a-f]{40})|\.(?P<left>[0-9a-f]{40})\.(?P<state>partial|old|removed)", re.ASCII)
_REVISIONS = re.compile(rb"[0-9a-f]{40}")

# File systems of one host. Any other may have users that are not visible here.
_LOCAL = re.compile("bcachefs|btrfs|exfat|ext[234]|f2fs|jfs|nilfs2|ntfs3|overlay|ramfs|reiserfs|tmpfs|vfat|xfs|zfs")


class UnknownUseError(Exception):
    """A process may use any revision; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class OldDirectory:
    """A directory that may be removed, the reason (``revision`` or ``abandoned``), the bytes that this frees."""

    path: str
    kind: str
    size: int

    def as_dict(self) -> dict[str, str | int]:
        """Return it as plain data for a module's result."""
        return {"path": self.path, "kind": self.kind, "bytes": self.size}


@dataclass(frozen=True)
class Found:
    """A directory beside the wanted one: its name, and when its stamp was written or last in service (0: no stamp)."""

    name: str
    stamped_ns: int = 0


def find_superfluous(found: Iterable[Found], wanted: set[str], used: set[str], keep: int) -> dict[str, str]:
    """Return the names of a repository that may be removed, each with the reason.

    ``wanted`` and ``used`` are revisions. The ``keep`` newest others are kept, counting those in use first. A directory
    without a stamp was not published by the collection and is kept, and so is a partial download of a wanted revision.
    """
    entries = list(found)
    published = {entry.name for entry in entries if entry.stamped_ns}
    gone: dict[str, str] = {}
    others = []
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match is None:
            continue
        revision, state = match["revision"] or match["left"], match["state"]
        if not state:
            others += [entry] if entry.stamped_ns and revision not in wanted else []
        elif state == "removed" or (state == "old" and revision in published) or revision not in wanted | used:
            gone[entry.name] = ABANDONED
    others.sort(key=lambda entry: (entry.name in used, entry.stamped_ns, entry.name), reverse=True)
    gone.update({entry.name: REVISION for entry in others[keep:] if entry.name not in used})
    return gone


def find_prunable(
    root: str,
    manifests: Sequence[Manifest],
    keep: int,
    state_dir: str,
    shared: bool | None = None,
    proc: str = "/proc",
    warn: Callable[[str], None] = lambda _sentence: None,
) -> list[OldDirectory]:
    """Return what may be removed from the repositories of ``manifests``, sorted by path.

    A negative ``keep`` keeps all. ``shared``: whether other hosts use ``root``; None asks the kernel. ``warn`` hears of
    what stays because another user could lead root elsewhere, or because something is mounted there. Raises OSError and
    UnknownUseError.
    """
    if keep < 0 or shared:
        return []
    found: list[OldDirectory] = []
    owners = Owners(root)
    for repository, wanted in sorted(_wanted(manifests).items()):
        directory = os.path.join(root, repository)
        entries = _list_directories(directory)
        linked = linked_revisions(directory, state_dir)
        gone = find_superfluous(entries, wanted, linked, keep)
        if not gone or (shared is None and is_shared(directory, proc)):
            continue
        exposure = owners.exposure(directory)
        if exposure:
            warn(f"{directory}: no old revision is removed, because {exposure}; {ROOTS_ALONE}")
            continue
        gone = find_superfluous(entries, wanted, linked | running_revisions(proc), keep)
        for old in (OldDirectory(os.path.join(directory, name), kind, 0) for name, kind in gone.items()):
            mount = next(filter(None, (mount_within(path, proc) for path in (old.path, _doomed(old)))), "")
            if mount:
                warn(f"{old.path}: not removed, because {mount} is mounted there; run umount {mount} first")
            else:
                found.append(replace(old, size=_disk_usage(old.path)))
    return sorted(found, key=lambda old: old.path)


def mark_served(root: str, manifests: Sequence[Manifest], state_dir: str) -> None:
    """Set the time of each revision that an instance is about to stop using to now: it is the one for a rollback."""
    owners = Owners(root)
    for repository, wanted in _wanted(manifests).items():
        directory = os.path.join(root, repository)
        if owners.is_exposed(directory):
            continue
        for revision in _revisions_of(directory, _links(state_dir)) - wanted:
            # A read-only store is not pruned either.
            with contextlib.suppress(OSError):
                os.utime(os.path.join(directory, revision, STAMP_NAME), follow_symlinks=False)


def remove_old(old: OldDirectory, owners: Owners) -> bool:
    """Rename and remove a directory, so that no incomplete one has the old name. Returns False if it stays or is
    already gone because another run is working there, or another user could put another directory in the place of its
    model's. Call it without that model's lock. Raises OSError, and MountedError before anything is removed."""
    directory = os.path.dirname(old.path)
    if owners.is_exposed(directory):
        return False
    try:
        with lock_model_directory(directory, wait=0):
            doomed = _doomed(old)
            check_unmounted(doomed)
            if old.kind == REVISION:
                check_unmounted(old.path)
                remove_tree(doomed, ignore_errors=True)
                os.rename(old.path, doomed)
            remove_tree(doomed)
    except (WeightsError, FileNotFoundError):
        return False
    return True


def _doomed(old: OldDirectory) -> str:
    """Return the name under which a directory is removed."""
    directory, name = os.path.split(old.path)
    return os.path.join(directory, f".{name}.removed") if old.kind == REVISION else old.path


def is_shared(path: str, proc: str = "/proc") -> bool:
    """Whether other hosts may use the file system of ``path``: it is not of a kind known to belong to one host."""
    path = os.path.realpath(path)
    kind, longest = "", -1
    try:
        mounts = read_mounts(proc)
    except OSError:
        return True
    for mount, each in mounts:
        # Of two mounts on one path, the later one is visible.
        if len(mount) >= longest and (path + "/").startswith(mount.rstrip("/") + "/"):
            kind, longest = each, len(mount)
    return _LOCAL.fullmatch(kind) is None


def linked_revisions(directory: str, state_dir: str) -> set[str]:
    """Return the revisions of a repository's directory that the symlink of any instance, running or not, or of any kept
    state points to."""
    return _revisions_of(directory, [*_links(state_dir), *_kept_links(state_dir)])


def _links(state_dir: str) -> list[str]:
    return [os.path.join(state_dir, name, "model") for name in listed(state_dir)]


def _kept_links(state_dir: str) -> list[str]:
    slots = [os.path.join(state_dir, name, "slots") for name in listed(state_dir)]
    # An unfinished slot counts too.
    return [os.path.join(top, name, "model") for top in slots for name in listed(top)]


def _revisions_of(directory: str, links: Iterable[str]) -> set[str]:
    found = set()
    top = os.path.realpath(directory) + "/"
    for link in links:
        target = os.path.realpath(link)
        if target.startswith(top):
            found.add(target[len(top) :].split("/")[0])
    return found


def running_revisions(proc: str = "/proc") -> set[str]:
    """Return every revision that a process names: in its command line, as its directory, as an open or mapped file.

    An instance that was not restarted still uses the former target of its symlink; other programs have no symlink.
    Raises UnknownUseError.
    """
    found: set[bytes] = set()
    for pid, texts in texts_of_processes(proc):
        if texts is None:
            raise UnknownUseError(
                f"no old revision is removed, because process {pid} may use any: its command line or its list of "
                "mapped files is too long or cannot be read in time; find out what it is, and run again without it"
            )
        found.update(*map(_REVISIONS.findall, texts))
    return {revision.decode() for revision in found}


def _wanted(manifests: Iterable[Manifest]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for manifest in manifests:
        found.setdefault(manifest.repository, set()).add(manifest.revision)
    return found


def _list_directories(directory: str) -> list[Found]:
    """Return the directories of a repository. Symlinks were not made by the role and are left out."""
    found = []
    for name in listed(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            stamped = 0
            with contextlib.suppress(OSError):
                stamped = os.lstat(os.path.join(path, STAMP_NAME)).st_mtime_ns
            found.append(Found(name, stamped))
    return found


def _disk_usage(top: str) -> int:
    """Return the bytes on disk of files without a second link; the files of an unfinished repair have one."""
    total = 0
    for parent, _directories, names in walk_tree(top):
        for name in names:
            # The owner of a revision may take away what was listed.
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(parent, name))
                total += found.st_blocks * 512 if found.st_nlink == 1 else 0
    return total
