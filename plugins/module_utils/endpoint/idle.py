# SPDX-License-Identifier: GPL-3.0-or-later
"""Read from an engine's own figures whether it is idle."""

import time
from dataclasses import dataclass
from typing import Callable, Optional

from ..common.foreign_numbers import read_finite
from ..instance.metrics import RUNNING, WAITING, samples
from .client import Reply

_PAUSE = 0.2


@dataclass(frozen=True)
class EngineLoad:
    """The current load of an engine. ``problem``: why it is unknown, a clause; ``gone``: nothing listens there."""

    running: int = 0
    waiting: int = 0
    problem: str = ""
    gone: bool = False

    @property
    def idle(self) -> bool:
        """Return whether the engine has no work; an engine that does not listen has none."""
        return self.gone or not (self.problem or self.running or self.waiting)


@dataclass(frozen=True)
class IdleWait:
    """The end of a wait; ``load`` is the last one read."""

    idle: bool
    load: EngineLoad
    seconds: float


def read_load(reply: Reply) -> EngineLoad:
    """Return the load in a reply to GET /metrics, summed over engines and models."""
    if not reply.status:
        return EngineLoad(problem=reply.failure, gone="connection refused" in reply.failure)
    if reply.status != 200:
        return EngineLoad(problem=f"GET /metrics answered {reply.status}")
    if reply.failure:
        return EngineLoad(problem=f"GET /metrics: {reply.failure}")
    found: dict[str, float] = {}
    for name, text in samples(reply.body.decode(errors="replace"), (RUNNING, WAITING)):
        value = read_finite(text)
        if value is None or not 0 <= value < 1e9:
            return EngineLoad(problem=f"{name} is {text[:60]!r}, expected a number of requests")
        found[name] = found.get(name, 0.0) + value
    missing = [name for name in (RUNNING, WAITING) if name not in found]
    if missing:
        return EngineLoad(problem=f"its metrics lack {' and '.join(missing)}; expected those of vLLM")
    return EngineLoad(int(found[RUNNING]), int(found[WAITING]))


def wait_until_idle(
    read: Callable[[], EngineLoad],
    timeout: float,
    settle: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> IdleWait:
    """Read the load until the engine was idle for ``settle`` seconds, or is still busy after ``timeout``."""
    began = clock()
    since: Optional[float] = None
    while True:
        load, now = read(), clock()
        since = (now if since is None else since) if load.idle else None
        if since is not None and now - since >= settle:
            return IdleWait(True, load, now - began)
        # An engine that is idle at the deadline may finish its settle time.
        if since is None and now - began >= timeout:
            return IdleWait(False, load, now - began)
        sleep(_PAUSE)
