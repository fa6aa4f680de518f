# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the certificate of a gateway, or issue one from a small CA of the site, with the program openssl.

All of it runs on the controller.
"""

from __future__ import annotations

import os
import re
import secrets
import ssl
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from typing import Iterable, Sequence

from ..common.files_host import locked, make_directories, publish
from ..common.ip_addresses import is_ip, read_ip

DAY = 86400
CA_DAYS = 3650
# Clients refuse a certificate that is valid for longer.
MAX_DAYS = 825
# When one of the CA is renewed, and when there is a warning about one of the site.
RENEW_DAYS = 30
KEY_ARGUMENTS = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
AUTHORITY = "baremetal.inference site CA"  # how the subject of each CA begins
CA_EXTENSIONS = "basicConstraints=critical,CA:TRUE,pathlen:0", "keyUsage=critical,keyCertSign,cRLSign"


class CertificateError(Exception):
    """A certificate or key is unusable; the message names the file and what to do."""


@dataclass(frozen=True)
class Certificate:
    """Content of a certificate: times in seconds since 1970, names and addresses, and its public key."""

    not_before: float
    not_after: float
    names: frozenset[str]
    public_key: str

    def days_left(self, now: float) -> int:
        """Return the full days until it expires, below 0 after that."""
        return int((self.not_after - now) // DAY)


@dataclass
class CertificateOutcome:
    """The certificate of a gateway, or the one that would be issued; ``reason`` is why a new one is needed."""

    certificate: str
    key: str
    not_after: str = ""
    reason: str = ""
    warnings: list[str] = field(default_factory=list)


def check_site_certificate(
    certificate: str, key: str, names: Sequence[str], renew_days: int, now: float
) -> CertificateOutcome:
    """Check a certificate of the site. Raises CertificateError when clients would refuse it."""
    found = read_certificate(certificate)
    check_key(key)
    if found.not_after <= now:
        raise CertificateError(f"{certificate} expired on {day(found.not_after)} (today is {day(now)}); get a new one")
    if found.not_before > now:
        raise CertificateError(
            f"{certificate} is valid from {day(found.not_before)} on, and today is {day(now)}; check the clock"
        )
    if found.public_key != public_key(key):
        raise CertificateError(
            f"{key} is not the key of {certificate}; name the certificate and the key that belong together"
        )
    outcome = CertificateOutcome(certificate, key, day(found.not_after))
    if found.days_left(now) < renew_days:
        outcome.warnings.append(f"{certificate} expires on {day(found.not_after)}, in {found.days_left(now)} days")
    missing = [name for name in sorted(_plain(names)) if not covered(name, found.names)]
    if missing and len(missing) == len(_plain(names)):
        outcome.warnings.append(f"{certificate} has none of the names of this gateway: {', '.join(missing)}")
    return outcome


def issue_from_site_ca(
    directory: str, host: str, names: Sequence[str], days: int, renew_days: int, check: bool
) -> CertificateOutcome:
    """Return a certificate for ``names`` from the site's CA in ``directory``; create or renew what is needed.

    Raises CertificateError.
    """
    outcome = CertificateOutcome(f"{directory}/{host}.crt", f"{directory}/{host}.key")
    authority = f"{directory}/ca.crt"
    if check:
        outcome.reason = _reason(directory, outcome, names, renew_days)
        return _dated(outcome)
    make_directories(directory, 0o700)
    # Several gateways are set up in parallel with one CA.
    with locked(f"{directory}/.lock"):
        outcome.reason = _reason(directory, outcome, names, renew_days)
        if outcome.reason and not os.path.exists(authority):
            _create_authority(directory)
        if outcome.reason:
            left = read_certificate(authority).days_left(time.time())
            _issue(directory, outcome, names, min(days, MAX_DAYS, left))
    return _dated(outcome)


def refuse_other_authority(directory: str, host: str, present: str) -> None:
    """Raise CertificateError if another CA of the site issued the certificate that the gateway has now.

    Clients trust that CA. ``present`` is the gateway's certificate in PEM; it is empty if there is none.
    """
    issuer = _name_in(present, "issuer", f"the certificate that {host} has now") if present else ""
    if not issuer.startswith(AUTHORITY):
        return
    authority = f"{directory}/ca.crt"
    found = "is missing"
    if os.path.exists(authority):
        with open(authority, encoding="ascii", errors="replace") as file:
            subject = _name_in(file.read(), "subject", authority)
        if subject == issuer:
            return
        found = f"is {subject!r}"
    raise CertificateError(
        f"{host}: clients trust {issuer!r}, which issued the certificate of this gateway, and {authority} {found}; "
        "restore the directory of that CA (gateway_ca_dir), or set gateway_ca_replace for one run and give the new "
        "ca.crt to all clients"
    )


def _name_in(pem: str, field_name: str, about: str) -> str:
    """Return the common name of the issuer or of the subject of a certificate in PEM."""
    words = ("x509", "-noout", f"-{field_name}", "-nameopt", "multiline,utf8,-esc_msb")
    text = openssl(*words, given=pem, about=about)
    found = re.search(r"commonName\s*= (.+)", text)
    return found.group(1) if found else ""


def _dated(outcome: CertificateOutcome) -> CertificateOutcome:
    if os.path.exists(outcome.certificate):
        outcome.not_after = day(read_certificate(outcome.certificate).not_after)
    return outcome


def _reason(directory: str, outcome: CertificateOutcome, names: Sequence[str], renew_days: int) -> str:
    """Return why a certificate must be issued, nothing when the present one is valid."""
    authority, authority_key = f"{directory}/ca.crt", f"{directory}/ca.key"
    if not os.path.exists(authority):
        if os.path.exists(authority_key):
            raise CertificateError(
                f"{authority} is missing, but its key {authority_key} exists; restore {authority}, or move the key away"
            )
        return "there is no CA yet"
    left = read_certificate(authority).days_left(time.time())
    if left < renew_days:
        raise CertificateError(
            f"{authority} expires on {day(read_certificate(authority).not_after)}, in {left} days; move {directory} "
            "away, set gateway_ca_replace for one run, so that a new CA is created, and give its ca.crt to the clients"
        )
    check_key(authority_key)
    if public_key(authority_key) != read_certificate(authority).public_key:
        raise CertificateError(f"{authority_key} is not the key of {authority}; restore the two that belong together")
    if not (os.path.exists(outcome.certificate) and os.path.exists(outcome.key)):
        return "the gateway has no certificate yet"
    found = read_certificate(outcome.certificate)
    if found.days_left(time.time()) < renew_days:
        return f"the certificate expires on {day(found.not_after)}"
    if found.names != _plain(names):
        return "the names have changed"
    if public_key(outcome.key) != found.public_key:
        return "the key does not belong to the certificate"
    return "" if _signed(authority, outcome.certificate) else "another CA issued the certificate"


def _create_authority(directory: str) -> None:
    with tempfile.TemporaryDirectory(dir=directory) as work:
        key, certificate = f"{work}/key", f"{work}/crt"
        words = ["req", "-x509", *KEY_ARGUMENTS, "-keyout", key, "-out", certificate, "-days", str(CA_DAYS)]
        # The random part lets clients distinguish two CAs of a site.
        words += ["-subj", f"/CN={AUTHORITY} {secrets.token_hex(4)}"]
        for extension in CA_EXTENSIONS:
            words += ["-addext", extension]
        openssl(*words)
        _publish_pair(key, f"{directory}/ca.key", certificate, f"{directory}/ca.crt")


def _publish_pair(made_key: str, key: str, made_certificate: str, certificate: str) -> None:
    """Put a new key and its certificate into their places, the key first."""
    for source, path, mode in ((made_key, key, 0o600), (made_certificate, certificate, 0o644)):
        with open(source, "rb") as file:
            publish(path, file.read(), mode)


def _issue(directory: str, outcome: CertificateOutcome, names: Sequence[str], days: int) -> None:
    """Create a key and a certificate, and replace the present ones."""
    with tempfile.TemporaryDirectory(dir=directory) as work:
        key, request, made, extensions = (f"{work}/{name}" for name in ("key", "csr", "crt", "ext"))
        with open(extensions, "w", encoding="ascii") as file:
            file.write(_leaf_extensions(names))
        openssl("req", "-new", *KEY_ARGUMENTS, "-keyout", key, "-out", request, "-subj", "/CN=gateway")
        signing = ["-CA", f"{directory}/ca.crt", "-CAkey", f"{directory}/ca.key"]
        signing += ["-set_serial", f"0x{secrets.token_hex(16)}"]
        openssl("x509", "-req", "-in", request, *signing, "-days", str(days), "-extfile", extensions, "-out", made)
        _publish_pair(key, outcome.key, made, outcome.certificate)


def _leaf_extensions(names: Sequence[str]) -> str:
    for name in names:
        # A comma or a line break would be another extension.
        if not (is_ip(name) or re.fullmatch(r"[\w.*-]+", name, re.ASCII)):
            raise CertificateError(f"found the name {name[:80]!r}, expected that of a host, or an IP address")
    alternatives = ",".join(f"{'IP' if is_ip(name) else 'DNS'}:{name}" for name in names)
    return (
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
        f"subjectAltName={alternatives}\n"
    )


def _plain(names: Iterable[str]) -> frozenset[str]:
    """Return names with IP addresses in their canonical form."""
    return frozenset(str(read_ip(name)) if is_ip(name) else name for name in names)


def covered(name: str, names: frozenset[str]) -> bool:
    """Return whether a certificate with ``names`` is valid for ``name``."""
    return name in names or f"*.{name.partition('.')[2]}" in names


def read_certificate(path: str) -> Certificate:
    """Return the content of the first certificate in a file. Raises CertificateError."""
    text = openssl("x509", "-in", path, "-noout", "-startdate", "-enddate", "-ext", "subjectAltName", "-pubkey")
    times = dict(re.findall(r"^(notBefore|notAfter)=(.+)$", text, re.MULTILINE))
    names = re.findall(r"(?:DNS|IP Address):([^,\s]+)", text)
    key = re.search(r"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", text, re.DOTALL)
    if len(times) != 2 or not key:
        raise CertificateError(f"{path}: openssl found no dates or no key in it; expected a certificate in PEM")
    seconds = {name: ssl.cert_time_to_seconds(value) for name, value in times.items()}
    plain = _plain(names)
    return Certificate(seconds["notBefore"], seconds["notAfter"], plain, key.group(0))


def public_key(path: str) -> str:
    """Return the public half of a private key. Raises CertificateError for an encrypted or invalid key."""
    return openssl("pkey", "-in", path, "-pubout", "-passin", "pass:").strip()


def check_key(path: str) -> None:
    """Raise CertificateError for a private key that other users can read."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as exc:
        raise CertificateError(f"{path} cannot be read on the controller: {exc.strerror}") from exc
    if mode & 0o007:
        raise CertificateError(f"{path} is open to everybody (mode {mode:04o}); run chmod 600 on it")


def _signed(authority: str, certificate: str) -> bool:
    try:
        openssl("verify", "-CAfile", authority, certificate)
    except CertificateError:
        return False
    return True


def openssl(*words: str, given: str = "", about: str = "") -> str:
    """Return the output of openssl for what it is given. Raises CertificateError with the first line of its error."""
    try:
        done = subprocess.run(["openssl", *words], check=False, capture_output=True, text=True, input=given)
    except FileNotFoundError:
        raise CertificateError("the controller has no program openssl; install it") from None
    if done.returncode:
        about = about or (words[words.index("-in") + 1] if "-in" in words else words[0])
        error = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise CertificateError(f"{about}: openssl cannot use it: {error[0]}")
    return done.stdout


def day(seconds: float) -> str:
    """Return a time as a date in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
