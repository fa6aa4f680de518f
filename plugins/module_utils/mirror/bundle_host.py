# SPDX-License-Identifier: GPL-3.0-or-later
"""A carried directory: check its free space, write its documents, and compare it with its bundle.json."""

from __future__ import annotations

import errno
import os
import stat
from typing import Collection, Iterable, Iterator, Mapping, NamedTuple

from ..common.files_host import MOST_TEXT, existing_above, open_regular, publish, sha256_of, text_of
from ..common.foreign_text import quote_foreign
from ..common.foreign_trees_host import walk_tree
from ..weights.plan import STAMP_NAME
from . import checksums
from .bundle import (
    AGAIN,
    CARRIED,
    NAME,
    BundleError,
    Content,
    Files,
    Holds,
    all_files,
    format_bytes,
    parse_bundle,
    walk,
)

# Directories below each other on a disk; more of them would end the walk.
_DEEPEST = 64


class Room(NamedTuple):
    """Missing bytes of a directory, and free bytes of its file system."""

    missing: int
    free: int


def find_missing_files(root: str, files: Files) -> list[str]:
    """Return the files that are not there with their bytes, sorted."""
    sizes = sizes_of(root, files)
    return sorted(path for path, content in files.items() if sizes[path] != content.size)


def partial_bytes(root: str, missing: Iterable[str], files: Files) -> int:
    """Return the bytes of missing files that an interrupted run has already downloaded."""
    return sum(min(_partial_size(os.path.join(root, path)), files[path].size) for path in missing)


def _partial_size(path: str) -> int:
    """Return what a file of weights/ORGANISATION/NAME/REVISION takes below .REVISION.partial."""
    directory, name = os.path.split(path)
    inner: list[str] = []
    while os.path.basename(directory) and not os.path.isdir(_partial(directory)):
        directory, last = os.path.split(directory)
        inner.insert(0, last)
    if not os.path.basename(directory):
        return 0
    for suffix in ("", ".partial"):
        try:
            return os.lstat(os.path.join(_partial(directory), *inner, name + suffix)).st_blocks * 512
        except FileNotFoundError:
            continue
    return 0


def _partial(directory: str) -> str:
    parent, name = os.path.split(directory)
    return os.path.join(parent, f".{name}.partial")


def sizes_of(root: str, paths: Iterable[str]) -> dict[str, int | None]:
    """Return the bytes of each file below a directory, None where there is no plain file."""
    return {path: _size(os.path.join(root, path)) for path in paths}


def _size(path: str) -> int | None:
    try:
        found = os.stat(path)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def check_room(root: str, missing: int) -> Room:
    """Return the missing and the free bytes. Raises BundleError if there is too little free space."""
    place = existing_above(root)
    figures = os.statvfs(place)
    free = figures.f_bavail * figures.f_frsize
    if missing > free:
        raise BundleError(
            f"{root}: {missing} bytes ({format_bytes(missing)}) are missing, {free} bytes ({format_bytes(free)}) "
            f"are free at {place}; free some space there, or set bundle_dir to a larger disk"
        )
    return Room(missing, free)


def read_bundle(root: str) -> Holds | None:
    """Return the content of a directory's bundle.json, None if it has none. Raises BundleError."""
    path = os.path.join(root, NAME)
    try:
        with open(path, encoding="utf-8", opener=open_regular) as file:
            return parse_bundle(file.read(MOST_TEXT), path)
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise BundleError(f"{path}: cannot be read ({exc}); {AGAIN}") from exc


def list_carried_files(root: str) -> Files:
    """Return the files below controller/ and caches/, read in full. Raises OSError, and BundleError for other kinds."""
    found = {}
    for path in (path for kind in CARRIED for path in _walk_files(root, kind)):
        place = os.path.join(root, path)
        if not os.path.isfile(place):
            raise BundleError(
                f"{place}: expected a file, because {NAME} lists its sha256; remove it or copy its content"
            )
        found[path] = Content(os.path.getsize(place), sha256_of(place))
    return found


def find_foreign_entries(root: str, signed: Mapping[str, str]) -> list[str]:
    """Return a line for everything below a directory that the signature does not cover, sorted.

    A link counts wherever it is: it leads to content that nobody signed. The index of wheels may be there, because the
    role mirror makes it, and makes it again from the signed wheels.
    """
    found = _foreign(root, "", {*signed, *checksums.OWN})
    return sorted(f"{quote_foreign(path)}: {problem}" for path, problem in found)


def _foreign(root: str, directory: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    try:
        entries = sorted(os.scandir(os.path.join(root, directory)), key=lambda entry: entry.name)
    except PermissionError:
        # File systems have this directory; only root may look into it.
        if directory != "lost+found":
            yield directory, "cannot be read, so nobody knows whether it is signed"
        return
    for entry in entries:
        path = os.path.join(directory, entry.name)
        if entry.is_symlink():
            yield path, "is a link, and only files can be signed; remove it"
        elif entry.is_dir(follow_symlinks=False):
            too_deep = path.count("/") >= _DEEPEST
            yield from [(path, "lies deeper than any content")] if too_deep else _foreign(root, path, known)
        elif not entry.is_file(follow_symlinks=False):
            yield path, "is not a file; remove it"
        elif path not in known and not checksums.is_generated(path, known, entry.stat(follow_symlinks=False).st_size):
            yield path, "is not signed"


def read_notes(root: str, files: Files) -> dict[str, str]:
    """Return the sha256 of the hidden files in which a fill notes what it has verified, by path.

    The next fill believes them, so they are signed too.
    """
    places = {os.path.join(os.path.dirname(path), STAMP_NAME) for path in files if path.startswith("weights/")}
    wheels = os.path.join(root, "wheels")
    names = sorted(os.listdir(wheels)) if os.path.isdir(wheels) else []
    places |= {f"wheels/{name}" for name in names if checksums.is_note(f"wheels/{name}")}
    return {path: sha256_of(os.path.join(root, path)) for path in places if os.path.isfile(os.path.join(root, path))}


def _walk_files(root: str, top: str) -> Iterator[str]:
    """Yield everything below a directory that is not a directory, links to directories too."""
    for directory, _directories, names in walk_tree(os.path.join(root, top)):
        yield from (os.path.relpath(os.path.join(directory, name), root) for name in names)


def write_documents(root: str, texts: Mapping[str, str]) -> bool:
    """Write the documents of a directory, in this order, after everything that they name is on the disk.

    Returns whether a signature was removed, because it was made of other checksums.
    """
    # The disk may be disconnected as soon as the run has ended.
    os.sync()
    signature = os.path.join(root, checksums.SIGNATURE)
    stale = text_of(os.path.join(root, checksums.NAME)) != texts[checksums.NAME] and os.path.lexists(signature)
    if stale:
        os.unlink(signature)
    for name, text in texts.items():
        publish(os.path.join(root, name), text)
    return stale


def verify_bundle(root: str, holds: Holds, full: bool) -> list[str]:
    """Return a line for each file that is missing, of another size or, with ``full``, of another sha256."""
    problems = {path: _problem(os.path.join(root, path), content, full) for path, content in all_files(holds).items()}
    items = {path: f"{kind} {item}" for kind, item, files in walk(holds) for path in files}
    return [f"{path} ({items[path]}): {problem}" for path, problem in sorted(problems.items()) if problem]


def _problem(path: str, content: Content, full: bool) -> str:
    try:
        size = _size(path)
        if size is None:
            return "is missing"
        if size != content.size:
            return f"has {size} bytes, expected {content.size}"
        digest = sha256_of(path) if full else content.sha256
    except OSError as exc:
        # An unreadable disk is one of the faults that this check must find.
        return f"cannot be read: {exc.strerror}"
    return "" if digest == content.sha256 else f"has sha256 {digest}, expected {content.sha256}"
