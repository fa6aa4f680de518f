# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules of a stand-in: DKMS builds them, modprobe loads them, modinfo reads them, as the real tools do.

A module on disk is a text below /lib/modules with what modinfo would say of it. A loaded one is a directory below
/standin/sys/module and what the vendor shows beside it. Faults, as files in /var/lib/standin:

    build-fails   a build ends with an error of the compiler, in a make.log; the file may name the kernel it is for
    slow-build   a build takes as many seconds as the file says
    users        a number: as many users has each module of a vendor that no program's open files explain
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Mapping, Sequence

from tests.standins.place import Answer, Place
from tests.standins.vendor import vendor

MAKE_LOG = """\
DKMS make.log for {name}-{version} for kernel {kernel} (x86_64)
Sat Nov 21 12:00:00 UTC 2026
make -C /lib/modules/{kernel}/build M=/var/lib/dkms/{name}/{version}/build modules
  CC [M]  /var/lib/dkms/{name}/{version}/build/{name}/{name}-pci.o
/var/lib/dkms/{name}/{version}/build/{name}/{name}-pci.c: In function '{name}_probe':
/var/lib/dkms/{name}/{version}/build/{name}/{name}-pci.c:42:5: error: implicit declaration of function 'pci_stub'
cc1: some warnings being treated as errors
make[2]: *** [scripts/Makefile.build:250: /var/lib/dkms/{name}/{version}/build/{name}/{name}-pci.o] Error 1
make[1]: *** [/usr/src/linux-headers-{kernel}/Makefile:2037: .] Error 2
make: *** [Makefile:82: modules] Error 2
"""


NO_HEADERS = "kernel headers for this kernel do not seem to be installed."


def read_conf(place: Place, name: str, version: str) -> dict[str, str]:
    """Return what a dkms.conf below /usr/src says."""
    file = place.root / f"usr/src/{name}-{version}/dkms.conf"
    return dict(re.findall(r'^([\w\[\]]+)="([^"]*)"$', file.read_text(), re.MULTILINE)) if file.exists() else {}


def srcversion(name: str, version: str) -> str:
    """Return a checksum of a module's source, as modpost writes it."""
    return hashlib.sha256(f"{name} {version}".encode()).hexdigest()[:23].upper()


def module_files(place: Place, kernel: str) -> Path:
    """Return where DKMS puts the modules of a kernel on Debian."""
    return place.root / "lib/modules" / kernel / "updates/dkms"


# DKMS


def dkms(argv: Sequence[str], place: Place) -> Answer:
    """Do what dkms does: status, add, build, install, remove, autoinstall, with name/version, -m, -v, -k, --all."""
    words, given = _options(argv, {"-m": "module", "-v": "version", "-k": "kernel"})
    command = words.pop(0) if words else ""
    if command == "status":
        return Answer(out=_status(place))
    if command == "autoinstall":
        return _autoinstall(place, given.get("kernel") or place.kernel())
    name, _slash, version = (words[0] if words else given.get("module", "")).partition("/")
    version = version or (words[1] if len(words) > 1 else given.get("version", ""))
    kernel = given.get("kernel") or place.kernel()
    if command == "standin-install":
        return _install_all(place, name, version)
    if command == "remove":
        return _remove(place, name, version, None if "all" in given or "kernel" not in given else kernel)
    if not read_conf(place, name, version):
        return Answer(3, err=f"Error! Could not find module source directory.\nDirectory: /usr/src/{name}-{version}\n")
    _home(place, name, version).mkdir(parents=True, exist_ok=True)
    return _build(place, name, version, kernel) if command in ("build", "install") else Answer()


def _options(argv: Sequence[str], names: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return plain words and options; ``--all`` is an option without a value."""
    words: list[str] = []
    given: dict[str, str] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in names:
            given[names[word]] = rest.pop(0)
        elif word.startswith("-"):
            given[word.lstrip("-")] = ""
        else:
            words.append(word)
    return words, given


def _home(place: Place, name: str, version: str) -> Path:
    return place.root / "var/lib/dkms" / name / version


def _sources(place: Place) -> list[tuple[str, str]]:
    homes = sorted((place.root / "var/lib/dkms").glob("*/*/"))
    return [(home.parent.name, home.name) for home in homes if home.is_dir()]


def _status(place: Place) -> str:
    lines = []
    for name, version in _sources(place):
        builds = sorted(path.name for path in _home(place, name, version).glob("*") if (path / "x86_64").is_dir())
        lines += [f"{name}/{version}, {kernel}, x86_64: installed\n" for kernel in builds]
        lines += [] if builds else [f"{name}/{version}: added\n"]
    return "".join(lines)


def _has_headers(place: Place, kernel: str) -> bool:
    return (place.root / "lib/modules" / kernel / "build").exists()


def _kernels(place: Place) -> list[str]:
    """Return the kernels that are installed, and the one that runs."""
    found = {path.name for path in (place.root / "lib/modules").glob("*") if path.is_dir()}
    return sorted({*found, place.kernel()})


def _autoinstall(place: Place, kernel: str) -> Answer:
    answers = [_build(place, *source, kernel) for source in _sources(place)]
    failed = [answer for answer in answers if answer.rc]
    out = "".join(answer.out for answer in answers)
    if not failed:
        return Answer(out=out)
    errors = "".join(answer.err for answer in failed)
    return Answer(11, out, f"{errors}Error! One or more modules failed to install during autoinstall.\n")


def _install_all(place: Place, name: str, version: str) -> Answer:
    """Do what a package's postinst has DKMS do: every kernel that has headers, and a word on the others."""
    _home(place, name, version).mkdir(parents=True, exist_ok=True)
    out = f"Loading new {name}-{version} DKMS files...\n"
    for kernel in _kernels(place):
        if not _has_headers(place, kernel):
            out += f"Module build for kernel {kernel} was skipped since the\n{NO_HEADERS}\n"
            continue
        answer = _build(place, name, version, kernel)
        out += answer.out
        if answer.rc:
            return Answer(answer.rc, out, answer.err)
    return Answer(out=out)


def _build(place: Place, name: str, version: str, kernel: str) -> Answer:
    """Build a module and put it among those of the kernel; what is there already stays."""
    home = _home(place, name, version)
    if (home / kernel / "x86_64").is_dir():
        return Answer(out=f"Module {name}/{version} already installed on kernel {kernel} (x86_64), skip.\n")
    if not _has_headers(place, kernel):
        return Answer(
            21,
            err=f"Error! Your kernel headers for kernel {kernel} cannot be found at /lib/modules/{kernel}/build or "
            f"/lib/modules/{kernel}/source.\nPlease install the linux-headers-{kernel} package or use the "
            "--kernelsourcedir option to tell DKMS where it's located.\n",
        )
    time.sleep(float(place.fault("slow-build") or 0))
    wanted = place.fault("build-fails")
    if wanted is not None and wanted in ("", kernel):
        log = home / "build/make.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(MAKE_LOG.format(name=name, version=version, kernel=kernel))
        return Answer(
            10,
            "Building module:\nCleaning build area...\n",
            f"Error! Bad return status for module build on kernel: {kernel} (x86_64)\n"
            f"Consult /var/lib/dkms/{name}/{version}/build/make.log for more information.\n",
        )
    shutil.rmtree(home / "build", ignore_errors=True)
    conf = read_conf(place, name, version)
    files = module_files(place, kernel)
    files.mkdir(parents=True, exist_ok=True)
    for key, module in conf.items():
        if key.startswith("BUILT_MODULE_NAME"):
            info = {
                "version": conf.get("MODULE_VERSION", version),
                "srcversion": srcversion(module, version),
                "license": conf.get("LICENSE", "GPL"),
                "depends": conf.get(key.replace("NAME", "DEPENDS"), ""),
                "vermagic": f"{kernel} SMP preempt mod_unload modversions ",
                "name": module,
                "dkms": f"{name}/{version}",
            }
            (files / f"{module}.ko").write_text("".join(f"{word}: {value}\n" for word, value in info.items()))
    (home / kernel / "x86_64").mkdir(parents=True)
    return Answer(out=f"Building module:\n{name}.ko:\nInstalling /lib/modules/{kernel}/updates/dkms/\ndepmod...\n")


def _remove(place: Place, name: str, version: str, kernel: str | None) -> Answer:
    home = _home(place, name, version)
    if not home.is_dir():
        return Answer(3, err=f"Error! There is no instance of {name} {version} located in the DKMS tree.\n")
    for build in [path.parent for path in home.glob("*/x86_64") if kernel in (None, path.parent.name)]:
        for file in module_files(place, build.name).glob("*.ko"):
            if f"dkms: {name}/{version}\n" in file.read_text():
                file.unlink()
        shutil.rmtree(build)
    if kernel is None:
        shutil.rmtree(home)
        if not any(home.parent.iterdir()):
            home.parent.rmdir()
    return Answer(out=f"Module {name}-{version} removed.\n")


# modinfo and modprobe


def info(place: Place, name: str, kernel: str) -> dict[str, str] | None:
    """Return what is in a module on disk, nothing in one that the kernel brings itself, None where there is none."""
    file = module_files(place, kernel) / f"{name}.ko"
    if file.exists():
        pairs = (line.partition(": ") for line in file.read_text().splitlines())
        return {key: value for key, _colon, value in pairs}
    return {} if name in place.machine().kernel_modules else None


def modinfo(argv: Sequence[str], place: Place) -> Answer:
    """Say what modinfo says of a module of the running kernel, or of another one with -k; one word of it with -F."""
    words, given = _options(argv, {"-k": "kernel", "-F": "field", "--field": "field"})
    kernel = given.get("kernel") or place.kernel()
    name = words[-1]
    found = info(place, name, kernel)
    if found is None:
        return Answer(1, err=f"modinfo: ERROR: Module {name} not found.\n")
    path = f"/lib/modules/{kernel}/" + (f"updates/dkms/{name}.ko" if found else f"kernel/drivers/{name}.ko")
    pairs = {"filename": path, **(found or {"vermagic": f"{kernel} SMP preempt mod_unload modversions "})}
    if "field" in given:
        return Answer(out=f"{pairs[given['field']]}\n" if given["field"] in pairs else "")
    return Answer(out="".join(f"{key + ':':<16}{value}\n" for key, value in pairs.items() if key != "dkms"))


def modprobe(argv: Sequence[str], place: Place) -> Answer:
    """Load a module and those that it needs, or with -r unload it."""
    words = [word for word in argv if not word.startswith("-")]
    removes = any(word in ("-r", "--remove") for word in argv)
    for name in (word.replace("-", "_") for word in words if "=" not in word):
        answer = unload(place, name) if removes else load(place, name)
        if answer.rc:
            return answer
    return Answer()


def load(place: Place, name: str) -> Answer:
    """Load a module."""
    if loaded(place, name):
        return Answer()
    kernel = place.kernel()
    found = info(place, name, kernel)
    if found is None:
        where = f"/lib/modules/{kernel}"
        return Answer(1, err=f"modprobe: FATAL: Module {name} not found in directory {where}\n")
    for needed in filter(None, found.get("depends", "").split(",")):
        answer = load(place, needed)
        if answer.rc:
            return answer
        place.write({f"sys/module/{needed}/holders/{name}": ""})
    home = f"sys/module/{name}"
    place.write({f"{home}/refcnt": "0", f"{home}/holders/": ""})
    place.write({f"{home}/{word}": found[word] for word in ("version", "srcversion") if found.get(word)})
    shown = vendor(place.machine().vendor).shows(place, name, found)
    place.write(shown)
    _shown(place, name).parent.mkdir(parents=True, exist_ok=True)
    _shown(place, name).write_text(json.dumps([list(shown), found.get("depends", "")]))
    return Answer()


def unload(place: Place, name: str, with_needed: bool = True) -> Answer:
    """Unload a module, unless something uses it, and then what it needed and nothing else does."""
    if not loaded(place, name):
        return Answer()
    if in_use(place, name):
        return Answer(1, err=f"modprobe: FATAL: Module {name} is in use.\n")
    paths, needed = json.loads(_shown(place, name).read_text())
    for path in paths:
        place.remove(path)
    shutil.rmtree(place.sys / "module" / name)
    for other in filter(None, needed.split(",")):
        (place.sys / "module" / other / "holders" / name).unlink(missing_ok=True)
        if with_needed and not in_use(place, other):
            unload(place, other)
    return Answer()


def rmmod(argv: Sequence[str], place: Place) -> Answer:
    """Unload modules and nothing else, unless something uses them."""
    for name in (word.replace("-", "_") for word in argv if not word.startswith("-")):
        if not loaded(place, name):
            return Answer(1, err=f"rmmod: ERROR: Module {name} is not currently loaded\n")
        if in_use(place, name):
            holders = sorted(path.name for path in (place.sys / "module" / name / "holders").iterdir())
            by = f" by: {' '.join(holders)}" if holders else ""
            return Answer(1, err=f"rmmod: ERROR: Module {name} is in use{by}\n")
        unload(place, name, with_needed=False)
    return Answer()


def _shown(place: Place, name: str) -> Path:
    return place.state / "loaded" / f"{name}.json"


def in_use(place: Place, name: str) -> bool:
    """Return whether another module needs this one, or a program has its device files open."""
    return any((place.sys / "module" / name / "holders").iterdir()) or users(place, name) > 0


def loaded(place: Place, name: str) -> bool:
    """Return whether a module is loaded."""
    return (place.sys / "module" / name).is_dir()


def users(place: Place, name: str) -> int:
    """Return how many programs have a module's device files open, by the process table of the stand-in."""
    machine = place.machine()
    patterns = vendor(machine.vendor).nodes(name)
    links = [os.readlink(link) for link in place.proc.glob("[0-9]*/fd/*") if link.is_symlink()]
    return sum(any(fnmatch.fnmatch(link, pattern) for pattern in patterns) for link in links) + (
        int(place.fault("users") or 0) if patterns else 0
    )


def update_initramfs(_argv: Sequence[str], place: Place) -> Answer:
    """Say what update-initramfs says."""
    return Answer(out="".join(f"update-initramfs: Generating /boot/initrd.img-{name}\n" for name in _kernels(place)))
