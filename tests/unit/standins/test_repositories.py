# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories that are signed and whole, and those that are not, because a test wants that."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess

import pytest

from tests.standins.build import main
from tests.standins.packages import KEY, Package
from tests.standins.repositories import MISSING, Mirror, Repository, can_build_rpm
from tests.standins.vendor import Options, vendor

pytestmark = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("dpkg-deb", "gpg", "gpgconf")), reason="dpkg-deb or gpg is not installed"
)
OLD, NEW = "580.95.05", "580.159.04"
SITE = "debian12/x86_64"


@pytest.fixture
def top(tmp_path):
    """A directory for a mirror; the agent of its keys ends with the test."""
    # gpg's sockets need a short path.
    short = tmp_path / "m"
    yield short
    for home in short.parent.glob("*/gnupg"):
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)


def nvidia(top, *options):
    """Make a mirror of NVIDIA's as the command line does."""
    words = ["--version", OLD, "--version", NEW, "--kernel", "6.1.0-40-amd64", *options]
    main(["mirror", "nvidia", str(top), *words])
    return top / SITE


def stanzas(site, index="Packages"):
    """Return what an index says of each package and version."""
    found = {}
    for block in (site / index).read_text().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found[fields["Package"], fields["Version"]] = fields
    return found


def verify(file, key, home):
    """Let gpg verify a signed file with one key alone; return whether it is good."""
    home.mkdir(mode=0o700)
    environment = {**os.environ, "GNUPGHOME": str(home)}
    subprocess.run(["gpg", "--batch", "--import", str(key)], check=True, capture_output=True, env=environment)
    done = subprocess.run(["gpg", "--batch", "--verify", str(file)], check=False, capture_output=True, env=environment)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    return done.returncode == 0


def test_versions_lie_side_by_side_and_every_file_is_what_the_index_says(top):
    site = nvidia(top)
    found = stanzas(site)
    for name in ("nvidia-open", "nvidia-kernel-open-dkms", "nvidia-fabricmanager", "nvidia-persistenced"):
        assert {version for package, version in found if package == name} == {f"{OLD}-1", f"{NEW}-1"}
    assert {"linux-headers-6.1.0-40-amd64", "dkms", "nvidia-driver-pinning-580"} <= {name for name, _version in found}
    for fields in found.values():
        data = (site / fields["Filename"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (int(fields["Size"]), fields["SHA256"])
    index = (site / "Packages").read_bytes()
    assert f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n" in (site / "InRelease").read_text()


def test_a_rotated_key_is_not_the_published_one_until_it_is_published(top, tmp_path):
    site = nvidia(top)
    key = site / "3bf863cc.pub"
    assert verify(site / "InRelease", key, tmp_path / "a")
    nvidia(top, "--rotate-key")
    assert not verify(site / "InRelease", key, tmp_path / "b")
    nvidia(top, "--publish-key")
    assert verify(site / "InRelease", key, tmp_path / "c")


def test_a_version_or_a_package_that_is_taken_out_is_gone_from_index_and_directory(top):
    nvidia(top)
    site = nvidia(top, "--forget", NEW, "--forget", "nvlsm")
    assert {version for _name, version in stanzas(site) if version.startswith("580")} == {f"{OLD}-1"}
    assert not list(site.glob(f"*_{NEW}-1_*.deb")) + list(site.glob("nvlsm*"))
    assert ("nvidia-open", f"{NEW}-1") in stanzas(nvidia(top))


def test_a_package_that_is_missing_is_announced_and_one_that_is_corrupt_has_other_bytes(top):
    site = nvidia(top, "--missing", "dkms", "--corrupt", "nvidia-open")
    found = stanzas(site)
    assert not (site / found["dkms", "99"]["Filename"]).exists()
    fields = found["nvidia-open", f"{NEW}-1"]
    data = (site / fields["Filename"]).read_bytes()
    assert len(data) == int(fields["Size"])
    assert hashlib.sha256(data).hexdigest() != fields["SHA256"]
    # The next time all is well again.
    mended = stanzas(nvidia(top))["nvidia-open", f"{NEW}-1"]
    whole = (site / mended["Filename"]).read_bytes()
    assert hashlib.sha256(whole).hexdigest() == mended["SHA256"]
    assert whole != data
    subprocess.run(["dpkg-deb", "--contents", str(site / mended["Filename"])], check=True, capture_output=True)


def test_a_suite_has_components_and_a_pool_and_a_package_may_bring_the_key(top, tmp_path):
    keyring = Package("vendor-keyring", "1.0", files={"usr/share/keyrings/vendor.gpg": KEY, "usr/share/a.asc": KEY})
    repository = Repository("apt", (keyring,), "keys/vendor.gpg", "Vendor", "noble", "main", armored=False)
    mirror = Mirror(top)
    fingerprint = mirror.publish([repository])
    dist = top / "apt/dists/noble"
    assert "Components: main\n" in (dist / "InRelease").read_text()
    fields = stanzas(dist, "main/binary-amd64/Packages")["vendor-keyring", "1.0"]
    out = tmp_path / "unpacked"
    subprocess.run(["dpkg-deb", "-x", str(top / "apt" / fields["Filename"]), str(out)], check=True)
    binary = (out / "usr/share/keyrings/vendor.gpg").read_bytes()
    assert binary == (top / "keys/vendor.gpg").read_bytes()
    assert not binary.startswith(b"-----")
    assert (out / "usr/share/a.asc").read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK")
    assert (top / "fingerprint").read_text() == fingerprint
    assert verify(dist / "InRelease", top / "keys/vendor.gpg", tmp_path / "v")


def test_scripts_are_in_the_package_and_run_as_programs(top, tmp_path):
    site = nvidia(top)
    file = site / stanzas(site)["nvidia-kernel-open-dkms", f"{NEW}-1"]["Filename"]
    subprocess.run(["dpkg-deb", "-R", str(file), str(tmp_path / "raw")], check=True)
    postinst = tmp_path / "raw/DEBIAN/postinst"
    assert os.access(postinst, os.X_OK)
    assert f"dkms standin-install nvidia {NEW}" in postinst.read_text()
    assert f'PACKAGE_VERSION="{NEW}"' in (tmp_path / f"raw/usr/src/nvidia-{NEW}/dkms.conf").read_text()


@pytest.mark.skipif(not can_build_rpm(), reason=MISSING)
def test_rpms_are_signed_and_in_a_repository(top):
    main(["mirror", "nvidia", str(top), "--distribution", "rhel9", "--version", NEW])
    site = top / "rhel9/x86_64"
    assert (site / "repodata/repomd.xml").exists()
    (file,) = site.glob(f"**/nvidia-driver-cuda-{NEW}-1.el9*.rpm")
    said = subprocess.run(["rpm", "-qpi", str(file)], check=True, capture_output=True, text=True).stdout
    assert "Signature   : (none)" not in said


@pytest.mark.parametrize(
    ("distribution", "version", "expected"),
    [
        ("debian13", NEW, {"nvidia-kernel-open-dkms", "nvidia-kernel-dkms"}),
        ("ubuntu2404", NEW, {"nvidia-dkms-580-open", "nvidia-dkms-580"}),
        ("ubuntu2404", "595.91.07", {"nvidia-dkms-open", "nvidia-dkms"}),
        ("rhel9", NEW, {"kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"}),
    ],
)
def test_kernel_packages_are_called_as_the_role_calls_them(distribution, version, expected):
    from ansible_collections.baremetal.inference.plugins.module_utils.cuda.packages import is_kernel

    (repository,) = vendor("nvidia").repositories(Options(distribution, versions=(version,)))
    names = {package.name for package in repository.packages}
    assert {name for name in names if is_kernel(name)} == expected
