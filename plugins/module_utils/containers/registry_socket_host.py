# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask and fill a registry that listens at a Unix socket, as that of a mirror: no other user reaches it."""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import time
from email.message import Message
from typing import IO, NamedTuple
from urllib.parse import urlsplit

from ..common.foreign_text import quote_foreign
from ..instance.api_host import within
from .oci_index import DIGEST, MANIFESTS, Image, OciError

TIMEOUT = 30
# A disk that takes less in a second is as good as broken.
SLOWEST = 1 << 20


class Answer(NamedTuple):
    """The head of an answer, and the beginning of its words where it is an error."""

    status: int
    headers: Message
    words: bytes


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds, blocksize=1 << 20)
        self._path, self._seconds = path, seconds

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self._seconds)
        self.sock.connect(self._path)


class Registry:
    """The registry at a socket; all methods raise OciError unless they say otherwise."""

    def __init__(self, path: str) -> None:
        self.path = path

    def answers(self, seconds: int) -> bool:
        """Return whether it answers within some seconds."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                status = self._ask("GET", "/v2/").status
                break
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.5)
        if status != 200:
            raise OciError(f"{self.path}: HTTP status {status} for /v2/; expected a registry without a login")
        return True

    def digest_of(self, image: Image) -> str | None:
        """Return the digest that it has under the name of an image, None where it has none."""
        found = self._expect((200, 404), "HEAD", f"/v2/{image.repository}/manifests/{image.tag}")
        digest = found.headers.get("Docker-Content-Digest", "")
        return digest if found.status == 200 and DIGEST.fullmatch(digest) else None

    def put_blob(self, repository: str, digest: str, content: IO[bytes], size: int) -> None:
        """Give it a blob that it lacks; it compares the bytes with the digest."""
        if self._expect((200, 404), "HEAD", f"/v2/{repository}/blobs/{digest}").status == 200:
            return
        begun = self._expect((202,), "POST", f"/v2/{repository}/blobs/uploads/")
        place = urlsplit(begun.headers.get("Location", ""))
        address = f"{place.path}?{place.query}&digest={digest}"
        self._expect((201,), "PUT", address, "application/octet-stream", content, size)

    def put_manifest(self, repository: str, name: str, content: bytes, kind: str) -> None:
        """Give it a manifest under a digest or a tag."""
        address = f"/v2/{repository}/manifests/{name}"
        self._expect((201,), "PUT", address, kind, io.BytesIO(content), len(content))

    def _expect(
        self,
        expected: tuple[int, ...],
        method: str,
        address: str,
        kind: str = "",
        content: IO[bytes] | None = None,
        size: int = 0,
    ) -> Answer:
        try:
            found = self._ask(method, address, kind, content, size)
        except (OSError, ValueError, http.client.HTTPException) as exc:
            raise OciError(
                f"{self.path}: no answer of a registry to {method} {address} ({quote_foreign(exc)})"
            ) from exc
        if found.status not in expected:
            said = quote_foreign(found.words.decode("utf-8", "replace"))
            raise OciError(f"{self.path}: HTTP status {found.status} to {method} {address} ({said})")
        return found

    def _ask(
        self, method: str, address: str, kind: str = "", content: IO[bytes] | None = None, size: int = 0
    ) -> Answer:
        headers = {"Accept": ", ".join(MANIFESTS), "Content-Length": str(size)}
        if kind:
            headers["Content-Type"] = kind

        # It answers when all of a layer is on its disk, which may have been in memory until then.
        seconds = TIMEOUT + size / SLOWEST

        with contextlib.closing(_Connection(self.path, seconds)) as connection, within(seconds, connection):
            # Who refuses a layer early closes, and has said why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, address, body=content, headers=headers)
            answer = connection.getresponse()
            words = answer.read(600) if answer.status >= 400 else b""
            return Answer(answer.status, answer.headers, words)
