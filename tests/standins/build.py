# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a host a machine of a vendor, and make the vendor's repositories: one builder for all stand-ins.

    build.py tools                  the command `standin`
    build.py tree MACHINE           /standin, /var/lib/standin and the tools that no package brings
    build.py boot [--kernel K]      the machine boots that kernel
    build.py function ADDRESS ID    one more PCI function, --class 030200; --remove ADDRESS takes one out
    build.py program UNIT DEVICE... a service that has device files open while it runs (vllm@.service)
    build.py mirror VENDOR TOP      signed repositories of the vendor below TOP
    build.py run-files VENDOR DIR   the vendor's .run files, and SHA256SUMS

README.md beside this file says more.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Sequence

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.standins import trees
from tests.standins.installers import write_run_file
from tests.standins.packages import TOOL, stub, unit, write
from tests.standins.place import Machine, Place
from tests.standins.repositories import Faults, Mirror
from tests.standins.vendor import Options, vendor


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    top = argparse.ArgumentParser(prog="standin", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    top.add_argument("--root", type=Path, help="where /standin and /var/lib/standin are, / by default")
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("tools")
    tree = commands.add_parser("tree")
    tree.add_argument("machine")
    tree.add_argument("--kernel", help="the kernel that runs, that of the machine's folder by default")
    tree.add_argument("--host-processor", action="store_true", help="take /proc/cpuinfo and meminfo from this host")
    boot = commands.add_parser("boot")
    boot.add_argument("--kernel")
    function = commands.add_parser("function")
    function.add_argument("address")
    function.add_argument("id", nargs="?", default="")
    function.add_argument("--class", dest="pci_class", default="030200")
    function.add_argument("--remove", action="store_true")
    program = commands.add_parser("program")
    program.add_argument("unit")
    program.add_argument("devices", nargs="+")
    mirror = commands.add_parser("mirror")
    mirror.add_argument("vendor")
    mirror.add_argument("top", type=Path)
    mirror.add_argument("--distribution", default="debian12", help="as vendors write it: debian12, ubuntu2404, rhel9")
    mirror.add_argument("--codename", default="bookworm")
    mirror.add_argument("--version", action="append", default=[], help="of the driver, the oldest first")
    mirror.add_argument("--kernel", action="append", default=[], help="a kernel that has packages")
    mirror.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="what only this vendor knows")
    mirror.add_argument("--work", type=Path, help="a directory with packages of Debian's that go into others")
    mirror.add_argument("--rotate-key", action="store_true", help="sign with a new key; the old one stays published")
    mirror.add_argument("--publish-key", action="store_true", help="publish the key that signs")
    mirror.add_argument("--missing", action="append", default=[], help="a package whose file is gone")
    mirror.add_argument("--corrupt", action="append", default=[], help="a package with other bytes than announced")
    mirror.add_argument("--forget", action="append", default=[], help="a package or a version that is taken out")
    files = commands.add_parser("run-files")
    files.add_argument("vendor")
    files.add_argument("directory", type=Path)
    files.add_argument("--version", action="append", default=[])
    files.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    files.add_argument("--corrupt", action="append", default=[])
    return top


def make_tree(place: Place, given: argparse.Namespace) -> None:
    machine = Machine.load(given.machine).as_dict()
    if given.kernel:
        machine["kernel"] = given.kernel
    trees.write_machine(place, Machine.from_dict(machine))
    trees.write_tools(place)
    if given.host_processor:
        for name in ("cpuinfo", "meminfo"):
            (place.proc / name).write_text(Path("/proc", name).read_text())


def change_function(place: Place, given: argparse.Namespace) -> None:
    if given.remove:
        place.remove(f"sys/bus/pci/devices/{given.address}")
    else:
        trees.add_function(place, given.address, {"id": given.id, "class": given.pci_class})


def make_program(place: Place, given: argparse.Namespace) -> None:
    name = given.unit.removesuffix(".service").replace("@", "@%i")
    command = f"/usr/bin/python3 {TOOL} open {name} {' '.join(given.devices)}"
    write(place.root / "etc/systemd/system" / given.unit, unit(command))


def make_mirror(given: argparse.Namespace) -> None:
    gone, changed, taken_out = (tuple(words) for words in (given.missing, given.corrupt, given.forget))
    faults = Faults(given.rotate_key, given.publish_key, gone, changed, taken_out)
    print(Mirror(given.top).publish(vendor(given.vendor).repositories(options(given)), faults))


def make_run_files(given: argparse.Namespace) -> None:
    names = vendor(given.vendor).installers(options(given))
    sums = {name: write_run_file(given.vendor, name, given.directory, name in given.corrupt) for name in names}
    (given.directory / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def options(given: argparse.Namespace) -> Options:
    """Return what a vendor builds for."""
    words = vars(given)
    known = {key: words[key] for key in ("distribution", "codename", "work") if words.get(key)}
    settings = dict(word.split("=", 1) for word in given.set)
    return Options(versions=tuple(given.version), kernels=tuple(words.get("kernel") or ()), settings=settings, **known)


ON_PLACES = {"tree": make_tree, "function": change_function, "program": make_program}
ANYWHERE = {"mirror": make_mirror, "run-files": make_run_files}


def main(argv: Sequence[str] | None = None) -> None:
    """Do what the command line says."""
    given = parser().parse_args(argv)
    place = Place(given.root)
    if given.command == "tools":
        write(place.root / "usr/local/bin/standin", stub("standin"))
    elif given.command == "boot":
        with place.lock():
            trees.boot(place, given.kernel or place.kernel())
    elif given.command in ON_PLACES:
        ON_PLACES[given.command](place, given)
    else:
        ANYWHERE[given.command](given)


if __name__ == "__main__":
    main()
