# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures, with keys that gpg makes and the gpgv of this machine."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.mirror import signature_host
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bundle import BundleError
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.signature_host import (
    check_signature,
    digests_of_documents,
)

from tests.fakes.signer import signer

TEXT = f"{'0' * 64}  bundle.json\n"


@pytest.fixture(scope="module")
def site():
    with signer() as found:
        yield found


@pytest.fixture(scope="module")
def stranger():
    with signer() as found:
        yield found


@pytest.fixture
def disk(tmp_path, site):
    (tmp_path / "SHA256SUMS").write_text(TEXT)
    site.sign(tmp_path / "SHA256SUMS")
    return tmp_path


@pytest.mark.parametrize("armour", [False, True])
def test_a_signature_of_a_key_in_the_keyring(disk, site, armour):
    assert check_signature(str(disk), site.public(armour=armour)) == {"bundle.json": "0" * 64}


def test_one_of_several_keys_is_enough(disk, site, stranger):
    both = stranger.public(armour=True) + site.public(armour=True)
    assert check_signature(str(disk), both) and check_signature(str(disk), stranger.public() + site.public())


def test_a_changed_text_and_a_strange_key_are_refused(disk, site, stranger):
    with pytest.raises(BundleError, match="the keyring has no key of it"):
        check_signature(str(disk), stranger.public())
    (disk / "SHA256SUMS").write_text(TEXT.replace("0", "1"))
    with pytest.raises(BundleError, match="changed after it was signed"):
        check_signature(str(disk), site.public())


def test_anything_but_a_signature_is_refused(disk, site):
    (disk / "SHA256SUMS.asc").write_text("signed, really\n")
    with pytest.raises(BundleError, match="it is not a signature"):
        check_signature(str(disk), site.public())
    # A signed message of the right person that is not about this file.
    (disk / "SHA256SUMS.asc").write_bytes(site.gpg("--clearsign", "-o", "-", stdin=TEXT.encode()))
    with pytest.raises(BundleError, match="does not count"):
        check_signature(str(disk), site.public())


def test_an_expired_or_revoked_key_is_refused(tmp_path):
    (tmp_path / "SHA256SUMS").write_text(TEXT)
    with signer("20200101T120000", expires="1d") as old:
        old.sign(tmp_path / "SHA256SUMS")
        with pytest.raises(BundleError, match="its key has expired"):
            check_signature(str(tmp_path), old.public())
    with signer() as lost:
        lost.sign(tmp_path / "SHA256SUMS")
        assert check_signature(str(tmp_path), lost.public())
        revocation = next((lost.home / "openpgp-revocs.d").glob("*.rev")).read_text().replace(":-----", "-----")
        lost.gpg("--import", stdin=revocation.encode())
        with pytest.raises(BundleError, match="its key was revoked"):
            check_signature(str(tmp_path), lost.public())


@pytest.mark.parametrize("missing", ["SHA256SUMS", "SHA256SUMS.asc"])
def test_an_unsigned_disk_is_named(disk, site, missing):
    (disk / missing).unlink()
    with pytest.raises(BundleError, match=rf"/{missing}: not found, and a keyring was given.*--detach-sign SHA256SUMS"):
        check_signature(str(disk), site.public())


def test_a_host_without_a_program(disk, site, monkeypatch):
    monkeypatch.setattr(signature_host, "_PROGRAMS", ("no-such-program",))
    with pytest.raises(BundleError, match="install the package gpgv"):
        check_signature(str(disk), site.public())


def test_sqv_where_there_is_no_gpgv(disk, site, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/sqv"
    # It takes sqv's words: --keyring KEYS SIGNATURE FILE.
    program.write_text('#!/bin/sh\n[ "$1 $#" = "--keyring 4" ] && grep -q "PGP SIGNATURE" "$3" && echo FINGERPRINT\n')
    program.chmod(0o755)
    monkeypatch.setattr(signature_host, "_PROGRAMS", ("sqv",))
    monkeypatch.setattr(signature_host, "_PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert check_signature(str(disk), site.public())
    (disk / "SHA256SUMS.asc").write_text("nothing\n")
    with pytest.raises(BundleError, match="not a signature of a key in the keyring"):
        check_signature(str(disk), site.public())


def test_documents_that_are_there(tmp_path):
    (tmp_path / "bundle.json").write_text("")
    empty = subprocess.run(["sha256sum", "/dev/null"], check=True, capture_output=True, text=True).stdout.split()[0]
    note = "wheels/.cu130.fetched.json"
    assert digests_of_documents(str(tmp_path), ["bundle.json", "wheels/a.whl", note]) == {
        "bundle.json": empty, "bundle.cdx.json": "", note: "",
    }  # fmt: skip


def test_a_list_without_an_end_is_refused_and_not_held_in_memory(disk, site):
    with open(disk / "SHA256SUMS", "r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(BundleError, match="the signature does not count"):
        check_signature(str(disk), site.public())
