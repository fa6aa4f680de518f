# SPDX-License-Identifier: GPL-3.0-or-later
"""One Redfish service over HTTPS, through DMTF's library (redfish, its asyncio client).

The project uses it instead of sushy because it limits the time of a whole answer (a slow BMC cannot extend it), can be
cancelled, never leaves the service's origin, sends passwords over TLS only and logs nothing. sushy waits 2 s between
three attempts, limits only the gap between two bytes, and reads bodies of any size. This module adds what that client
leaves to its caller: certificates, limits on the size of a body and of all together, compression, redirects, and name
look-ups that block.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import threading
import warnings
import zlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from ...module_utils.common.foreign_json import load_json
from .chips import RedfishError

NEEDED = "redfish: the Python package redfish is needed on the controller: pip install 'redfish[aiohttp]'"

MAX_BODY = 2 * 1024 * 1024
# Of all bodies of a BMC together: one event loop reads and parses those of all BMCs, and the worst JSON of this size
# takes it a second. The tree of a large server has about 1 MiB, its logs have some more. Each part in which a body
# arrives counts as so many bytes more, because it takes as long.
MAX_TOTAL, PART = 4 * MAX_BODY, 64
MAX_REDIRECTS = 2
REDIRECTS = (301, 302, 307, 308)
CONNECTIONS = 2  # to one BMC: its processor is slow, and each TLS handshake is expensive for it

# The time to end a session, also after the BMC's own time is over (seconds).
LOGOUT = 2.0


class TooLargeError(RedfishError):
    """A body is larger than MAX_BODY, or all of a BMC together are than MAX_TOTAL."""


@dataclass(frozen=True)
class Library:
    """The imported parts of the libraries, loaded on first use because they are optional and slow to import."""

    aiohttp: Any
    client: Any
    errors: Any
    response: Any
    resolver: Any


@lru_cache(maxsize=1)
def library() -> Library:
    """Return the libraries. Raises RedfishError with what to install where one is missing."""
    try:
        with warnings.catch_warnings():  # the library silences urllib3's warnings for the whole process
            import aiohttp
            from aiohttp.abc import AbstractResolver

            client: Any = import_module("redfish.aio.client")
            errors: Any = import_module("redfish.aio.exceptions")
    except ImportError as exc:
        raise RedfishError(f"{NEEDED} ({exc})") from exc

    class Response(aiohttp.ClientResponse):
        """An answer whose body is limited to MAX_BODY, of the service of a subclass."""

        service: Service

        async def read(self) -> bytes:
            if self._body is None:
                body = bytearray()
                async for part, _is_end in self.content.iter_chunks():
                    body += part
                    self.service.count(len(part) + PART)
                    _check_size(len(body))
                self._body = bytes(body)
            return self._body

    class Resolver(AbstractResolver):
        """Look names up in threads that do not delay the end of the process."""

        async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[Any]:
            return await _look_up(host, port, family)

        async def close(self) -> None:
            """Do nothing, because the resolver holds no resources."""

    return Library(aiohttp, client.AsyncRedfishClient, errors, Response, Resolver)


def tls_context(verify: bool, ca_file: str | None) -> ssl.SSLContext:
    """Return the TLS context that checks certificates. Raises RedfishError for an unreadable CA file."""
    try:
        context = ssl.create_default_context(cafile=ca_file if verify else None)
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        why = exc.strerror if isinstance(exc, OSError) and not isinstance(exc, ssl.SSLError) else "no PEM certificate"
        raise RedfishError(f"{ca_file}: cannot be read as certificates of an authority: {why}") from exc
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def base_url(address: str, with_password: bool) -> str:
    """Return ``https://host[:port]`` for ``host``, ``host:port``, an IPv6 address or a URL.

    Raises RedfishError for anything else, and for http:// with a password. The message omits the address where that may
    hold a password.
    """
    text = address.strip()
    if text.count(":") > 1 and "://" not in text and not text.startswith("["):
        text = f"[{text}]"
    url = text if "://" in text else f"https://{text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RedfishError(f"the address {_shorten(address)} is not a host, host:port or URL") from None
    host = parts.hostname or ""
    if (
        "@" in parts.netloc
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
        or parts.scheme
        not in (
            "https",
            "http",
        )
    ):
        raise RedfishError(
            f"the address {_shorten(address)} holds more than https://host:port; put the account into "
            "accelerator_bmc_username and accelerator_bmc_password"
        )
    if not re.fullmatch(r"[A-Za-z0-9._:%-]+", host):
        raise RedfishError(f"the address {_shorten(address)} has no host name")
    if parts.scheme == "http" and with_password:
        raise RedfishError(f"the address {_shorten(address)} would send the password unencrypted; use https")
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + (f":{port}" if port else "")


class Service:
    """One BMC's service; use it with ``async with``. ``timeout`` is for one whole answer, in seconds."""

    def __init__(self, url: str, username: str, password: str, timeout: float, context: ssl.SSLContext) -> None:
        self._libs = library()
        self._url = url
        self._account = (username, password) if username or password else None
        self._timeout = timeout
        self._context = context
        self._at_once = asyncio.Semaphore(CONNECTIONS)
        self._total = 0
        self._login: asyncio.Future[Any] | None = None

    async def __aenter__(self) -> Service:
        http = self._libs.aiohttp
        connector = http.TCPConnector(ssl=self._context, resolver=self._libs.resolver(), limit=CONNECTIONS)
        self._http = http.ClientSession(
            connector=connector,
            cookie_jar=http.DummyCookieJar(),
            response_class=type("Response", (self._libs.response,), {"service": self}),
            auto_decompress=False,
            trust_env=False,
        )
        username, password = self._account or (None, None)
        self._client = self._libs.client(
            self._url, username=username, password=password, session=self._http, timeout=self._timeout
        )
        if self._account and ":" not in self._account[0]:
            await self._client.login("basic")  # sends no request: every request carries the header
        return self

    async def __aexit__(self, *_exc: object) -> None:
        try:
            if self._login:
                await asyncio.wait_for(self._log_out(self._login), LOGOUT)
        except Exception:  # noqa: S110 - the BMC ends the session itself after a while
            pass
        finally:
            await self._http.close()

    async def get(self, path: str, levels: int = 0) -> Any:
        """Return a document, None where it does not exist. Raises RedfishError with the reason of a failure."""
        async with self._at_once:
            answer = await self._request(f"{path}?$expand=.($levels={levels})" if levels else path)
            if levels and answer.status not in (200, 401, 403, 404):
                answer = await self._request(path)  # some services claim to expand, and fail to
            if answer.status == 401 and self._account and not self._login and _wants_session(answer):
                await self._log_in()
                answer = await self._request(path)
        if answer.status in (401, 403):
            who = f"user {self._account[0]!r}" if self._account else "a question without an account"
            raise RedfishError(f"refused {who} ({answer.status})")
        if answer.status in (404, 410):
            return None
        if answer.status != 200:
            raise RedfishError(f"answered {path} with HTTP {answer.status}")
        body = _decompressed(path, answer)
        self.count(len(body) - len(answer.read))
        return _parse(path, body, answer)

    def count(self, size: int) -> None:
        """Count bytes that the BMC has sent. Raises TooLargeError."""
        self._total += size
        if self._total > MAX_TOTAL:
            raise TooLargeError(f"its answers have more than {MAX_TOTAL // 1024 // 1024} MiB in all")

    async def _request(self, path: str) -> Any:
        try:
            for _hop in range(MAX_REDIRECTS + 1):
                answer = await self._client.get(
                    path, headers={"Accept": "application/json", "Accept-Encoding": "identity"}
                )
                location = answer.getheader("Location")
                if answer.status not in REDIRECTS or not location:
                    return answer
                path = location
        except Exception as exc:
            # Never quote the exception itself: exceptions of the HTTP library can contain headers.
            raise RedfishError(self._reason(exc)) from None
        raise RedfishError("redirects endlessly")

    async def _log_in(self) -> None:
        # Shielded: a session created while the time runs out must be known, so that it can be ended.
        self._login = asyncio.ensure_future(self._client.login("session"))
        try:
            await asyncio.shield(self._login)
        except self._libs.errors.RedfishPasswordChangeRequiredError:
            raise RedfishError(f"requires user {self._account and self._account[0]!r} to change the password") from None
        except self._libs.errors.RedfishAuthenticationError:
            raise RedfishError(f"refused user {self._account and self._account[0]!r} (401)") from None
        except Exception as exc:
            raise RedfishError(self._reason(exc)) from None

    async def _log_out(self, login: asyncio.Future[Any]) -> None:
        await asyncio.wait([login])
        await self._client.logout()

    def _reason(self, exc: BaseException) -> str:
        """Return the reason of a failure in words that cannot contain a secret."""
        errors = self._libs.errors
        if isinstance(exc, (errors.RedfishTimeoutError, asyncio.TimeoutError)):
            return f"no answer within {self._timeout:g} s"
        if isinstance(exc, TooLargeError):
            return str(exc)
        if isinstance(exc, errors.RedfishInvalidTargetError):
            return "redirects to another service"
        if isinstance(exc, errors.RedfishProtocolError):
            return "no Redfish: its session service does not answer as one"
        if isinstance(exc, errors.RedfishHTTPError):
            return f"answered the login with HTTP {exc.response.status}"
        causes = list(_causes(exc))
        for cause in causes:
            # aiohttp's own errors also subclass ssl's, without the details in ssl's attributes.
            if isinstance(cause, ssl.SSLCertVerificationError) and getattr(cause, "verify_message", None):
                return f"its TLS certificate is not trusted: {cause.verify_message.rstrip('.')}"
            if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None):
                return f"no TLS connection: {cause.reason.replace('_', ' ').lower()}"
            if isinstance(cause, socket.gaierror):
                return "its address is not known to the name service"
        for cause in causes:
            if isinstance(cause, OSError) and cause.errno:
                return f"no connection: {os.strerror(cause.errno).lower()}"
        if any(isinstance(cause, self._libs.aiohttp.ServerDisconnectedError) for cause in causes):
            return "closed the connection without an answer"
        return f"no Redfish: its answer is not HTTP ({type(causes[-1]).__name__})"


async def _look_up(host: str, port: int, family: int) -> list[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: OSError | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(result)

    def work() -> None:
        result, error = None, None
        try:
            result = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            error = exc if isinstance(exc, OSError) else socket.gaierror(socket.EAI_NONAME, "no host name")
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop is closed: nothing waits any longer

    threading.Thread(target=work, daemon=True, name="redfish-name").start()
    return [
        {"hostname": host, "host": place[0], "port": place[1], "family": kind, "proto": proto, "flags": 0}
        for kind, _type, proto, _name, place in await done
    ]


def _check_size(size: int) -> None:
    """Raise TooLargeError for a body of more than MAX_BODY bytes."""
    if size > MAX_BODY:
        raise TooLargeError(f"an answer is larger than {MAX_BODY // 1024 // 1024} MiB")


def _parse(path: str, body: bytes, answer: Any) -> Any:
    try:
        document = load_json(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RedfishError(f"no Redfish: {path.split('?')[0]} is not a JSON object{_kind(answer)}")
    return document


def _decompressed(path: str, answer: Any) -> bytes:
    """Return the body, decompressed: a service may compress although the request forbids it."""
    body: bytes = answer.read
    encoding = (answer.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding == "identity":
        return body
    try:
        if encoding not in ("gzip", "deflate"):
            raise zlib.error
        unpacked = zlib.decompressobj(wbits=47 if encoding == "gzip" else 15).decompress(body, MAX_BODY + 1)
    except zlib.error:
        raise RedfishError(
            f"no Redfish: {path.split('?')[0]} is compressed although no compression was requested"
        ) from None
    _check_size(len(unpacked))
    return unpacked


def _kind(answer: Any) -> str:
    """Return the media type of an answer that is not JSON, where it is safe to show."""
    kind = (answer.getheader("Content-Type") or "").split(";")[0].strip()
    return f" but {kind}" if re.fullmatch(r"[a-z]+/[a-z0-9.+-]{1,40}", kind) and "json" not in kind else ""


def _wants_session(answer: Any) -> bool:
    """Return whether the service may refuse basic authentication itself and not the account."""
    return "basic" not in (answer.getheader("WWW-Authenticate") or "").lower()


def _causes(exc: BaseException) -> Any:
    """Yield an exception and its causes; aiohttp also keeps the operating system's error as an attribute."""
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "certificate_error", None) or getattr(current, "os_error", None)
        current = inner if isinstance(inner, BaseException) else current.__cause__ or current.__context__


def _shorten(address: str) -> str:
    """Return an address for a message, without parts that may be an account."""
    return repr(address.rsplit("@", 1)[-1][:80]) if "@" in address else repr(address[:80])
