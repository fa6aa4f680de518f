#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the fast unit tests (make fast) in several processes, each with its own share of the files.

A process collects its own files only. Each worker of pytest-xdist would collect all of them, and its controller needs a
fifth of the time. Prints the last line of each process, and everything of one that fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
UNIT = TOP / "tests/unit"
# Each test here starts Ansible or another program, makes thousands of hosts, or tries thousands of inputs.
SLOW = tuple((UNIT / "slow.txt").read_text(encoding="utf-8").split())
FUZZ = "_fuzz.py"
# Plugins that these tests do not use; together they take a quarter of the time of a short test.
WITHOUT = ("xdist", "xdist.looponfail", "pytest11.testinfra", "cacheprovider")


def is_slow(path: Path) -> bool:
    """Return whether a file or folder of the unit tests is one that ``make fast`` leaves out."""
    name = path.relative_to(UNIT).as_posix() if path.is_relative_to(UNIT) else ""
    return f"{name}/".startswith(SLOW) or name.startswith(SLOW) or name.endswith(FUZZ)


def fast_files() -> list[Path]:
    """Return the files of the fast tests, the largest first."""
    files = [path for path in UNIT.rglob("test_*.py") if not is_slow(path)]
    return sorted(files, key=lambda path: (-path.stat().st_size, path))


def shares(files: list[Path], number: int) -> list[list[Path]]:
    """Return the files in ``number`` shares of about the same size."""
    return [share for share in (files[start::number] for start in range(number)) if share]


def main() -> int:
    """Run all shares at once; return the status of the command."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    # These tests spend much of their time waiting, so four processes run on each processor.
    parts = shares(fast_files(), 4 * (os.cpu_count() or 1))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not slow and not long",
        *(f"-pno:{name}" for name in WITHOUT),
    ]
    with tempfile.TemporaryDirectory() as directory:
        outputs = [Path(directory, str(number)) for number in range(len(parts))]
        # Its own temporary directory: otherwise the first process to end removes those of earlier runs, for seconds.
        running = [
            subprocess.Popen(
                [*command, f"--basetemp={output}.d", *part], cwd=TOP, stdout=output.open("w"), stderr=subprocess.STDOUT
            )
            for part, output in zip(parts, outputs)
        ]
        failed = [process.wait() != 0 for process in running]
        for output, bad in zip(outputs, failed):
            lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
            print("\n".join(lines if bad else lines[-1:]))
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
