# SPDX-License-Identifier: GPL-3.0-or-later
"""The compilers and headers that a host lacks, and the packages that have them."""

from __future__ import annotations

from typing import Sequence

CC, CXX, HEADERS = "cc", "c++", "Python.h"
WORDS = {CC: "a C compiler", CXX: "a C++ compiler", HEADERS: "Python's headers (Python.h)"}
# Packages by the package manager; PYTHON stands for python3.12.
PACKAGES = {
    "apt": {CC: ("gcc", "libc6-dev"), CXX: ("g++",), HEADERS: ("PYTHON-dev",)},
    "dnf": {CC: ("gcc", "glibc-devel"), CXX: ("gcc-c++",), HEADERS: ("PYTHON-devel",)},
}


def packages_of(missing: Sequence[str], python: str, manager: str) -> list[str]:
    """Return the packages to install; ``python`` is the path of the interpreter, like /usr/bin/python3.12."""
    name = python.rpartition("/")[2]
    known = PACKAGES.get(manager, {})
    return [package.replace("PYTHON", name) for tool in missing for package in known.get(tool, ())]


def describe_missing(missing: Sequence[str], python: str, manager: str) -> str:
    """Return the sentence for a host on which this cannot be installed automatically."""
    what = " and ".join(WORDS[tool] for tool in missing)
    packages = packages_of(missing, python, manager)
    way = f"install the packages {' '.join(packages)}" if packages else "install them"
    if not python.startswith("/usr/bin/") and HEADERS in missing:
        way += f", the headers those of {python}"
    return f"vLLM compiles kernels at its first start and this host lacks {what}; {way}"
