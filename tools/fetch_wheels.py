#!/usr/bin/env python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fill DIR/wheels with exactly the wheels of a lock, for a mirror that is carried to its site or served from here.

Runs where the wheel index can be reached and asks it as pip is configured to (its index, find-links, CA, proxy). Every
file is checked against the lock before it gets its name. Nothing is removed; run it again to go on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.baremetal.inference.plugins.module_utils._venv import (  # noqa: E402
    Pin,
    Target,
    VenvError,
    parse_lock,
)
from ansible_collections.baremetal.inference.plugins.module_utils._wheels import WheelError, parse_name  # noqa: E402

# Where PyTorch itself publishes the +cpu builds, asked only when the configured index has none.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# One pip for many files is faster than one for each; what a batch has fetched stays when the next one fails.
BATCH = 16
# Beside the wheels, so that a rename publishes; hidden, so that the index and the web server do not see it.
SCRATCH = ".fetch-"
# Names of the platforms that a lock's wheels can be for; the lock's hashes decide which file it is.
GLIBC_MINORS = range(5, 51)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path, help="the lock, as tools/lock_requirements.py makes it")
    parser.add_argument("dest", type=Path, metavar="DIR", help="the mirror's root; the wheels go to DIR/wheels")
    arguments = parser.parse_args()
    try:
        return fetch(arguments.lock, arguments.dest / "wheels")
    except (OSError, VenvError) as exc:
        print(f"{arguments.lock}: {exc}", file=sys.stderr)
        return 1


def fetch(path: Path, wheels: Path) -> int:
    """Fetch what is missing and return the exit status."""
    text = path.read_text(encoding="utf-8")
    lock = parse_lock(text)
    if lock.target is None:
        raise VenvError(
            "it does not say which Python and machine it is for; expected a line like '# target: cp311-x86_64'"
        )
    stamp = wheels / f".{path.stem}.fetched.json"
    if stamped(stamp, text, wheels):
        print(f"{wheels}: up to date, {len(lock.pins)} wheels of {path.name}")
        return 0
    wheels.mkdir(parents=True, exist_ok=True)
    for leftover in wheels.glob(f"{SCRATCH}*"):  # of a run that was killed
        shutil.rmtree(leftover)
    files = dict(present(lock.pins.values(), wheels))
    missing = [pin for name, pin in sorted(lock.pins.items()) if name not in files]
    print(
        f"{wheels}: {len(files)} of {len(lock.pins)} wheels of {path.name} are there, {len(missing)} to fetch",
        flush=True,
    )
    for start in range(0, len(missing), BATCH):
        files.update(download(missing[start : start + BATCH], lock.target, wheels, start, len(missing)))
    write_stamp(stamp, text, [wheels / name for name in files.values()])
    size = sum((wheels / name).stat().st_size for name in files.values())
    print(f"{wheels}: complete, {len(files)} wheels of {path.name}, {size / 1e6:.0f} MB")
    return 0


def stamped(stamp: Path, text: str, wheels: Path) -> bool:
    """Return whether an earlier run completed this very lock and its files are still there in full."""
    try:
        known = json.loads(stamp.read_text(encoding="utf-8"))
        same_lock: bool = known["lock"] == hashlib.sha256(text.encode()).hexdigest()
        return same_lock and all((wheels / name).stat().st_size == size for name, size in known["files"].items())
    except (OSError, ValueError, KeyError):
        return False


def write_stamp(stamp: Path, text: str, files: Sequence[Path]) -> None:
    """Note that a lock is complete."""
    known = {
        "lock": hashlib.sha256(text.encode()).hexdigest(),
        "files": {file.name: file.stat().st_size for file in sorted(files)},
    }
    partial = stamp.with_suffix(".partial")
    partial.write_text(json.dumps(known, indent=0), encoding="utf-8")
    partial.replace(stamp)


def present(pins: Iterable[Pin], wheels: Path) -> Iterator[tuple[str, str]]:
    """Yield (project, file name) for the wheels of pins that are in a directory and have one of their sha256."""
    wanted = {(pin.name, pin.version): pin for pin in pins}
    for file in sorted(wheels.glob("*.whl")):
        try:
            name = parse_name(file.name)
        except WheelError:  # the role mirror will say so
            continue
        pin = wanted.get((name.project, name.version))
        if pin and sha256_of(file) in pin.hashes:
            yield pin.name, file.name


def download(pins: Sequence[Pin], target: Target, wheels: Path, done: int, total: int) -> dict[str, str]:
    """Fetch the wheels of pins into a directory and return their file names by project."""
    with tempfile.TemporaryDirectory(dir=wheels, prefix=SCRATCH) as scratch:
        requirements = Path(scratch, "requirements.txt")
        requirements.write_text("".join(f"{pin.text()}\n" for pin in pins), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        command += ["--requirement", str(requirements), "--dest", scratch, *platform_options(target)]
        command += ["--no-input", "--no-color", "--progress-bar", "off", "--disable-pip-version-check"]
        output, rc = run_pip(command, done, total)
        if rc and re.search(r"No matching distribution found for torch==\S+\+cpu", output):
            print(f"the configured index has no +cpu build of torch; asking {TORCH_INDEX} too", flush=True)
            output, rc = run_pip([*command, "--extra-index-url", TORCH_INDEX], done, total)
        if rc:
            raise VenvError(f"pip could not fetch it; run again to go on from here:\n{errors_of(output)}")
        fetched = dict(present(pins, Path(scratch)))
        lacking = sorted({pin.name for pin in pins} - set(fetched))
        if lacking:
            raise VenvError(f"pip fetched files for {', '.join(lacking)} that are not those of the lock")
        for name in fetched.values():
            Path(scratch, name).replace(wheels / name)
    return fetched


def platform_options(target: Target) -> list[str]:
    """Return pip's options for wheels of another Python or machine than the one it runs on."""
    interpreter = "cp" + target.python.replace(".", "")
    platforms = [f"manylinux_2_{minor}_{target.machine}" for minor in GLIBC_MINORS]
    platforms += [f"{name}_{target.machine}" for name in ("manylinux1", "manylinux2010", "manylinux2014", "linux")]
    options = ["--implementation", "cp", "--python-version", target.python]
    options += [word for abi in (interpreter, "abi3", "none") for word in ("--abi", abi)]
    return options + [word for platform in platforms for word in ("--platform", platform)]


def run_pip(command: Sequence[str], done: int, total: int) -> tuple[str, int]:
    """Run pip, print a line for each file that it turns to, and return its output and exit status."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            found = re.search(
                r"(?:Downloading|Using cached|Processing) \S*?([^/\s]+\.whl)(?:\s+\((\d[^)]*)\)|\s|$)", line
            )
            if found:
                done += 1
                print(f"[{done:3}/{total}] {found[1]} {found[2] or ''}".rstrip(), flush=True)
    return "".join(lines), process.returncode


def errors_of(output: str) -> str:
    """Return what pip says is wrong, or its last lines."""
    lines = output.splitlines()
    return "\n".join([line for line in lines if line.startswith("ERROR")] or lines[-5:])


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
