# SPDX-License-Identifier: GPL-3.0-or-later
"""Be one of the stand-in's tools: tool.py NAME ARGUMENTS. Packages and installers bring files that call this one.

Faults that concern every tool, as files in /var/lib/standin: ``NAME-hangs`` lets it wait for ever, ``NAME-fails`` lets
it say what the file says and end with 1.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.standins import modules
from tests.standins.daemons import stay
from tests.standins.place import Answer, Place
from tests.standins.vendor import vendor

SYSTEM = {
    "dkms": modules.dkms,
    "modinfo": modules.modinfo,
    "modprobe": modules.modprobe,
    "rmmod": modules.rmmod,
    "update-initramfs": modules.update_initramfs,
}
# These only look.
QUIET = ("modinfo", "nvidia-smi", "amd-smi", "rocm-smi", "npu-smi")


def answer(tool: str, argv: list[str], place: Place) -> Answer:
    """Return what a tool says, once it has done what it does."""
    if tool not in QUIET and argv[:1] != ["status"]:
        place.log(tool, *argv)
    if place.fault(f"{tool}-hangs") is not None:
        time.sleep(100_000)
    words = place.fault(f"{tool}-fails")
    if words is not None:
        return Answer(1, err=f"{words}\n")
    if tool == "run-file":
        # run-file VENDOR FILE ARGUMENTS
        return vendor(argv[0]).install(argv[1], argv[2:], place)
    if tool in SYSTEM:
        with place.lock():
            return SYSTEM[tool](argv, place)
    return vendor(place.machine().vendor).answer(tool, argv, place)


def main() -> None:
    tool, *argv = sys.argv[1:]
    if tool == "standin":
        from tests.standins.build import main as build

        build(argv)
        return
    if tool == "open":
        # open NAME DEVICE...: a program that has device files open, until it is told to end
        stay(Place(), argv[0], argv[1:])
        return
    said = answer(tool, argv, Place())
    sys.stdout.write(said.out)
    sys.stderr.write(said.err)
    if said.daemon:
        stay(Place(), tool, said.daemon, said.note)
    sys.exit(said.rc)


if __name__ == "__main__":
    main()
