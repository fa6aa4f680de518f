# SPDX-License-Identifier: GPL-3.0-or-later
"""Build an RPM, where rpmbuild is on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.standins.packages import Package, write

SCRIPTS = {"postinst": "%post", "prerm": "%preun", "postrm": "%postun"}


def build_rpm(package: Package, directory: Path, work: Path) -> Path:
    """Build an RPM into a directory and return its file."""
    tree = work / f"{package.name}-{package.version.replace(':', '_')}"
    spec = tree / "package.spec"
    files = tree / "files"
    files.mkdir(parents=True)
    for path, text in package.files.items():
        write(files / path, text)
    spec.write_text(spec_of(package, files))
    name = "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"
    macros = {"_topdir": f"{tree}/top", "_rpmdir": str(directory), "_build_name_fmt": name}
    define = [word for macro, value in macros.items() for word in ("--define", f"{macro} {value}")]
    subprocess.run(
        ["rpmbuild", "-bb", "--quiet", "--target", "x86_64", *define, str(spec)], check=True, capture_output=True
    )
    (built,) = directory.glob(f"{package.name}-{package.version.rpartition(':')[2]}*.rpm")
    return built


def spec_of(package: Package, files: Path) -> str:
    """Return the .spec of a package."""
    epoch, _colon, rest = package.version.rpartition(":")
    version, _dash, release = rest.partition("-")
    head = {"Name": package.name, "Version": version, "Release": release or "1", "Summary": "stand-in"}
    head |= {"License": "none", **({"Epoch": epoch} if epoch else {})}
    head |= {"Requires": package.depends} if package.depends else {}
    scripts = "".join(f"{word}\n{getattr(package, name)}" for name, word in SCRIPTS.items() if getattr(package, name))
    lines = "".join(f"{key}: {value}\n" for key, value in head.items())
    listed = "".join(f"/{path}\n" for path in package.files)
    return f"{lines}%description\nstand-in\n%install\ncp -a {files}/. %{{buildroot}}/\n{scripts}%files\n{listed}"


def sign_rpm(file: Path, gnupg: Path, fingerprint: str) -> None:
    """Sign an RPM with a key of this directory."""
    environment = {**os.environ, "GNUPGHOME": str(gnupg)}
    # Debian 12's rpm looks for a gpg2 that Debian does not have.
    macros = {"_gpg_name": fingerprint, "__gpg": shutil.which("gpg") or "gpg"}
    define = [word for macro, value in macros.items() for word in ("--define", f"{macro} {value}")]
    command = ["rpmsign", *define, "--addsign", str(file)]
    subprocess.run(command, check=True, capture_output=True, env=environment)
