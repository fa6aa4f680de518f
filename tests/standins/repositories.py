# SPDX-License-Identifier: GPL-3.0-or-later
"""Publish packages in repositories as the vendors do: signed, with several versions side by side, and their faults."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Sequence

from tests.standins.packages import KEY, Package, build_deb

DATE = "Thu, 01 Oct 2026 00:00:00 UTC"
# The last byte of a package that is not what it should be; a whole one ends with a gzip's size or a line's end.
CORRUPT = b"!"
MISSING = "createrepo_c and rpmbuild are not installed"


@dataclass(frozen=True)
class Repository:
    """A repository of a vendor.

    ``path`` is where it is below the mirror's top. Without a ``suite`` it is flat. ``key`` is the file that the signing
    key is published in, below the top too, as text or (``armored`` false) as gpg's own form.
    """

    path: str
    packages: tuple[Package, ...]
    key: str
    origin: str
    suite: str = ""
    component: str = "main"
    armored: bool = True
    is_rpm: bool = False


@dataclass(frozen=True)
class Faults:
    """What is wrong with a repository.

    ``rotate_key``: it is signed with a new key, the published one is still the old. ``publish_key``: the key that signs
    is published. ``missing`` packages are in the index and their files are gone, ``corrupt`` ones have other bytes than
    the index says, ``forget`` are versions (of all packages) and names that the index does not have any more.
    """

    rotate_key: bool = False
    publish_key: bool = False
    missing: tuple[str, ...] = ()
    corrupt: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()


class Mirror:
    """A directory with repositories, to be read as file:// or served."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.gnupg = top / "gnupg"

    def publish(self, repositories: Sequence[Repository], faults: Faults = Faults()) -> str:
        """Write repositories; return the fingerprint of the key that signs them. What is there stays beside them.

        The packages of a repository that is written again are the given ones and no others.
        """
        self.top.mkdir(parents=True, exist_ok=True)
        self._have_key(faults.rotate_key)
        for repository in repositories:
            (self._publish_rpm if repository.is_rpm else self._publish_deb)(repository, faults)
            key = self.top / repository.key
            if faults.publish_key or not key.exists():
                key.parent.mkdir(parents=True, exist_ok=True)
                key.write_bytes(self._public_key(repository.armored))
        (self.top / "fingerprint").write_text(self.fingerprint())
        return self.fingerprint()

    def fingerprint(self) -> str:
        """Return the whole fingerprint of the key that signs: the one that was made last."""
        return (self.gnupg / "signs").read_text()

    def _public_key(self, armored: bool) -> bytes:
        return self._gpg("--export", *(["--armor"] if armored else []), self.fingerprint())

    def _with_key(self, package: Package) -> Package:
        """Return a package that brings the public key, where it wants to."""
        if KEY not in package.files.values():
            return package
        files = {
            path: self._public_key(not path.endswith(".gpg")) if content == KEY else content
            for path, content in package.files.items()
        }
        return replace(package, files=files)

    def _have_key(self, another: bool) -> None:
        if (self.gnupg / "signs").exists() and not another:
            return
        self.gnupg.mkdir(mode=0o700, exist_ok=True)
        before = set(self._fingerprints())
        name = f"the lab {len(before) + 1}"
        self._gpg("--passphrase", "", "--quick-gen-key", name, "ed25519", "sign", "never")
        (made,) = set(self._fingerprints()) - before
        (self.gnupg / "signs").write_text(made)

    def _fingerprints(self) -> list[str]:
        lines = self._gpg("--with-colons", "--fingerprint").decode().splitlines()
        return [line.split(":")[9] for line in lines if line.startswith("fpr:")]

    def _gpg(self, *words: str) -> bytes:
        environment = {**os.environ, "GNUPGHOME": str(self.gnupg)}
        command = ["gpg", "--batch", "--no-tty", "--pinentry-mode", "loopback", *words]
        return subprocess.run(command, check=True, capture_output=True, env=environment).stdout

    def _publish_deb(self, repository: Repository, faults: Faults) -> None:
        site = self.top / repository.path
        pool = site / "pool" if repository.suite else site
        entries = []
        with tempfile.TemporaryDirectory() as work:
            for package in {each.file: each for each in repository.packages}.values():
                if package.name in faults.forget or _upstream(package.version) in faults.forget:
                    (pool / package.file).unlink(missing_ok=True)
                    continue
                # What is there stays there: a rebuilt one would have other bytes than a host may have in its cache.
                file = pool / package.file
                if not file.exists() or _is_corrupt(file):
                    file = build_deb(self._with_key(package), pool, Path(work))
                entries.append(_deb_entry(file, site))
                if package.name in faults.missing:
                    file.unlink()
                elif package.name in faults.corrupt:
                    file.write_bytes(file.read_bytes()[:-1] + CORRUPT)
        index = "\n".join(entries).encode()
        place = f"{repository.component}/binary-amd64/Packages" if repository.suite else "Packages"
        dist = site / "dists" / repository.suite if repository.suite else site
        (dist / place).parent.mkdir(parents=True, exist_ok=True)
        (dist / place).write_bytes(index)
        words = {"Origin": repository.origin, "Label": repository.origin, "Date": DATE}
        if repository.suite:
            words |= {"Suite": repository.suite, "Codename": repository.suite, "Components": repository.component}
            words["Architectures"] = "amd64"
        digest = f" {hashlib.sha256(index).hexdigest()} {len(index)} {place}\n"
        release = dist / "Release"
        release.write_text("".join(f"{key}: {value}\n" for key, value in words.items()) + f"SHA256:\n{digest}")
        signed = ["--local-user", self.fingerprint(), "--yes", "--clearsign", "-o", str(dist / "InRelease")]
        self._gpg(*signed, str(release))

    def _publish_rpm(self, repository: Repository, faults: Faults) -> None:
        if not can_build_rpm():
            raise SystemExit(MISSING)
        from tests.standins.rpm import build_rpm, sign_rpm

        site = self.top / repository.path
        shutil.rmtree(site, ignore_errors=True)
        site.mkdir(parents=True)
        built = []
        with tempfile.TemporaryDirectory() as work:
            for package in {each.file: each for each in repository.packages}.values():
                if package.name not in faults.forget and _upstream(package.version) not in faults.forget:
                    built.append((package.name, build_rpm(self._with_key(package), site, Path(work))))
        for _name, file in built:
            sign_rpm(file, self.gnupg, self.fingerprint())
        subprocess.run(["createrepo_c", "--quiet", str(site)], check=True, capture_output=True)
        for name, file in built:
            if name in faults.missing:
                file.unlink()
            elif name in faults.corrupt:
                file.write_bytes(file.read_bytes()[:-1] + CORRUPT)


def can_build_rpm() -> bool:
    """Return whether the tools of RPM are on this machine."""
    return all(shutil.which(tool) for tool in ("createrepo_c", "rpmbuild", "rpmsign"))


def _is_corrupt(file: Path) -> bool:
    return file.read_bytes().endswith(CORRUPT)


def _upstream(version: str) -> str:
    return version.rpartition(":")[2].partition("-")[0]


def _deb_entry(file: Path, site: Path) -> str:
    """Return what the index says of a package."""
    data = file.read_bytes()
    control = subprocess.run(["dpkg-deb", "--field", str(file)], check=True, capture_output=True, text=True).stdout
    place = file.relative_to(site)
    more = f"Filename: ./{place}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    return control.rstrip("\n") + "\n" + more
