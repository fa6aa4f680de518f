# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the signature of a carried directory with gpgv, or with sqv where a distribution has only that."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from typing import Iterable

from ..common.files_host import MOST_TEXT, bytes_of, sha256_of, text_of
from . import bill, bundle, checksums
from .bundle import AGAIN, BundleError
from .signature import Verdict, judge_gpgv, judge_sqv, read_keyring

_SECONDS = 60
_PROGRAMS = ("gpgv", "sqv")
# Also where a user's PATH lacks the system's directories.
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def check_signature(root: str, keyring: bytes) -> dict[str, str]:
    """Return the signed sha256 of each path. Raises BundleError, also for an unsigned directory.

    The text that is returned is the one that was verified: it is read once.
    """
    path, signature = os.path.join(root, checksums.NAME), os.path.join(root, checksums.SIGNATURE)
    keys = read_keyring(keyring, "keyring")
    for needed in (path, signature):
        if not os.path.isfile(needed):
            raise BundleError(
                f"{needed}: not found, and a keyring was given, so only a signed disk is accepted; sign it where it "
                f"was filled: gpg --armor --detach-sign {checksums.NAME}"
            )
    # Nobody has checked them yet, so a larger one is not held in memory: its signature does not count.
    text = bytes_of(path, MOST_TEXT)
    verdict = _verify(keys, bytes_of(signature, MOST_TEXT), text)
    if verdict.reason:
        raise BundleError(f"{signature}: the signature does not count: {verdict.reason}; nothing was taken from {root}")
    return checksums.parse_checksums(text.decode("utf-8", "replace"), path)


def _verify(keys: bytes, signature: bytes, text: bytes) -> Verdict:
    program = next((found for name in _PROGRAMS if (found := shutil.which(name, path=_PATH))), "")
    if not program:
        raise BundleError("neither gpgv nor sqv is installed here, and a keyring was given; install the package gpgv")
    with tempfile.TemporaryDirectory(prefix="mirror-signature-") as directory:
        names = {"keys.gpg": keys, "text.asc": signature, "text": text}
        for name, data in names.items():
            with open(os.path.join(directory, name), "wb") as file:
                file.write(data)
        where = [os.path.join(directory, name) for name in names]
        status = ["--status-fd", "1", "--weak-digest", "SHA1"] if program.endswith("gpgv") else []
        argv = [program, *status, "--keyring", *where]
        environment = {"PATH": _PATH, "LC_ALL": "C", "HOME": directory, "GNUPGHOME": directory}
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    output, errors = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    if program.endswith("gpgv"):
        return judge_gpgv(output, done.returncode != 0)
    return judge_sqv(output, done.returncode != 0, errors)


def digests_of_documents(root: str, signed: Iterable[str]) -> dict[str, str]:
    """Return the sha256 of the signed documents at the top and notes of fills, empty for one that is missing."""
    found = {}
    for name in (bundle.NAME, bill.NAME, *filter(checksums.is_note, signed)):
        path = os.path.join(root, name)
        found[name] = sha256_of(path) if os.path.isfile(path) else ""
    return found


def check_age(root: str, record: str) -> int:
    """Return when the signed content was last changed. Raises BundleError if newer content was accepted here before.

    An older disk with a good signature brings back what a newer one has replaced. ``record`` is the file that says what
    was accepted.
    """
    written = bill.written_at(text_of(os.path.join(root, bill.NAME)))
    if written is None:
        raise BundleError(f"{os.path.join(root, bill.NAME)}: it does not say when the content was changed; {AGAIN}")
    accepted = text_of(record).strip()
    if accepted.isdecimal() and written < int(accepted[:12]):
        raise BundleError(
            f"{root}: its signed content is of {format_time(written)}, and this host has accepted content of "
            f"{format_time(int(accepted[:12]))}; take the newer disk, or remove {record} to go back to the older one"
        )
    return written


def format_time(seconds: int) -> str:
    return time.strftime(bill.TIME, time.gmtime(seconds))
