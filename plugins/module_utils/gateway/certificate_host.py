# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates of gateways: those that a site brings are looked at, others are made by a small CA of the site's own.

All is done by the program openssl, on the controller.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import re
import secrets
import ssl
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Sequence

DAY = 86400
CA_DAYS = 3650
# Clients take no certificate that lasts longer.
MOST_DAYS = 825
KEY_KIND = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
CA_EXTENSIONS = "basicConstraints=critical,CA:TRUE,pathlen:0", "keyUsage=critical,keyCertSign,cRLSign"


class CertificateError(Exception):
    """A certificate or key cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class Certificate:
    """What a certificate says: times in seconds since 1970, names and addresses, and its public key."""

    not_before: float
    not_after: float
    names: frozenset[str]
    public_key: str

    def days_left(self, now: float) -> int:
        """Return the whole days that it still lasts, below 0 once it has run out."""
        return int((self.not_after - now) // DAY)


@dataclass
class Outcome:
    """What there is, or would be; ``reason`` says why a new certificate was needed."""

    certificate: str
    key: str
    not_after: str = ""
    reason: str = ""
    warnings: list[str] = field(default_factory=list)


def given(certificate: str, key: str, names: Sequence[str], renew_days: int, now: float) -> Outcome:
    """Look at the site's own certificate. Raises CertificateError where clients would refuse it."""
    found = read_certificate(certificate)
    check_key(key)
    if found.not_after <= now:
        raise CertificateError(f"{certificate} has run out on {day(found.not_after)} (it is {day(now)}); get a new one")
    if found.not_before > now:
        raise CertificateError(
            f"{certificate} holds from {day(found.not_before)} on, and it is {day(now)}; check the clock"
        )
    if found.public_key != public_key(key):
        raise CertificateError(f"{key} is not the key of {certificate}; name the two that belong together")
    outcome = Outcome(certificate, key, day(found.not_after))
    if found.days_left(now) < renew_days:
        outcome.warnings.append(f"{certificate} runs out on {day(found.not_after)}, in {found.days_left(now)} days")
    missing = [name for name in sorted(_plain(names)) if not covered(name, found.names)]
    if missing and len(missing) == len(_plain(names)):
        outcome.warnings.append(f"{certificate} has none of the names of this gateway: {', '.join(missing)}")
    return outcome


def own(directory: str, host: str, names: Sequence[str], days: int, renew_days: int, check: bool) -> Outcome:
    """Have a certificate for ``names`` from the site's own CA in ``directory``, both made where they are missing."""
    outcome = Outcome(f"{directory}/{host}.crt", f"{directory}/{host}.key")
    authority, authority_key = f"{directory}/ca.crt", f"{directory}/ca.key"
    if check:
        outcome.reason = _reason(directory, outcome, names, renew_days)
        return _dated(outcome)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    # Gateways are set up side by side, and the CA is one.
    with _locked(f"{directory}/.lock"):
        outcome.reason = _reason(directory, outcome, names, renew_days)
        if outcome.reason and not os.path.exists(authority):
            _make_authority(authority, authority_key)
        if outcome.reason:
            left = read_certificate(authority).days_left(time.time())
            _issue(directory, outcome, names, min(days, MOST_DAYS, left))
    return _dated(outcome)


def _dated(outcome: Outcome) -> Outcome:
    if os.path.exists(outcome.certificate):
        outcome.not_after = day(read_certificate(outcome.certificate).not_after)
    return outcome


def _reason(directory: str, outcome: Outcome, names: Sequence[str], renew_days: int) -> str:
    """Return why a certificate has to be issued, nothing where the present one will do."""
    authority, authority_key = f"{directory}/ca.crt", f"{directory}/ca.key"
    if not os.path.exists(authority):
        if os.path.exists(authority_key):
            raise CertificateError(
                f"{authority} is missing beside its key; bring it back, or move {authority_key} away"
            )
        return "there is no CA yet"
    left = read_certificate(authority).days_left(time.time())
    if left < renew_days:
        raise CertificateError(
            f"{authority} runs out on {day(read_certificate(authority).not_after)}, in {left} days; move {directory} "
            "away to have a new CA made, and give its ca.crt to the clients"
        )
    check_key(authority_key)
    if public_key(authority_key) != read_certificate(authority).public_key:
        raise CertificateError(
            f"{authority_key} is not the key of {authority}; bring back the two that belong together"
        )
    if not (os.path.exists(outcome.certificate) and os.path.exists(outcome.key)):
        return "there is none yet"
    found = read_certificate(outcome.certificate)
    if found.days_left(time.time()) < renew_days:
        return f"it runs out on {day(found.not_after)}"
    if found.names != _plain(names):
        return "its names are others"
    if public_key(outcome.key) != found.public_key:
        return "its key is another"
    return "" if _signed(authority, outcome.certificate) else "it is not of this CA"


def _make_authority(certificate: str, key: str) -> None:
    words = ["req", "-x509", *KEY_KIND, "-keyout", key, "-out", certificate, "-days", str(CA_DAYS), "-subj", _subject()]
    for extension in CA_EXTENSIONS:
        words += ["-addext", extension]
    with _private():
        openssl(*words)
    os.chmod(certificate, 0o644)


def _subject() -> str:
    # Of two CAs of a site clients can tell which one is meant.
    return f"/CN=baremetal.inference site CA {secrets.token_hex(4)}"


def _issue(directory: str, outcome: Outcome, names: Sequence[str], days: int) -> None:
    """Make key and certificate beside the present ones, and put them into their places together."""
    with tempfile.TemporaryDirectory(dir=directory) as work, _private():
        key, request, made, extensions = (f"{work}/{name}" for name in ("key", "csr", "crt", "ext"))
        with open(extensions, "w", encoding="ascii") as file:
            file.write(_leaf_extensions(names))
        openssl("req", "-new", *KEY_KIND, "-keyout", key, "-out", request, "-subj", "/CN=gateway")
        signing = [
            "-CA",
            f"{directory}/ca.crt",
            "-CAkey",
            f"{directory}/ca.key",
            "-set_serial",
            f"0x{secrets.token_hex(16)}",
        ]
        openssl("x509", "-req", "-in", request, *signing, "-days", str(days), "-extfile", extensions, "-out", made)
        os.chmod(made, 0o644)
        os.replace(key, outcome.key)
        os.replace(made, outcome.certificate)


def _leaf_extensions(names: Sequence[str]) -> str:
    alternatives = ",".join(f"{'IP' if is_address(name) else 'DNS'}:{name}" for name in names)
    return (
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
        f"subjectAltName={alternatives}\n"
    )


def is_address(name: str) -> bool:
    """Return whether a name is an address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plain(names: Iterable[str]) -> frozenset[str]:
    """Return names with addresses as they are usually written."""
    return frozenset(str(ipaddress.ip_address(name)) if is_address(name) else name for name in names)


def covered(name: str, names: frozenset[str]) -> bool:
    """Return whether a certificate of ``names`` holds for ``name``."""
    return name in names or f"*.{name.partition('.')[2]}" in names


def read_certificate(path: str) -> Certificate:
    """Return what the first certificate of a file says. Raises CertificateError."""
    text = openssl("x509", "-in", path, "-noout", "-startdate", "-enddate", "-ext", "subjectAltName", "-pubkey")
    times = dict(re.findall(r"^(notBefore|notAfter)=(.+)$", text, re.MULTILINE))
    names = re.findall(r"(?:DNS|IP Address):([^,\s]+)", text)
    key = re.search(r"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", text, re.DOTALL)
    if len(times) != 2 or not key:
        raise CertificateError(f"{path}: openssl finds no dates or no key in it; expected a certificate in PEM")
    seconds = {name: ssl.cert_time_to_seconds(value) for name, value in times.items()}
    plain = _plain(names)
    return Certificate(seconds["notBefore"], seconds["notAfter"], plain, key.group(0))


def public_key(path: str) -> str:
    """Return the public half of a private key. Raises CertificateError for one that is encrypted or none."""
    return openssl("pkey", "-in", path, "-pubout", "-passin", "pass:").strip()


def check_key(path: str) -> None:
    """Raise CertificateError for a private key that others can read."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as exc:
        raise CertificateError(f"{path} cannot be read on the controller: {exc.strerror}") from exc
    if mode & 0o007:
        raise CertificateError(f"{path} is open to everybody (mode {mode:04o}); chmod 600 it")


def _signed(authority: str, certificate: str) -> bool:
    try:
        openssl("verify", "-CAfile", authority, certificate)
    except CertificateError:
        return False
    return True


def openssl(*words: str) -> str:
    """Return what openssl prints. Raises CertificateError with its last word."""
    try:
        done = subprocess.run(
            ["openssl", *words], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise CertificateError("the program openssl is not on the controller; install it") from None
    if done.returncode:
        about = words[words.index("-in") + 1] if "-in" in words else words[0]
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise CertificateError(f"{about}: openssl cannot use it: {said[0]}")
    return done.stdout


def day(seconds: float) -> str:
    """Return a time as a date."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


@contextlib.contextmanager
def _private() -> Iterator[None]:
    """Let files that are made belong to their owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
