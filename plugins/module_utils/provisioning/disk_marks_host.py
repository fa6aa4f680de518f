# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a disk holds a host: the marks on its file systems, read in the ramdisk before the disk is written."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import struct
import subprocess
import tempfile

MARKER = "etc/baremetal-inference/host"
# How a file system is mounted so that nothing is written to the disk, not even a journal.
READABLE = {
    "ext2": "ro",
    "ext3": "ro,noload",
    "ext4": "ro,noload",
    "xfs": "ro,norecovery",
    "btrfs": "ro,rescue=nologreplay",
}
# Without a subvolume, mount shows the default one only: the root of a host may be there, or another one at the top.
_SUBVOLUMES = {"btrfs": ("", ",subvolid=5")}
# What holds no host: swap, the partition of EFI, and a medium or config drive. Any other kind is closed to this guard,
# such as a part of a RAID, of LVM or of ZFS, a container of encrypted data, and what a later blkid knows.
WITHOUT_HOST = ("swap", "vfat", "iso9660")
AMBIGUOUS = "of several kinds at once"
UNREADABLE = "unreadable"
MOST_SUBVOLUMES = 100


def parts_of(device: str) -> list[str]:
    """Return the names of a disk and of the block devices on it."""
    command = ["lsblk", "-nrpo", "NAME", device]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def kind_of(name: str) -> str:
    """Return the kind of what a block device holds, empty where it holds nothing that is known.

    The device itself is read: what udev knows of it may be older, or nothing yet.
    """
    command = ["blkid", "-p", "-s", "TYPE", "-o", "value", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode not in (0, 2, 8):
        raise RuntimeError(f"{name} cannot be read: {done.stderr.strip()[:200]}")
    return AMBIGUOUS if done.returncode == 8 else done.stdout.strip()


def contents(device: str) -> list[tuple[str, str]]:
    """Return the names of a disk's block devices that hold something, with its kind."""
    kinds = {name: kind_of(name) for name in parts_of(device)}
    return [(name, kind) for name, kind in kinds.items() if kind]


def marker_in(directory: str) -> str:
    """Return the marker of a mounted system, empty where it has none."""
    try:
        return read_regular(os.path.join(directory, MARKER), 200).decode("utf-8", "replace").strip() or UNREADABLE
    except OSError as exc:
        return "" if isinstance(exc, (FileNotFoundError, NotADirectoryError)) else UNREADABLE


def read_regular(path: str, most: int) -> bytes:
    """Return at most so many bytes of a file of a mounted disk. Raises OSError for a link, a FIFO and a device."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.read(most)


def markers_below(directory: str, kind: str) -> list[str]:
    """Return the markers of a mounted file system; with btrfs also of its subvolumes, because one may be the root.

    UNREADABLE is among them where there are more names than are searched: a host may be behind them.
    """
    names = [""]
    if kind == "btrfs":
        with os.scandir(directory) as entries:
            names += sorted(entry.name for entry in itertools.islice(entries, MOST_SUBVOLUMES + 1))
    found = [marker for name in names if (marker := marker_in(os.path.join(directory, name)))]
    return found + [UNREADABLE] * (len(names) > MOST_SUBVOLUMES + 1)


def markers_on(name: str, kind: str) -> list[str]:
    """Return the markers on a block device; UNREADABLE is among them where its content cannot be seen."""
    if kind not in READABLE:
        return [] if kind in WITHOUT_HOST else [UNREADABLE]
    markers = [found for more in _SUBVOLUMES.get(kind, ("",)) for found in _mounted(name, kind, READABLE[kind] + more)]
    if UNREADABLE in markers and kind.startswith("ext") and _was_never_mounted(name):
        # A write of the image that was cut off leaves such a one; the mark of a host is written when it runs.
        return [found for found in markers if found != UNREADABLE]
    return markers


def _was_never_mounted(name: str) -> bool:
    """Return whether nobody has ever mounted an ext file system to write on it, by its superblock."""
    try:
        with open(name, "rb") as file:
            file.seek(1024 + 0x2C)
            mounted, _written, count = struct.unpack("<IIH", file.read(10))
    except (OSError, struct.error):
        return False
    return bool(mounted == count == 0)


def _mounted(name: str, kind: str, options: str) -> list[str]:
    """Return the markers on a block device that is mounted with these options."""
    with tempfile.TemporaryDirectory() as place:
        mount = ["mount", "-t", kind, "-o", f"{options},nosuid,nodev,noexec", name, place]
        if subprocess.run(mount, capture_output=True, check=False, timeout=120).returncode:
            return [UNREADABLE]
        try:
            return markers_below(place, kind)
        finally:
            subprocess.run(["umount", place], check=True, timeout=120)


def refusal(device: str, released: str) -> str:
    """Return why a disk must not be written, empty where nothing forbids it."""
    for name, kind in contents(device):
        for found in markers_on(name, kind):
            if found == UNREADABLE and not released:
                return f"{name} is {kind}, and this guard cannot see what it holds; release the host to overwrite it"
            if found not in (UNREADABLE, released):
                return f"{name} holds the host {found!r}, which nobody has released; nothing was written"
    return ""
