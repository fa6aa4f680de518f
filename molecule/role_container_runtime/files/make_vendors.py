# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a mirror of Docker's repository: signed, with packages of its names that hold Debian's own docker.

    make_vendors.py DIRECTORY

DIRECTORY/download.docker.com/linux/debian is then what a client expects there, DIRECTORY/fingerprint names the key.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(sys.argv[1])
SITE = TOP / "download.docker.com/linux/debian"
DIST = SITE / "dists/bookworm"
VERSION = "5:28.5.1-1~debian.12~bookworm"
DISTRO = ["docker.io", "containerd", "runc"]
# Name -> Debian's packages that are in it, and what its control file says beside.
PACKAGES = {
    "docker-ce": (["docker.io"], {"Depends": "iptables, tini, containerd.io, docker-ce-cli", "Conflicts": "docker.io"}),
    "docker-ce-cli": ([], {"Conflicts": "docker.io"}),
    "containerd.io": (["containerd", "runc"], {"Conflicts": "containerd, runc", "Provides": "containerd, runc"}),
    "docker-buildx-plugin": ([], {}),
    "docker-compose-plugin": ([], {}),
}


def run(*command: str, **options: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout  # type: ignore


def package(name: str, work: Path) -> Path:
    """Build one package and return its file."""
    parts, fields = PACKAGES[name]
    tree = work / name
    (tree / "DEBIAN").mkdir(parents=True)
    tree.chmod(0o755)
    for part in reversed(parts):
        # The scripts of the first one are the package's.
        shutil.rmtree(tree / "DEBIAN")
        run("dpkg-deb", "--raw-extract", str(next(work.glob(f"{part}_*.deb"))), str(tree))
    version = VERSION if name.startswith("docker-ce") else "1.7.28-1"
    control = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "the lab <lab@example>"}
    control.update(fields)
    lines = [f"{key}: {value}\n" for key, value in {**control, "Description": "stand-in"}.items()]
    (tree / "DEBIAN/control").write_text("".join(lines))
    # What a new release of Docker's own package does: it is not asked about files of Debian's.
    (tree / "DEBIAN/conffiles").unlink(missing_ok=True)
    pool = SITE / "pool"
    pool.mkdir(parents=True, exist_ok=True)
    file = pool / f"{name}_{version.rpartition(':')[2]}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(file))
    return file


def entry(file: Path) -> str:
    """Return what the index says of a package."""
    data = file.read_bytes()
    place = file.relative_to(SITE)
    more = f"Filename: {place}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    return run("dpkg-deb", "--field", str(file)).rstrip("\n") + "\n" + more


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        work.chmod(0o755)
        run("apt-get", "download", *DISTRO, cwd=directory)
        index = "\n".join(entry(package(name, work)) for name in PACKAGES)
    binary = DIST / "stable/binary-amd64"
    binary.mkdir(parents=True)
    (binary / "Packages").write_text(index)
    digest = hashlib.sha256(index.encode()).hexdigest()
    place = "stable/binary-amd64/Packages"
    (DIST / "Release").write_text(
        "Origin: Docker\nSuite: bookworm\nCodename: bookworm\nComponents: stable\nArchitectures: amd64\n"
        "Date: Thu, 01 Oct 2026 00:00:00 UTC\n"
        f"SHA256:\n {digest} {len(index.encode())} {place}\n"
    )
    home = TOP / "gnupg"
    home.mkdir(mode=0o700)
    os.environ["GNUPGHOME"] = str(home)
    run("gpg", "--batch", "--passphrase", "", "--quick-gen-key", "the lab", "rsa2048", "sign", "never")
    run("gpg", "--batch", "--clearsign", "-o", str(DIST / "InRelease"), str(DIST / "Release"))
    (SITE / "gpg").write_text(run("gpg", "--armor", "--export"))
    keys = run("gpg", "--with-colons", "--fingerprint").splitlines()
    fingerprint = next(line.split(":")[9] for line in keys if line.startswith("fpr:"))
    # Last: with this file the mirror is whole.
    (TOP / "fingerprint").write_text(fingerprint)


main()
