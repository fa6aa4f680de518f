# SPDX-License-Identifier: GPL-3.0-or-later
"""What a vendor's stand-in has to say: the base of vendors/*.py."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, Sequence

from tests.standins.place import Answer, Place

if TYPE_CHECKING:
    from tests.standins.repositories import Repository


@dataclass(frozen=True)
class Options:
    """What a repository is built for.

    ``distribution`` is the operating system as vendors write it (debian12, ubuntu2404, rhel9), ``codename`` its name
    (bookworm). ``versions`` are those of the driver, the oldest first, ``kernels`` those that have packages.
    """

    distribution: str = "debian12"
    codename: str = "bookworm"
    versions: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    architecture: str = "amd64"
    settings: Mapping[str, str] | None = None
    work: Path | None = None

    @property
    def is_rpm(self) -> bool:
        """Whether packages are RPMs."""
        return not self.distribution.startswith(("debian", "ubuntu"))

    def setting(self, name: str, default: str = "") -> str:
        """Return what only this vendor asks for."""
        return (self.settings or {}).get(name, default)


class Vendor:
    """A vendor: packages, installers, tools, and what its kernel modules show once they are loaded.

    A vendor's file has one class that is derived from this one and one object of it, called VENDOR.
    """

    name = ""
    # Kernel modules that udev loads at boot once they are built for the kernel.
    autoload: tuple[str, ...] = ()
    # Programs that packages or installers bring: each is a file with `stub(name)` in it.
    tools: tuple[str, ...] = ()

    def repositories(self, options: Options) -> Sequence[Repository]:
        """Return the vendor's repositories for an operating system."""
        return ()

    def installers(self, options: Options) -> Sequence[str]:
        """Return the names of the vendor's .run files."""
        return ()

    def install(self, file: str, argv: Sequence[str], place: Place) -> Answer:
        """Do what one of the vendor's .run files does with these options; ``file`` is its name."""
        raise NotImplementedError

    def answer(self, tool: str, argv: Sequence[str], place: Place) -> Answer:
        """Return what one of the vendor's tools says."""
        raise NotImplementedError

    def shows(self, place: Place, module: str, info: Mapping[str, str]) -> dict[str, str]:
        """Return the files below /standin that appear once a kernel module is loaded and vanish with it.

        ``info`` is what is in the module (version, srcversion, license, vermagic), nothing of one that the kernel
        brings itself. /sys/module/* is written for all vendors alike and need not be here.
        """
        return {}

    def nodes(self, module: str) -> tuple[str, ...]:
        """Return the patterns of device files that keep a kernel module in use while a program has them open."""
        return ()


def vendor(name: str) -> Vendor:
    """Return a vendor by its name: vendors/NAME.py."""
    found: Vendor = importlib.import_module(f"tests.standins.vendors.{name}").VENDOR
    return found
