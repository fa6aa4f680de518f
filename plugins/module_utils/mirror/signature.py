# SPDX-License-Identifier: GPL-3.0-or-later
"""Keyrings of OpenPGP, and what gpgv reports about a signature."""

import base64
import binascii
from typing import NamedTuple

from .bundle import BundleError

_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_END = "-----END PGP PUBLIC KEY BLOCK-----"
_STATUS = "[GNUPG:] "
# What gpgv reports of a signature that must not count, although its exit status may be 0.
_BAD = {
    "BADSIG": "the file was changed after it was signed, or the signature is of another file",
    "ERRSIG": "the keyring has no key of it, or its algorithm is not supported",
    "EXPKEYSIG": "its key has expired",
    "EXPSIG": "it has expired",
    "NO_PUBKEY": "the keyring has no key of it",
    "REVKEYSIG": "its key was revoked",
}


class Verdict(NamedTuple):
    """The fingerprint of the key that signed, or why the signature does not count."""

    fingerprint: str
    reason: str


def read_keyring(data: bytes, where: str) -> bytes:
    """Return public keys as gpgv reads them, of an export with ``gpg --export``, with ``--armor`` or without.

    Raises BundleError for anything else; a secret key is named.
    """
    if b"PGP PRIVATE KEY BLOCK" in data or data[:1] in (b"\x94", b"\x95", b"\xc5"):
        raise BundleError(f"{where}: it holds a secret key, expected public keys only: gpg --export KEY > FILE")
    if _BEGIN.encode() in data:
        data = b"".join(map(_unarmour, data.decode("ascii", "replace").split(_BEGIN)[1:]))
    # A packet of a public key: tag 6, in the old format or in the new one.
    if data[:1] not in (b"\x98", b"\x99", b"\x9a", b"\xc6"):
        raise BundleError(f"{where}: not a keyring of OpenPGP; expected public keys: gpg --export KEY > FILE")
    return data


def _unarmour(block: str) -> bytes:
    """Return the bytes of a block: after its headers and an empty line, up to its checksum."""
    lines = [line.strip() for line in block.partition(_END)[0].splitlines()[1:]]
    body = lines[lines.index("") + 1 :] if "" in lines else lines
    try:
        return base64.b64decode("".join(line for line in body if not line.startswith("=")), validate=True)
    except binascii.Error:
        return b""


def judge_gpgv(status: str, failed: bool) -> Verdict:
    """Return the verdict on the lines of ``gpgv --status-fd``; ``failed`` is whether its exit status was not 0.

    Every signature of the file must be good: one that is not could be the only one that counts elsewhere.
    """
    words = [line[len(_STATUS) :].split() for line in status.splitlines() if line.startswith(_STATUS)]
    reasons = [_BAD[entry[0]] for entry in words if entry and entry[0] in _BAD]
    signers = [entry[1] for entry in words if len(entry) > 1 and entry[0] == "VALIDSIG"]
    if reasons:
        return Verdict("", reasons[-1])
    if failed or not signers:
        return Verdict("", "it is not a signature")
    return Verdict(signers[0], "")


def judge_sqv(output: str, failed: bool, errors: str) -> Verdict:
    """Return the verdict on what sqv prints: the fingerprint of each key that signed."""
    signers = output.split()
    if failed or not signers:
        return Verdict("", " ".join(errors.split())[-300:] or "it is not a signature of a key in the keyring")
    return Verdict(signers[0], "")
