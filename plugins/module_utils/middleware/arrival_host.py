# SPDX-License-Identifier: GPL-3.0-or-later
"""End a request whose body does not come.

A gateway hands a request on when its head is here, and disconnects only a client that is silent for 30 seconds. So one
that sends a byte now and then would have its request for as long as it likes: a drain of its instance, and the stop of
its unit, wait for that.
"""

import asyncio
import time

from .asgi import Message, Receive, Scope, Send, send_error

# A body has to come within the first seconds, and one that takes longer with so many bytes a second on average. What
# has come counts, not what the client announces.
FIRST, RATE = 60.0, 64 * 1024
CLOSE = (b"connection", b"close")
_GONE: Message = {"type": "http.disconnect"}


class Arrival:
    """Answers 408 when a body comes too slowly; the application then sees that the client has gone."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._path, self._receive, self._send = str(scope.get("path", "")), receive, send
        self._began, self._length = time.monotonic(), 0
        # The body is here as a whole; it came too slowly; an answer has begun.
        self._whole = self._late = self._answered = False

    async def receive(self) -> Message:
        """Return the next part of the request."""
        if self._late:
            return dict(_GONE)
        if self._whole:
            return await self._receive()
        left = self._began + FIRST + self._length / RATE - time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(left, 0.001))
        except asyncio.TimeoutError:
            self._late = True
            if not self._answered:
                await self._refuse()
            return dict(_GONE)
        self._length += len(message.get("body", b""))
        self._whole = message["type"] != "http.request" or not message.get("more_body")
        return message

    async def send(self, message: Message) -> None:
        """Send the next part of the answer, unless the request has got its own."""
        if self._late and not self._answered:
            return
        self._answered = True
        await self._send(message)

    async def _refuse(self) -> None:
        kind = "invalid_request_error"
        message = "The body of the request did not arrive in time."
        await send_error(self._send, self._path, 408, (kind, kind), "request_timeout", message, CLOSE)
