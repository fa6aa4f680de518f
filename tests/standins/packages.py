# SPDX-License-Identifier: GPL-3.0-or-later
"""Build packages whose names and behaviour are the vendors'."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping

# Where the stand-ins lie on a host: tests/standins below it.
LIBRARY = "/usr/local/lib/standin"
# As the text of a package's file: the public key that signs the repository, as gpg's own form in a .gpg.
KEY = "@KEY@"
TOOL = f"{LIBRARY}/tests/standins/tool.py"


@dataclass(frozen=True)
class Package:
    """A package: ``files`` is path to text; one whose text begins with ``#!`` can be executed.

    The scripts are shell without their first line. ``relations`` are more fields of a control file (Conflicts,
    Provides, Replaces, Breaks). ``unpack`` are packages of Debian's that are in it, scripts and all, in Options.work.
    ``size`` is how many bytes it fills beside its files, in the file ``filler``.
    """

    name: str
    version: str
    depends: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    postinst: str = ""
    prerm: str = ""
    postrm: str = ""
    relations: Mapping[str, str] = field(default_factory=dict)
    architecture: str = "amd64"
    unpack: tuple[Path, ...] = ()
    size: int = 0
    filler: str = "usr/share/doc/filler"

    @property
    def file(self) -> str:
        """The name of its file in an apt repository."""
        return f"{self.name}_{self.version.rpartition(':')[2]}_{self.architecture}.deb"


def stub(tool: str) -> str:
    """Return the text of a program that is one of the stand-in's tools."""
    return f'#!/bin/sh\nexec /usr/bin/python3 {TOOL} {tool} "$@"\n'


def unit(command: str, description: str = "stand-in") -> str:
    """Return the text of a service that runs a command."""
    return f"[Unit]\nDescription={description}\n[Service]\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n"


def dkms_conf(name: str, version: str, modules: Mapping[str, str], **more: str) -> str:
    """Return a dkms.conf. ``modules`` are names and, for each, the modules that it needs, with commas between.

    ``more`` is what modinfo shall say beside: MODULE_VERSION where it is not the package's, LICENSE.
    """
    lines = [f'PACKAGE_NAME="{name}"', f'PACKAGE_VERSION="{version}"', 'AUTOINSTALL="yes"']
    for number, (module, needs) in enumerate(modules.items()):
        lines += [f'BUILT_MODULE_NAME[{number}]="{module}"', f'BUILT_MODULE_DEPENDS[{number}]="{needs}"']
    return "".join(f"{line}\n" for line in [*lines, *(f'{key}="{value}"' for key, value in more.items())])


def dkms_package(
    package: str, revision: str, name: str, version: str, modules: Mapping[str, str], depends: str = "dkms", **more: str
) -> Package:
    """Return a package that has DKMS build its modules, as the vendors' do: for every kernel that has headers.

    ``revision`` is the whole version of the package, ``version`` that of the source below /usr/src. ``more`` goes into
    dkms.conf.
    """
    return Package(
        package,
        revision,
        depends,
        files={f"usr/src/{name}-{version}/dkms.conf": dkms_conf(name, version, modules, **more)},
        size=2**16,
        filler=f"usr/src/{name}-{version}/binary.o",
        # RPM's scripts are given a number: how many versions of the package there are then.
        postinst=f'case "$1" in configure|[12]) dkms standin-install {name} {version} ;; esac\n',
        prerm=f'case "$1" in remove|upgrade|deconfigure|[01]) dkms remove {name}/{version} --all || true ;; esac\n',
    )


def build_deb(package: Package, directory: Path, work: Path) -> Path:
    """Build a .deb into a directory and return its file."""
    tree = work / package.file
    control = tree / "DEBIAN"
    control.mkdir(parents=True)
    tree.chmod(0o755)
    for part in reversed(package.unpack):
        # The scripts of the first one are the package's.
        shutil.rmtree(control)
        subprocess.run(["dpkg-deb", "--raw-extract", str(part), str(tree)], check=True, capture_output=True)
    # What a new release of a package does: it is not asked about files of another one's.
    (control / "conffiles").unlink(missing_ok=True)
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": package.architecture,
        "Maintainer": "the lab <lab@example.org>",
        **({"Depends": package.depends} if package.depends else {}),
        **package.relations,
        "Description": "stand-in",
    }
    (control / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    for name in ("postinst", "prerm", "postrm"):
        text = getattr(package, name)
        if text:
            write(control / name, f"#!/bin/sh\nset -e\n{text}")
    for path, text in package.files.items():
        write(tree / path, text)
    if package.size:
        filler = tree / package.filler
        filler.parent.mkdir(parents=True, exist_ok=True)
        filler.write_bytes(bytes(package.size))
    file = directory / package.file
    directory.mkdir(parents=True, exist_ok=True)
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(file)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(tree)
    return file


def write(path: Path, content: str | bytes) -> None:
    """Write a file; it can be executed where it begins as a script does."""
    data = content if isinstance(content, bytes) else content.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o755 if data.startswith(b"#!") else 0o644)
