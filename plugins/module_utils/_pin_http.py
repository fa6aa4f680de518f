# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask hubs and mirrors: whole small answers with their status, and the hash of large files that are not kept."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import Any, Mapping

from ._connections import RETRIED, shown
from ._manifest import WeightsError

CHUNK = 1024 * 1024
# Listings and the files beside the weights have less; what sends more is not what was asked for.
MOST_BYTES = 64 * CHUNK
ATTEMPTS = 4


@dataclass(frozen=True)
class Reply:
    """An answer: the address it came from, HTTP status, headers, body."""

    url: str
    status: int
    headers: Message
    body: bytes

    def json(self) -> Any:
        """Return the values of the body. Raises WeightsError when it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError as exc:
            raise WeightsError(f"{shown(self.url)}: found no JSON in the answer; is the address right?") from exc


class Web:
    """Requests that follow redirects; ``headers`` (a token) go to the server of ``origin`` and to no other."""

    def __init__(
        self,
        origin: str,
        headers: Mapping[str, str],
        ca_file: str | None = None,
        timeout: float = 30.0,
        backoff: float = 1.0,
    ) -> None:
        self._origin = _server(origin)
        self._headers = dict(headers)
        self._timeout, self._backoff = timeout, backoff
        handlers = urllib.request.HTTPSHandler(context=_tls(ca_file)), _Redirects(self._headers)
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, url: str) -> Reply:
        """Return a whole answer, whatever its status. Raises WeightsError where none comes."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                reply = self._get(url)
            except (OSError, http.client.HTTPException) as exc:
                if attempt == ATTEMPTS or _final(exc):
                    raise _no_answer(url, exc, self._timeout) from exc
            else:
                if attempt == ATTEMPTS or reply.status not in RETRIED:
                    return reply
            time.sleep(self._backoff * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def hash(self, url: str) -> tuple[int, str]:
        """Return bytes and sha256 of a file of any size, going on where a connection breaks. Raises WeightsError."""
        digest, length, failures, version = hashlib.sha256(), 0, 0, ""
        while True:
            before = length
            try:
                with self._open(url, length, version) as response:
                    expected = _expected(response, url, length)
                    version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
                    for chunk in iter(lambda: response.read(CHUNK), b""):
                        digest.update(chunk)
                        length += len(chunk)
                if expected is None or length == expected:
                    return length, digest.hexdigest()
                broken: Exception = http.client.IncompleteRead(b"", expected - length)
            except (OSError, http.client.HTTPException) as exc:
                broken = exc
            failures = 0 if length > before else failures + 1
            if failures == ATTEMPTS or _final(broken):
                raise _no_answer(url, broken, self._timeout) from broken
            time.sleep(self._backoff * 2**failures)

    def _get(self, url: str) -> Reply:
        try:
            with self._open(url) as response:
                body = response.read(MOST_BYTES + 1)
                if len(body) > MOST_BYTES:
                    raise WeightsError(f"{shown(url)}: found more than {MOST_BYTES} bytes, expected a small answer")
                length = response.headers.get("Content-Length", "")
                if length.isdigit() and len(body) < int(length):
                    raise http.client.IncompleteRead(body, int(length) - len(body))
                return Reply(response.url, response.status, response.headers, body)
        except urllib.error.HTTPError as exc:
            with exc:
                return Reply(url, exc.code, exc.headers, exc.read(MOST_BYTES))

    def _open(self, url: str, first: int = 0, version: str = "") -> Any:
        """Open an answer from byte ``first`` on, provided that the file is still of the same ``version``."""
        headers = {"User-Agent": "baremetal.inference", "Accept-Encoding": "identity"}
        if first:
            headers["Range"] = f"bytes={first}-"
            # A weak ETag promises nothing about bytes.
            headers.update({"If-Range": version} if version and not version.startswith("W/") else {})
        if _server(url) == self._origin:
            headers.update(self._headers)
        return self._opener.open(urllib.request.Request(url, headers=headers), timeout=self._timeout)  # noqa: S310


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects without the token where they lead to another server."""

    def __init__(self, secret: Mapping[str, str]) -> None:
        self._secret = {name.lower() for name in secret}

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: Any,  # noqa: ARG002 (urllib's signature)
        code: int,  # noqa: ARG002
        msg: str,  # noqa: ARG002
        headers: Any,  # noqa: ARG002
        newurl: str,
    ) -> urllib.request.Request:
        url = urllib.parse.urljoin(req.full_url, newurl)
        leaves = _server(url) != _server(req.full_url)
        kept = {name: value for name, value in req.header_items() if not (leaves and name.lower() in self._secret)}
        return urllib.request.Request(url, headers=kept)  # noqa: S310 (urllib refuses other schemes)

    # Known to urllib from Python 3.11 on.
    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302


def _expected(response: Any, url: str, first: int) -> int | None:
    """Return the whole file's bytes, None where the server does not say. Raises WeightsError for another part."""
    length = response.headers.get("Content-Length", "")
    said = first + int(length) if length.isdigit() else None
    if first and not response.headers.get("Content-Range", "").startswith(f"bytes {first}-"):
        raise WeightsError(
            f"{shown(url)}: the connection broke off and the server does not go on with the same file; try again"
        )
    return said


def _server(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


def _tls(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as exc:
            raise WeightsError(f"ca_file {ca_file}: cannot be read as PEM certificates: {exc}") from exc
    return context


def _final(exc: BaseException) -> bool:
    """Whether another attempt would end as this one did."""
    if isinstance(exc, urllib.error.HTTPError):
        return exc.code not in RETRIED
    return isinstance(getattr(exc, "reason", exc), ssl.SSLCertVerificationError)


def _no_answer(url: str, exc: Exception, timeout: float) -> WeightsError:
    reason = getattr(exc, "reason", exc)
    if isinstance(exc, urllib.error.HTTPError):
        return WeightsError(f"{shown(url)}: HTTP {exc.code} {exc.reason}")
    if isinstance(reason, ssl.SSLCertVerificationError):
        why = f"the certificate is not trusted ({reason.verify_message}); name the CA in ca_file"
    elif isinstance(reason, TimeoutError) or "timed out" in str(reason):
        why = f"no answer within {timeout:g} s"
    elif isinstance(exc, http.client.IncompleteRead):
        why = "the connection breaks off again and again"
    else:
        why = getattr(reason, "strerror", None) or str(reason)
    return WeightsError(f"{shown(url)}: {why}; check the address, the proxy (https_proxy) and the network")
