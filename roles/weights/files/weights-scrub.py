# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read all weights below a root and compare them with the sha256 in their stamps, the oldest check first.

The entry of a damaged file is removed from the stamp, so that the next run of the role weights reads the file and
fetches it again. Exits with 1 if any file is damaged. Started by weights-scrub.service. It can be stopped at any time;
the next start continues with the remaining files.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import mmap
import os
import re
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Iterator

STAMP, STAMP_VERSION, REPORT_VERSION = ".verified.json", 1, 1
NO_FILE = "no file"
CHUNK = 1024 * 1024
BYTES_OF_MEGABIT = 125_000
# Seconds between two writes of the report during the scrub.
SAVE_INTERVAL = 1.0


class StoppedError(Exception):
    """The scrub received a signal to stop."""


class SkippedError(Exception):
    """A file cannot be judged this time; the message is the reason."""


@dataclass(frozen=True)
class Pinned:
    """A file with its sha256 from a stamp."""

    directory: str
    name: str
    sha256: str

    @property
    def path(self) -> str:
        """Where it lies."""
        return os.path.join(self.directory, self.name)


@dataclass
class Pace:
    """Limits reading to ``limit`` bytes per second (0: no limit) and makes it stoppable."""

    limit: int = 0
    total: int = 0
    stopped: bool = False
    due: float = 0.0

    def stop(self, *_signal: object) -> None:
        """Make the next call of ``took`` end the scrub."""
        self.stopped = True

    def took(self, count: int) -> None:
        """Count the bytes that were read, and wait to keep the limit. Raises StoppedError."""
        self.total += count
        if self.limit:
            # Time that was lost while the disk was busy is not made up later.
            self.due = max(self.due, time.monotonic()) + count / self.limit
            time.sleep(max(0.0, self.due - time.monotonic()))
        if self.stopped:
            raise StoppedError


@dataclass
class Report:
    """The results: when each file was last found intact, which files are damaged, and which were skipped and why."""

    path: str
    checked: dict[str, float] = field(default_factory=dict)
    damaged: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    saved: float = float("-inf")

    def save(self, interval: float = 0.0) -> None:
        """Write it by rename, unless that was done less than ``interval`` seconds ago."""
        if time.monotonic() - self.saved < interval:
            return
        parts = {"checked": self.checked, "damaged": self.damaged, "skipped": self.skipped}
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        write_json(self.path, {"version": REPORT_VERSION, **self.run, **parts})
        self.saved = time.monotonic()


def main(arguments: list[str] | None = None) -> int:
    """Run the scrub; return its exit status."""
    options = parse(arguments)
    pace = Pace(options.bandwidth * BYTES_OF_MEGABIT)
    signal.signal(signal.SIGTERM, pace.stop)
    report = load(options.report)
    report.run = {"root": options.root, "started": int(time.time()), "finished": None, "files": 0}
    begun = time.monotonic()
    with contextlib.suppress(StoppedError):
        scrub(options.root, report, pace)
        report.run["finished"] = int(time.time())
    report.run.update(bytes=pace.total, seconds=round(time.monotonic() - begun, 1))
    report.save()
    print(summary(report), flush=True)
    return 1 if report.damaged else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", required=True, help="directory that contains ORGANISATION/NAME/REVISION")
    parser.add_argument("--report", default="/var/lib/baremetal-inference/weights-scrub.json", help="JSON file")
    parser.add_argument(
        "--bandwidth", type=int, default=0, help="limit of reading in megabits per second; 0 means no limit"
    )
    return parser.parse_args(arguments)


def scrub(root: str, report: Report, pace: Pace) -> None:
    """Read every file. Raises StoppedError."""
    found = {pinned.path: pinned for pinned in vouched(root)}
    report.skipped = {}
    report.checked = {path: when for path, when in report.checked.items() if path in found}
    report.damaged = {path: entry for path, entry in report.damaged.items() if path in found or stands(path, entry)}
    for path in sorted(found, key=lambda path: (report.checked.get(path, 0), path)):
        try:
            examine(found[path], report, pace)
        except SkippedError as exc:
            report.skipped[path] = str(exc)
        report.run["files"] += 1
        report.save(SAVE_INTERVAL)


def vouched(root: str) -> Iterator[Pinned]:
    """Yield each file of each published revision. Names of revisions that are being fetched start with a dot."""
    for stamp in sorted(glob.glob(os.path.join(glob.escape(root), "*", "*", "*", STAMP))):
        directory = os.path.dirname(stamp)
        if re.fullmatch("[0-9a-f]{40}", os.path.basename(directory)) and not os.path.islink(directory):
            for name, entry in sorted(entries(stamp).items()):
                yield Pinned(directory, name, entry["sha256"])


def entries(stamp: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a stamp; empty if it cannot be read."""
    data = read_json(stamp)
    files = data.get("files") if data.get("version") == STAMP_VERSION else None
    whole = isinstance(files, dict) and all(isinstance(entry, dict) and "sha256" in entry for entry in files.values())
    return files if files and whole else {}


def stands(path: str, entry: dict[str, Any]) -> bool:
    """Whether a file that was found damaged and is in no stamp still waits to be fetched again."""
    here = entry["found"] == NO_FILE or os.path.lexists(path)
    return here and os.path.exists(os.path.join(entry["directory"], STAMP))


def examine(pinned: Pinned, report: Report, pace: Pace) -> None:
    """Read one file and note what was found. Raises SkippedError, StoppedError."""
    seen: os.stat_result | None = None
    try:
        found, seen = sha256_of(pinned.path, pace)
    except FileNotFoundError:
        found = NO_FILE
    except OSError as exc:
        # Only this error means that the bytes are lost.
        if exc.errno != errno.EIO:
            raise SkippedError(exc.strerror) from exc
        found = str(exc.strerror)
    if found == pinned.sha256:
        report.checked[pinned.path] = int(time.time())
        report.damaged.pop(pinned.path, None)
    else:
        note(pinned, found, withdraw(pinned, seen), report)


def note(pinned: Pinned, found: str, withdrawn: bool, report: Report) -> None:
    """Add a damaged file to the report, and write an error to the journal."""
    report.checked.pop(pinned.path, None)
    report.damaged[pinned.path] = {
        "directory": pinned.directory,
        "name": pinned.name,
        "expected": pinned.sha256,
        "found": found,
        "when": int(time.time()),
        "withdrawn": withdrawn,
    }
    left = "" if withdrawn else "; its stamp cannot be changed, so the role weights will not find the damage"
    line = f"{pinned.path}: damaged: found {found}, expected sha256 {pinned.sha256}{left}"
    print(f"<3>{line}", file=sys.stderr, flush=True)
    report.save()


def withdraw(pinned: Pinned, seen: os.stat_result | None) -> bool:
    """Remove the file's entry from its stamp and keep the stamp's time, which gives the age of the revision.

    Returns False if the stamp cannot be written. Raises SkippedError for a file that was replaced meanwhile.
    """
    stamp = os.path.join(pinned.directory, STAMP)
    try:
        with locked(os.path.dirname(pinned.directory)):
            data = read_json(stamp)
            entry = data.get("files", {}).get(pinned.name, {})
            if entry.get("sha256") != pinned.sha256 or (seen and not os.path.samestat(os.stat(pinned.path), seen)):
                raise SkippedError("was replaced while it was read")
            times = os.stat(stamp)
            del data["files"][pinned.name]
            write_json(stamp, data, times)
    except BlockingIOError as exc:
        raise SkippedError("its model is being fetched") from exc
    except FileNotFoundError as exc:
        raise SkippedError("its model was removed") from exc
    except OSError:
        return False
    return True


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Lock a model's directory against fetches, with the lock that they use. Raises BlockingIOError during a fetch."""
    descriptor = os.open(os.path.join(directory, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def sha256_of(path: str, pace: Pace) -> tuple[str, os.stat_result]:
    """Return sha256 and stat of a file, read from the disk past the page cache. Raises OSError, StoppedError."""
    descriptor = open_direct(path)
    digest, offset, buffer = hashlib.sha256(), 0, mmap.mmap(-1, CHUNK)
    try:
        while True:
            count = read_at(descriptor, buffer, offset)
            if not count:
                return digest.hexdigest(), os.fstat(descriptor)
            with memoryview(buffer) as view:
                digest.update(view[:count])
            offset += count
            pace.took(count)
    finally:
        os.close(descriptor)


def open_direct(path: str) -> int:
    """Open a file for reads past the page cache, so that cached files of services stay cached."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
    # This file system can only read through the cache.
    return os.open(path, flags)


def read_at(descriptor: int, buffer: mmap.mmap, offset: int) -> int:
    """Read up to the buffer's size and return how much it was. Raises OSError."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        count = os.preadv(descriptor, [buffer], offset)
    except OSError as exc:
        if exc.errno != errno.EINVAL or not flags & os.O_DIRECT:
            raise
        # The device has an unusual block size.
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        return read_at(descriptor, buffer, offset)
    if not flags & os.O_DIRECT:
        os.posix_fadvise(descriptor, offset, count, os.POSIX_FADV_DONTNEED)
    return count


def load(path: str) -> Report:
    """Return the report of the previous run; an empty one if it cannot be read."""
    data = read_json(path)
    checked, damaged = data.get("checked"), data.get("damaged")
    if data.get("version") != REPORT_VERSION or not isinstance(checked, dict) or not isinstance(damaged, dict):
        return Report(path)
    times = {name: when for name, when in checked.items() if isinstance(when, (int, float))}
    whole = {name: entry for name, entry in damaged.items() if {"found", "directory"} <= set(entry)}
    return Report(path, times, whole)


def read_json(path: str) -> dict[str, Any]:
    """Return a file's mapping, or an empty one."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_json(path: str, data: dict[str, Any], times: os.stat_result | None = None) -> None:
    """Write a file by rename, with the times of another; durable when this returns. Raises OSError."""
    partial = f"{path}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(partial, 0o644)
    if times:
        os.utime(partial, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(partial, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def summary(report: Report) -> str:
    """Return the line for the journal."""
    run = report.run
    begin = "read" if run["finished"] else "stopped after"
    figures = f"{run['files']} files, {run['bytes'] / 1e9:.1f} GB in {run['seconds']} s"
    return f"{begin} {figures}; damaged: {len(report.damaged)}, skipped: {len(report.skipped)}"


if __name__ == "__main__":
    sys.exit(main())
