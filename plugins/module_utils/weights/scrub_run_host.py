# SPDX-License-Identifier: GPL-3.0-or-later
"""Read all weights below a root and compare them with the sha256 in their stamps (weights-scrub.service).

The entry of a damaged file is removed from the stamp, so that the next run of the role weights reads the file and
downloads it again. It can be stopped at any time; the next start continues with the remaining files.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import time
from typing import Iterator

from ..common.files_host import LockedError, locked, make_directories, publish
from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_text import escape_controls
from ..common.lines_host import write_error, write_line
from .direct_read_host import direct_sha256
from .files_host import read_stamp
from .lock_host import LOCK_NAME
from .owners_host import Owners
from .plan import STAMP_NAME, parse_stamp
from .scrub import NO_FILE, Pinned, parse_report
from .scrub_host import read_json

BYTES_OF_MEGABIT = 125_000
# Seconds between two writes of the report during the scrub.
SAVE_INTERVAL = 1.0


class StoppedError(Exception):
    """The scrub received a signal to stop."""


class SkippedError(Exception):
    """A file cannot be judged this time; the message is the reason."""


class Pace:
    """Limits reading to ``limit`` bytes per second (0: no limit) and makes it stoppable."""

    def __init__(self, limit: int) -> None:
        self.limit, self.total, self.stopped, self.due = limit, 0, False, 0.0

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


class Scrub:
    """One run over all files below ``root``; ``path`` is the report."""

    def __init__(self, root: str, path: str, pace: Pace) -> None:
        self.owners, self.path, self.pace = Owners(root), path, pace
        self.report = parse_report(read_json(path))
        self.report.run = {"root": root, "started": int(time.time()), "finished": None, "files": 0}
        self.saved = float("-inf")

    def run(self) -> None:
        """Read every file. Raises StoppedError."""
        found = {pinned.path: pinned for pinned in stamped_files(self.owners)}
        waiting = [path for path, entry in self.report.damaged.items() if _awaits_download(path, entry)]
        self.report.keep_present(found, waiting)
        for path in self.report.order(found):
            try:
                self.examine(found[path])
            except SkippedError as exc:
                self.report.skipped[path] = str(exc)
            self.report.run["files"] += 1
            self.save(SAVE_INTERVAL)

    def examine(self, pinned: Pinned) -> None:
        """Read one file and note what was found. Raises SkippedError, StoppedError."""
        seen: os.stat_result | None = None
        if self.owners.find_foreign(pinned.directory, [pinned.name]):
            raise SkippedError("another user can change it")
        try:
            found, seen = direct_sha256(pinned.path, pinned.size, self.pace.took)
        except FileNotFoundError:
            found = NO_FILE
        except OSError as exc:
            # Only this error means that the bytes are lost.
            if exc.errno != errno.EIO:
                raise SkippedError(exc.strerror) from exc
            found = str(exc.strerror)
        if found == pinned.sha256:
            self.report.add_intact(pinned, int(time.time()))
        else:
            line = self.report.add_damaged(pinned, found, withdraw(pinned, seen), int(time.time()))
            # In one line: the user who names a directory would choose the level of a second one.
            write_error(f"<3>{escape_controls(line)}")
            self.save()

    def save(self, interval: float = 0.0) -> None:
        """Write the report, unless that was done less than ``interval`` seconds ago."""
        if time.monotonic() - self.saved >= interval:
            make_directories(os.path.dirname(os.path.abspath(self.path)))
            publish(self.path, json.dumps(self.report.document(), indent=1, sort_keys=True))
            self.saved = time.monotonic()


def scrub(root: str, path: str, megabits: int) -> int:
    """Run a scrub, and print its summary; return the exit status, which is 1 if any file is damaged."""
    pace = Pace(megabits * BYTES_OF_MEGABIT)
    signal.signal(signal.SIGTERM, pace.stop)
    begun, run = time.monotonic(), Scrub(root, path, pace)
    with contextlib.suppress(StoppedError):
        run.run()
        run.report.run["finished"] = int(time.time())
    run.report.run.update(bytes=pace.total, seconds=round(time.monotonic() - begun, 1))
    run.save()
    write_line(run.report.summary())
    return 1 if run.report.damaged else 0


def stamped_files(owners: Owners) -> Iterator[Pinned]:
    """Yield each file of each published revision.

    A stamp that another user can change could name any file of the host, and hold up the scrub: it is left out.
    """
    directories, exposed = owners.find_revisions()
    stamped = {directory for directory in directories if not owners.find_foreign(directory, [STAMP_NAME])}
    for path in [*exposed, *(directory for directory in directories if directory not in stamped)]:
        write_line(f"{escape_controls(path)}: not read, because another user can change it")
    for directory in sorted(stamped):
        for name, (status, sha256) in sorted(parse_stamp(read_stamp(directory)).items()):
            yield Pinned(directory, name, status.size, sha256)


def _awaits_download(path: str, entry: dict[str, str]) -> bool:
    """Whether a damaged file, which is in no stamp, was not downloaded again yet."""
    here = entry["found"] == NO_FILE or os.path.lexists(path)
    return here and os.path.exists(os.path.join(entry["directory"], STAMP_NAME))


def withdraw(pinned: Pinned, seen: os.stat_result | None) -> bool:
    """Remove the file's entry from its stamp and keep the stamp's time, which gives the age of the revision.

    Returns False if the stamp cannot be written. Raises SkippedError for a file that was replaced meanwhile.
    """
    stamp = os.path.join(pinned.directory, STAMP_NAME)
    try:
        with locked(os.path.join(os.path.dirname(pinned.directory), LOCK_NAME), wait=0):
            data = read_stamp(pinned.directory)
            entry = data.get("files", {}).get(pinned.name, {})
            if entry.get("sha256") != pinned.sha256 or (seen and not os.path.samestat(os.stat(pinned.path), seen)):
                raise SkippedError("was replaced while it was read")
            times = os.lstat(stamp)
            del data["files"][pinned.name]
            text = json.dumps(data, indent=1, sort_keys=True)
            ForeignDirectory(pinned.directory).replace(STAMP_NAME, text, durable=True, times=times)
    except LockedError as exc:
        raise SkippedError("its model is being fetched") from exc
    except FileNotFoundError as exc:
        raise SkippedError("its model was removed") from exc
    except OSError:
        return False
    return True
