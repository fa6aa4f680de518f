# SPDX-License-Identifier: GPL-3.0-or-later
"""Let requests wait while an adapter is replaced, so that none of them misses it.

vLLM cannot put another adapter under a name that is taken without changing the weights under running requests, and
0.32.0 would from then on read them from the disk for every token (vllm-project/vllm#33791). So the adapter is unloaded
and the other one loaded. Between the two, the instance's directory below /run/vllm has the file ``hold``.
"""

import asyncio
import os
import time
from typing import Any, Mapping, Optional

from ..instance.marks import HOLD
from . import operator_host
from .asgi import Message, Receive

# Seconds from the beginning. A program that was killed leaves the file, and then requests must go on.
LONGEST = 30.0
_PAUSE = 0.02


class Hold:
    """Keeps the last part of a request until the file is gone; vLLM looks for the model when it has the whole body."""

    def __init__(self, directory: str) -> None:
        self._file = os.path.join(directory, HOLD)
        # Only an instance with the guard has its adapters changed.
        self._possible = bool(os.environ.get(operator_host.VARIABLE))
        # One looks for all: the server has to answer the program that replaces the adapter meanwhile.
        self._end: Optional[asyncio.Future[None]] = None

    def concerns(self, scope: Mapping[str, Any]) -> bool:
        """Return whether a request may have to wait. The request that loads the adapter has the operator's token."""
        return self._possible and scope.get("method") == "POST" and operator_host.HEADER not in dict(scope["headers"])

    def active(self) -> bool:
        """Return whether an adapter is being replaced."""
        try:
            return -1.0 < time.time() - os.stat(self._file).st_mtime < LONGEST
        except OSError:
            return False

    def delayed(self, receive: Receive) -> Receive:
        """Return ``receive`` with the wait."""

        async def delayed() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                while self.active():
                    if self._end is None or self._end.done():
                        self._end = asyncio.ensure_future(self._look())
                    await asyncio.shield(self._end)
            return message

        return delayed

    async def _look(self) -> None:
        """Return once the file is gone."""
        while self.active():
            await asyncio.sleep(_PAUSE)
