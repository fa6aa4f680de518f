# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker: its repository, with packages of its names that hold Debian's own docker."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Sequence

from tests.standins.packages import Package
from tests.standins.repositories import Repository
from tests.standins.vendor import Options, Vendor

VERSION = "5:28.5.1-1~debian.12~bookworm"
CONTAINERD = "1.7.28-1"
DOWNLOADS = Path("/var/cache/standin")
REPLACED = {"Conflicts": "containerd, runc", "Provides": "containerd, runc"}


class Docker(Vendor):
    """Docker. Debian's own packages come from the network, or lie in the directory of ``--work``."""

    name = "docker"

    def repositories(self, options: Options) -> Sequence[Repository]:
        path = "download.docker.com/linux/debian"
        packages = (
            Package(
                "docker-ce",
                VERSION,
                "iptables, tini, containerd.io, docker-ce-cli",
                relations={"Conflicts": "docker.io"},
                unpack=_debian(options, "docker.io"),
            ),
            Package("docker-ce-cli", VERSION, relations={"Conflicts": "docker.io"}),
            Package("containerd.io", CONTAINERD, relations=REPLACED, unpack=_debian(options, "containerd", "runc")),
            Package("docker-buildx-plugin", CONTAINERD),
            Package("docker-compose-plugin", CONTAINERD),
        )
        return [Repository(path, packages, f"{path}/gpg", "Docker", options.codename, "stable")]


VENDOR = Docker()


def _debian(options: Options, *names: str) -> tuple[Path, ...]:
    """Return the files of Debian's packages."""
    work = options.work or DOWNLOADS
    work.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not any(work.glob(f"{name}_*.deb")):
            subprocess.run(["apt-get", "--quiet", "download", name], cwd=work, check=True, capture_output=True)
    return tuple(next(work.glob(f"{name}_*.deb")) for name in names)
