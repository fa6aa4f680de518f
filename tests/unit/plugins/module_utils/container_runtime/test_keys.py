# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.keys import (
    KeyFileError,
    armoured,
    fingerprints,
)


def key(body, new=False, tag=6):
    """Return one OpenPGP packet, with a header of the old or the new format."""
    size = len(body)
    if not new:
        return bytes([0x80 | tag << 2 | 1]) + size.to_bytes(2, "big") + body
    if size < 192:
        return bytes([0xC0 | tag, size]) + body
    if size < 8384:
        return bytes([0xC0 | tag, (size - 192 >> 8) + 192, size - 192 & 255]) + body
    return bytes([0xC0 | tag, 255]) + size.to_bytes(4, "big") + body


def test_a_key_is_known_by_its_fingerprint():
    body = b"\x04" + bytes(range(200))
    expected = hashlib.sha1(b"\x99\x00\xc9" + body).hexdigest().upper()
    assert fingerprints(key(body)) == [expected]


@pytest.mark.parametrize("size", [10, 150, 191, 192, 300, 8383, 9000])
@pytest.mark.parametrize("new", [False, True])
def test_packets_of_every_length(size, new):
    body = b"\x04" + b"x" * (size - 1)
    assert fingerprints(key(body, new) + key(b"user", tag=13)) == fingerprints(key(body))


def test_subkeys_and_users_are_no_keys_of_their_own():
    first, second, subkey = b"\x04one", b"\x04two", b"\x04sub"
    data = key(first) + key(b"me", tag=13) + key(subkey, tag=14) + key(second)
    assert fingerprints(data) == sorted([*fingerprints(key(first)), *fingerprints(key(second))])


def test_armour_is_taken_off_and_put_on():
    data = key(b"\x04" + b"k" * 300)
    text = armoured(data)
    assert text.startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n")
    assert fingerprints(text) == fingerprints(data)
    assert armoured(text) == text
    # As vendors serve them: headers, a checksum, lines that end as on Windows, two blocks in one file.
    dressed = text.replace(b"-----\n\n", b"-----\nVersion: GnuPG v1\n\n", 1).replace(
        b"\n-----END", b"\n=ab12\n-----END"
    )
    assert fingerprints(dressed.replace(b"\n", b"\r\n")) == fingerprints(data)
    other = key(b"\x04other")
    assert fingerprints(dressed + armoured(other)) == sorted([*fingerprints(data), *fingerprints(other)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no OpenPGP public key"),
        (b"<html>Not found</html>", "no OpenPGP public key"),
        (key(b"\x04" + b"k" * 90)[:-1], "truncated"),
        (b"\x99\x01", "truncated"),
        (key(b"\x03old"), "unsupported version"),
        (key(b"user", tag=13), "no OpenPGP public key"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n%%%%\n-----END PGP PUBLIC KEY BLOCK-----", "not base64"),
    ],
)
def test_other_bytes_are_named(data, message):
    with pytest.raises(KeyFileError, match=message):
        fingerprints(data)


def test_a_file_of_beginnings_is_read_in_the_time_of_its_length():
    # As many bytes as a download may have.
    with pytest.raises(KeyFileError):
        fingerprints(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n" * 28_000)
