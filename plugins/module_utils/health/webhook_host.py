# SPDX-License-Identifier: GPL-3.0-or-later
"""Send messages about faults to a webhook, beside the service, so that it never hangs."""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import queue
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping
from urllib.parse import urlsplit

from ..common.repeated import Repeated
from ..instance.api_host import within
from .webhook import check_token, check_url

# Seconds for a message, and before it is sent again.
TIMEOUT = 20.0
AGAIN = (5.0, 60.0, 300.0)
# Messages that wait; what comes then is only counted.
WAITING = 100
HOUR = 3600.0


class RefusedError(OSError):
    """The webhook did not take a message; the message says what it answered."""


@dataclass(frozen=True)
class Target:
    """Where messages go: the address, the token of ``Authorization``, the authority, and how many an hour."""

    url: str
    token: str = ""
    ca_file: str = ""
    per_hour: int = 20

    @classmethod
    def read(cls, path: str) -> Target:
        """Return what the file of the role says. Raises OSError, ValueError and TypeError."""
        with open(path, encoding="utf-8") as file:
            target = cls(**json.load(file))
        check_url(target.url)
        check_token(target.token)
        return target

    def post(self, message: Mapping[str, Any]) -> None:
        """Send a message. Redirects are not followed, and of the answer only the head is read. Raises OSError."""
        parts = urlsplit(self.url)
        host, path = parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json", "Connection": "close", "User-Agent": "vllm-health"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT)
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file or None)
            connection = http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT, context=context)
        with contextlib.closing(connection), within(TIMEOUT, connection):
            try:
                connection.request("POST", path, json.dumps(message), headers)
                status = connection.getresponse().status
            except (ValueError, http.client.HTTPException) as exc:
                raise RefusedError(f"no answer of HTTP: {type(exc).__name__}") from exc
        if not 200 <= status < 300:
            raise RefusedError(f"it answered {status}")


class Webhook:
    """Sends messages one after the other from a separate thread."""

    def __init__(self, target: Target, say: Callable[[str], None]) -> None:
        self._target, self._say = target, say
        self._waiting: queue.Queue[Mapping[str, Any]] = queue.Queue(WAITING)
        self._sent: collections.deque[float] = collections.deque()
        self._dropped = 0
        self._step = Repeated("The webhook", say)
        threading.Thread(target=self._run, daemon=True).start()

    def tell(self, message: Mapping[str, Any]) -> None:
        """Have a message sent; never waits."""
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self._dropped += 1

    def _run(self) -> None:
        while True:
            message = self._waiting.get()
            if not self._may_send():
                most = self._target.per_hour
                self._say(f"The webhook has had {most} messages within an hour; not sent: {message['text']}")
                self._dropped += 1
            elif not self._deliver(message):
                self._say(f"The webhook did not get: {message['text']}")
                self._dropped += 1

    def _may_send(self) -> bool:
        """Return whether this hour has room for one more message, and count it."""
        now = time.monotonic()
        while self._sent and now - self._sent[0] >= HOUR:
            self._sent.popleft()
        if len(self._sent) >= self._target.per_hour:
            return False
        self._sent.append(now)
        return True

    def _deliver(self, message: Mapping[str, Any]) -> bool:
        dropped = self._dropped
        more = {"not_sent": dropped, "text": f"{message['text']} ({dropped} earlier messages were not sent)"}
        document = {**message, **(more if dropped else {})}
        for wait in (0.0, *AGAIN):
            time.sleep(wait)
            if self._step.attempt(lambda: self._target.post(document)):
                self._dropped -= dropped
                return True
        return False
