# SPDX-License-Identifier: GPL-3.0-or-later
"""Fill a directory with exactly the wheels of a lock, by the pip of a machine that reaches a wheel index.

pip asks as it is configured to (its index, find-links, CA, proxy). Every file is checked against the lock before it
gets its name. Nothing is removed; files of an earlier run are not downloaded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Callable, Iterable, Mapping, NamedTuple, Sequence

from ..common.files_host import make_directories, publish, sha256_of
from ..common.foreign_trees_host import remove_tree
from .index import WheelError, parse_name
from .venv import Lock, Pin, Target, VenvError, join_locks, parse_lock

# PyTorch's own index of +cpu builds, used only if the configured index has none.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# One pip for many files is faster than one for each; the files of a batch are kept when the next batch fails.
BATCH = 16
# Beside the wheels, so that a rename publishes; hidden, so that the index and the web server do not see it.
SCRATCH = ".fetch-"
# Names of the platforms that a lock's wheels can be for; the lock's hashes decide which file it is.
GLIBC_MINORS = range(5, 51)

Report = Callable[[str], None]


class File(NamedTuple):
    """A wheel: its name, its bytes, its sha256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Wheelhouse:
    """A directory of wheels and a lock: the files that are there, by project, and the pins that lack theirs."""

    wheels: str
    name: str
    digest: str
    lock: Lock
    files: Mapping[str, File]

    @property
    def target(self) -> Target:
        """The target of the wheels. Raises VenvError for a lock without one."""
        if self.lock.target is None:
            raise VenvError("it does not name its Python and machine; expected a line like '# target: cp311-x86_64'")
        return self.lock.target

    @property
    def missing(self) -> list[Pin]:
        """The pins without a file, sorted."""
        return [pin for name, pin in sorted(self.lock.pins.items()) if name not in self.files]

    @property
    def stamp(self) -> str:
        """The file that records that the lock is complete."""
        return os.path.join(self.wheels, f".{os.path.splitext(self.name)[0]}.fetched.json")


def inspect_wheelhouse(path: str, wheels: str, full: bool = False) -> Wheelhouse:
    """Return which wheels of the lock at ``path`` a directory has. Raises VenvError or OSError for an unreadable lock.

    A lock that an earlier run has completed is trusted by size and time of its files, unless ``full``; else every file
    is hashed.
    """
    text = read_lock(path)
    empty = Wheelhouse(wheels, os.path.basename(path), hashlib.sha256(text.encode()).hexdigest(), parse_lock(text), {})
    empty.target  # noqa: B018 (a lock without one is refused before anything is fetched)
    files = (None if full else _read_stamp(empty)) or find_wheels(empty.lock.pins.values(), wheels)
    return Wheelhouse(wheels, empty.name, empty.digest, empty.lock, files)


def read_lock(path: str) -> str:
    """Return the text of a lock, with what the file beside it has that a line ``# besides: FILE`` of it names."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    shared = re.search(r"^# besides: ([\w.-]+)$", text, re.MULTILINE)
    return join_locks(text, read_lock(os.path.join(os.path.dirname(path), shared[1]))) if shared else text


def fill_wheelhouse(house: Wheelhouse, say: Report) -> Wheelhouse:
    """Fetch the missing wheels and record that the lock is complete. Raises VenvError; fetched files are kept."""
    make_directories(house.wheels)
    for name in os.listdir(house.wheels):
        if name.startswith(SCRATCH):  # of a run that was killed
            remove_tree(os.path.join(house.wheels, name))
    files, missing = dict(house.files), house.missing
    for start in range(0, len(missing), BATCH):
        files.update(_download(missing[start : start + BATCH], house, PipProgress(say, start, len(missing))))
    full = Wheelhouse(house.wheels, house.name, house.digest, house.lock, files)
    if not is_complete(full):
        _write_stamp(full)
    return full


def is_complete(house: Wheelhouse) -> bool:
    """Whether the lock is already recorded as complete."""
    return not house.missing and _read_stamp(house) is not None


def _read_stamp(house: Wheelhouse) -> dict[str, File] | None:
    """Return the wheels that an earlier run recorded for the same lock, None if files are missing."""
    try:
        with open(house.stamp, encoding="utf-8") as stream:
            known = json.load(stream)
        files = {project: File(*entry) for project, entry in known["wheels"].items()}
        same = known["lock"] == house.digest and set(files) == set(house.lock.pins)
        return files if same and known["seen"] == _file_times(house, files) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _file_times(house: Wheelhouse, files: Mapping[str, File]) -> dict[str, list[int]]:
    """Return bytes and time of the last change, in nanoseconds, of each file."""
    found = {project: os.stat(os.path.join(house.wheels, file.name)) for project, file in sorted(files.items())}
    return {project: [status.st_size, status.st_mtime_ns] for project, status in found.items()}


def _write_stamp(house: Wheelhouse) -> None:
    known = {"lock": house.digest, "wheels": dict(sorted(house.files.items())), "seen": _file_times(house, house.files)}
    publish(house.stamp, json.dumps(known, indent=0))


def find_wheels(pins: Iterable[Pin], wheels: str) -> dict[str, File]:
    """Return by project the wheels of pins that are in a directory and have one of their sha256."""
    wanted = {(pin.name, pin.version): pin for pin in pins}
    found = {}
    for filename in sorted(os.listdir(wheels)) if os.path.isdir(wheels) else []:
        try:
            name = parse_name(filename)
        except WheelError:  # the role mirror reports it
            continue
        pin = wanted.get((name.project, name.version))
        path = os.path.join(wheels, filename)
        digest = sha256_of(path) if pin else ""
        if pin and digest in pin.hashes:
            found[pin.name] = File(filename, os.path.getsize(path), digest)
    return found


class PipProgress:
    """Reports the number of the file that pip begins with, of how many."""

    def __init__(self, say: Report, done: int, total: int) -> None:
        self._say = say
        self._done = done
        self._total = total

    def read(self, line: str) -> None:
        """Report the file that a line of pip's output names."""
        found = re.search(
            r"(?:Downloading|Using cached|Processing) (?:\S*/)?([^/\s]+\.whl)(?:\s+\((\d[^)]*)\)|\s|$)", line
        )
        if found:
            self._done += 1
            self._say(f"[{self._done:3}/{self._total}] {found[1]} {found[2] or ''}".rstrip())

    def note(self, text: str) -> None:
        """Report another line."""
        self._say(text)


def _download(pins: Sequence[Pin], house: Wheelhouse, counter: PipProgress) -> dict[str, File]:
    """Fetch the wheels of pins into the directory and return them by project."""
    with tempfile.TemporaryDirectory(dir=house.wheels, prefix=SCRATCH) as scratch:
        requirements = os.path.join(scratch, "requirements.txt")
        with open(requirements, "w", encoding="utf-8") as file:
            file.write("".join(f"{pin.text()}\n" for pin in pins))
        _run_download(
            [*pip_command(), "--requirement", requirements, "--dest", scratch, *_options(house.target)], counter
        )
        fetched = find_wheels(pins, scratch)
        lacking = sorted({pin.name for pin in pins} - set(fetched))
        if lacking:
            raise VenvError(f"pip fetched files for {', '.join(lacking)} that do not match the lock")
        for entry in fetched.values():
            # pip's own files are for their owner alone; a web server reads these.
            os.chmod(os.path.join(scratch, entry.name), 0o644)
            os.replace(os.path.join(scratch, entry.name), os.path.join(house.wheels, entry.name))
    return fetched


def _run_download(command: Sequence[str], counter: PipProgress) -> None:
    output, rc = _run_pip(command, counter)
    if rc and re.search(r"No matching distribution found for torch==\S+\+cpu", output):
        counter.note(f"the configured index has no +cpu build of torch; asking {TORCH_INDEX} too")
        output, rc = _run_pip([*command, "--extra-index-url", TORCH_INDEX], counter)
    if rc:
        raise VenvError(f"pip could not fetch it; run again to continue:\n{_errors_of(output)}")


def pip_command() -> list[str]:
    """Return the words of ``pip download``: this Python's pip, else the one on the path. Raises VenvError for none."""
    own = subprocess.run([sys.executable, "-m", "pip", "--version"], check=False, capture_output=True)
    found = [sys.executable, "-m", "pip"] if own.returncode == 0 else [shutil.which("pip3") or ""]
    if not found[0]:
        raise VenvError(f"{sys.executable} has no pip, nor is pip3 on the path; install one (Debian: python3-pip)")
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input", "--no-color"]
    return [*found, "download", *options, "--progress-bar", "off", "--disable-pip-version-check"]


def _options(target: Target) -> list[str]:
    """Return pip's options for wheels of another Python or machine than the one it runs on."""
    interpreter = "cp" + target.python.replace(".", "")
    platforms = [f"manylinux_2_{minor}_{target.machine}" for minor in GLIBC_MINORS]
    platforms += [f"{name}_{target.machine}" for name in ("manylinux1", "manylinux2010", "manylinux2014", "linux")]
    options = ["--implementation", "cp", "--python-version", target.python]
    options += [word for abi in (interpreter, "abi3", "none") for word in ("--abi", abi)]
    return options + [word for platform in platforms for word in ("--platform", platform)]


def _run_pip(command: Sequence[str], counter: PipProgress) -> tuple[str, int]:
    """Run pip, report each file that it begins with, and return its output and exit status."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            counter.read(line)
    return "".join(lines), process.returncode


def _errors_of(output: str) -> str:
    """Return pip's errors, or its last lines; addresses without what may be a password."""
    lines = output.splitlines()
    text = "\n".join([line for line in lines if line.startswith("ERROR")] or lines[-5:])
    return re.sub(r"://[^/@\s]+@", "://", text)
