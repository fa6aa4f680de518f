# SPDX-License-Identifier: GPL-3.0-or-later
"""Fingerprints of OpenPGP keys, as files of package repositories hold them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Iterator

# The body ends at the next line of dashes, so that a file of beginnings is not searched from each to its end.
_ARMOUR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(?P<body>[^-]*(?:-(?!----)[^-]*)*)-----END PGP PUBLIC KEY BLOCK-----"
)
_PRIMARY = 6


class KeyFileError(ValueError):
    """The bytes are not OpenPGP keys; the message describes what was found."""


def binary(data: bytes) -> bytes:
    """Return keys without their ASCII armour, one after the other; bytes without armour as they are."""
    blocks = [match.group("body") for match in _ARMOUR.finditer(data)]
    if not blocks:
        return data
    return b"".join(_unarmoured(block) for block in blocks)


def armoured(data: bytes) -> bytes:
    """Return keys in ASCII armour, as required in a keyring file that ends in .asc."""
    if _ARMOUR.search(data):
        return data
    text = base64.b64encode(data)
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    begin, end = (b"-----%s PGP PUBLIC KEY BLOCK-----" % word for word in (b"BEGIN", b"END"))
    return b"\n".join([begin, b"", *lines, end, b""])


def _unarmoured(block: bytes) -> bytes:
    lines = block.replace(b"\r", b"").split(b"\n")
    # Headers such as "Version:" end with the first empty line; a line that begins with = is a checksum.
    empty = next((number for number, line in enumerate(lines[1:], 1) if not line.strip()), 0)
    text = b"".join(line.strip() for line in lines[empty:] if not line.startswith(b"="))
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise KeyFileError(f"a key block that is not base64: {exc}") from exc


def fingerprints(data: bytes) -> list[str]:
    """Return the fingerprints of the primary keys (version 4), in capitals. Raises KeyFileError for other bytes."""
    found = [_fingerprint(body) for tag, body in _packets(binary(data)) if tag == _PRIMARY]
    if not found:
        raise KeyFileError("no OpenPGP public key")
    return sorted(set(found))


def _fingerprint(body: bytes) -> str:
    if not body or body[0] != 4:
        raise KeyFileError("a public key of an unsupported version, expected version 4")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324  what they are


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, start, length = _header(data, at)
        if start + length > len(data):
            raise KeyFileError("a truncated key")
        yield tag, data[start : start + length]
        at = start + length


def _header(data: bytes, at: int) -> tuple[int, int, int]:
    """Return tag, start and length of the packet at a place; both formats of RFC 4880, section 4.2."""
    first = data[at]
    if not first & 0x80:
        raise KeyFileError("no OpenPGP public key")
    try:
        if first & 0x40:
            return (first & 0x3F, *_new_length(data, at + 1))
        octets = {0: 1, 1: 2, 2: 4}.get(first & 3)
        if octets is None:
            raise KeyFileError("a key packet without a length")
        length = int.from_bytes(data[at + 1 : at + 1 + octets], "big")
        return (first >> 2) & 0x0F, at + 1 + octets, length
    except IndexError:
        raise KeyFileError("a truncated key") from None


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < 192:
        return at + 1, first
    if first < 224:
        return at + 2, ((first - 192) << 8) + data[at + 1] + 192
    if first == 255:
        return at + 5, int.from_bytes(data[at + 1 : at + 5], "big")
    raise KeyFileError("a key with partial lengths")
