# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the pages and the metadata files of a directory of wheels."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import stat
import zipfile
import zlib
from dataclasses import asdict, dataclass, field
from email.message import Message
from email.parser import BytesHeaderParser
from hashlib import sha256

from ..common.files_host import MOST_TEXT, listed, make_directories, publish, sha256_of
from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json
from .archive_host import opened_wheel, read_member
from .index import ROOT_PAGE, Wheel, WheelError, changed_pages, list_files, parse_name, render_pages, stale_pages

# The metadata of each wheel; because of the leading dot, the web server does not serve it.
STAMPS = ".wheels.json"
METADATA = ".metadata"
MOST_METADATA = 4 << 20
# Of its fields; numpy and scipy have 58 kB of licences there. The parser takes 300 times as much memory.
MOST_FIELDS = 256 << 10


@dataclass(frozen=True)
class Entry:
    """A wheel, and the size, time and inode that its file had when it was read."""

    wheel: Wheel
    stamp: list[int]
    world_readable: bool = field(default=True, compare=False)


@dataclass(frozen=True)
class MadeIndex:
    """The wheels of a directory, the projects with a page, and what was changed, or would be."""

    entries: list[Entry]
    projects: list[str]
    changed: bool
    diff: dict[str, str]


def make_index(root: str, trust_stamps: bool, check_mode: bool) -> MadeIndex:
    """Write the pages and metadata files that are missing or differ. Raises OSError and WheelError."""
    simple, wheels = (os.path.join(root, name) for name in ("simple", "wheels"))
    projects = {*listed(simple)} - {ROOT_PAGE, STAMPS}
    refuse_links(wheels, simple, *(os.path.join(simple, name) for name in sorted(projects)))
    entries = read_entries(wheels, read_stamps(simple) if trust_stamps else {})
    pages, present = render_pages(entry.wheel for entry in entries), read_pages(simple)
    changed, stale = changed_pages(pages, present), stale_pages(pages, present)
    lacking, orphans = compare_metadata(wheels, entries)
    if not check_mode:
        make_directories(simple)
        for name in lacking:
            publish(os.path.join(wheels, name + METADATA), read_metadata(os.path.join(wheels, name)))
        for path in changed:
            make_directories(os.path.dirname(os.path.join(simple, path)))
            publish(os.path.join(simple, path), pages[path])
        remove(simple, stale)
        for name in orphans:
            os.unlink(os.path.join(wheels, name))
        write_stamps(simple, entries)
    return MadeIndex(
        entries,
        sorted(os.path.dirname(path) for path in pages if path != ROOT_PAGE),
        bool(changed or stale or lacking or orphans),
        {"before_header": simple, "after_header": simple, "before": list_files(present), "after": list_files(pages)},
    )


def refuse_links(*places: str) -> None:
    """Raise WheelError for a link: on a disk that came from elsewhere, root would write where it leads."""
    for place in places:
        if os.path.islink(place):
            raise WheelError(f"{place}: found a link, expected a directory; nothing was changed; remove it")


def read_entries(wheels: str, stamps: dict[str, Entry]) -> list[Entry]:
    """Return every wheel of a directory, sorted by name; a file that has not changed since its stamp is not read."""
    names = sorted(os.listdir(wheels)) if os.path.isdir(wheels) else []
    return [
        read_entry(os.path.join(wheels, name), stamps.get(name))
        for name in names
        if name.endswith(".whl") and not name.startswith(".")
    ]


def read_entry(path: str, known: Entry | None) -> Entry:
    """Return the entry of one wheel. Raises WheelError if it is invalid or incomplete."""
    name = os.path.basename(path)
    parse_name(name)
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise WheelError(f"{path}: found a link or a special file, expected a wheel; nothing was changed; remove it")
    stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
    world_readable = bool(status.st_mode & stat.S_IROTH)
    if known and known.stamp == stamp:
        return Entry(known.wheel, stamp, world_readable)
    metadata = read_metadata(path)
    # Not a text where it is not of ASCII.
    requires_python = str(read_fields(path, metadata).get("Requires-Python", ""))
    return Entry(Wheel(name, sha256_of(path), requires_python, sha256(metadata).hexdigest()), stamp, world_readable)


def read_metadata(path: str) -> bytes:
    """Return METADATA of a wheel, of 4 MiB at most. Raises WheelError for anything but a whole zip with one inside."""
    try:
        with opened_wheel(path) as archive:
            members = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
            if len(members) != 1:
                raise zipfile.BadZipFile(f"{len(members)} files *.dist-info/METADATA inside, expected 1")
            return read_member(archive, members[0], MOST_METADATA)
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as exc:
        raise WheelError(
            f"{path}: not a whole wheel ({exc}); nothing was changed; copy the file again, or remove it"
        ) from exc


def read_fields(path: str, metadata: bytes) -> Message:
    """Return the fields of METADATA, without the description. Raises WheelError for more than 256 KiB of them."""
    fields = re.split(rb"\n\r?\n", metadata, maxsplit=1)[0]
    if len(fields) > MOST_FIELDS:
        raise WheelError(
            f"{path}: METADATA has more than {MOST_FIELDS} bytes before its first empty line; nothing was changed; "
            "remove the wheel"
        )
    return BytesHeaderParser().parsebytes(fields)


def compare_metadata(wheels: str, entries: list[Entry]) -> tuple[list[str], list[str]]:
    """Return the wheels that lack their metadata file or have another's, and the metadata files without a wheel."""
    wanted = {entry.wheel.filename: entry.wheel.metadata_sha256 for entry in entries}
    files = sorted(os.listdir(wheels)) if os.path.isdir(wheels) else []
    orphans = [name for name in files if name.endswith(".whl" + METADATA) and name[: -len(METADATA)] not in wanted]
    there = set(files)
    lacking = [
        name
        for name, digest in wanted.items()
        if name + METADATA not in there or _digest_of(os.path.join(wheels, name + METADATA)) != digest
    ]
    return lacking, orphans


def _digest_of(path: str) -> str:
    """Return the sha256 of a file, empty for a link or a special file, which is written again."""
    try:
        return "" if os.path.islink(path) else sha256_of(path)
    except OSError:
        return ""


def read_pages(simple: str) -> dict[str, str]:
    """Return path below simple -> text of the pages that are there."""
    paths = glob.glob(os.path.join(glob.escape(simple), ROOT_PAGE)) + glob.glob(
        os.path.join(glob.escape(simple), "*", ROOT_PAGE)
    )
    # A link or a FIFO has no text, so it is written again.
    places = {os.path.relpath(path, simple): ForeignDirectory(os.path.dirname(path)) for path in paths}
    return {path: place.text(ROOT_PAGE, MOST_TEXT) for path, place in places.items()}


def read_stamps(simple: str) -> dict[str, Entry]:
    """Return the stored entries by file name; empty if the stamps are missing or have another format."""
    try:
        stored = load_json(ForeignDirectory(simple).read(STAMPS, MOST_TEXT))
        return {item["wheel"]["filename"]: Entry(Wheel(**item["wheel"]), item["stamp"]) for item in stored}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def write_stamps(simple: str, entries: list[Entry]) -> None:
    """Store entries for the next run; this does not change the index, so it is not reported as a change."""
    if read_stamps(simple) != {entry.wheel.filename: entry for entry in entries}:
        stored = [{"wheel": asdict(entry.wheel), "stamp": entry.stamp} for entry in entries]
        publish(os.path.join(simple, STAMPS), json.dumps(stored, indent=0))


def remove(simple: str, stale: list[str]) -> None:
    """Remove pages, and the directories that are empty without them."""
    for path in stale:
        os.unlink(os.path.join(simple, path))
        with contextlib.suppress(OSError):  # it has other files
            os.rmdir(os.path.dirname(os.path.join(simple, path)))
