# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib

import pytest

from tests.fakes.wheelhouse import run_module, served

BODY = b"\x04" + b"k" * 100
KEY = bytes([0x99]) + len(BODY).to_bytes(2, "big") + BODY
OTHER = KEY.replace(b"k", b"o")


def fingerprint(packet):
    return hashlib.sha1(packet).hexdigest().upper()


@pytest.fixture
def vendor(tmp_path):
    directory = tmp_path / "vendor"
    directory.mkdir()
    (directory / "gpg").write_bytes(KEY)
    with served(directory) as (url, asked):
        yield directory, f"{url}/gpg", asked


def install(url, path, packet=KEY, **more):
    return run_module("container_runtime_key", url=url, path=str(path), fingerprints=[fingerprint(packet)], **more)


def test_the_key_is_installed_in_armour_and_once(tmp_path, vendor):
    _directory, url, asked = vendor
    path = tmp_path / "keyrings/docker.asc"
    result = install(url, path)
    assert result["changed"], result
    assert result["diff"]["after"] == f"{fingerprint(KEY)}\n"
    assert path.read_bytes().startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----")
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["docker.asc"]
    assert len(asked) == 1
    assert not install(url, path)["changed"]
    assert len(asked) == 1


def test_check_mode_fetches_and_writes_nothing(tmp_path, vendor):
    _directory, url, asked = vendor
    path = tmp_path / "docker.asc"
    assert install(url, path, _ansible_check_mode=True)["changed"]
    assert len(asked) == 1
    assert not path.exists()


@pytest.mark.parametrize(
    ("served_bytes", "message"),
    [
        (OTHER, f"found the key {fingerprint(OTHER)}, expected {fingerprint(KEY)}; nothing was installed"),
        (KEY + OTHER, f"expected {fingerprint(KEY)}; nothing was installed"),
        (KEY[:-3], "found a truncated key, expected the key"),
        (b"<html>sign in</html>", "found no OpenPGP public key, expected the key"),
    ],
    ids=["rotated", "one more", "cut off", "no key"],
)
def test_another_key_is_never_trusted(tmp_path, vendor, served_bytes, message):
    directory, url, _asked = vendor
    (directory / "gpg").write_bytes(served_bytes)
    path = tmp_path / "docker.asc"
    path.write_bytes(b"what was there")
    result = install(url, path)
    assert result["failed"], result
    assert message in result["msg"]
    assert path.read_bytes() == b"what was there"


def test_a_key_that_cannot_be_had_names_the_address(tmp_path, vendor):
    _directory, url, _asked = vendor
    message = install(f"{url}.gone", tmp_path / "docker.asc")["msg"]
    assert message.startswith(f"the key at {url}.gone cannot be downloaded: HTTP Error 404")
    assert message.endswith("or name a mirror of the site (container_runtime_source: mirror)")
