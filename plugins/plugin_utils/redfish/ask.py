# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask many BMCs at once, for the chips of their hosts or by another survey, within time limits that no BMC can exceed.

One event loop runs in its own thread. Every wait in it can be cancelled, so no blocked request keeps the process from
ending. While it parses an answer, it does nothing else: service.py bounds what each BMC may send in all, so that none
takes the time of the others.
"""

import asyncio
import math
import ssl
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

from .chips import RedfishError
from .reader import Steps, Wanted
from .service import LOGOUT, Service, base_url, library, tls_context
from .survey import survey


@dataclass(frozen=True)
class Bmc:
    """The BMC of a host. ``address`` is ``host``, ``host:port`` or ``https://host:port``; ``steps`` is its survey."""

    host: str
    address: str
    username: str = ""
    password: str = field(default="", repr=False)
    steps: Callable[[], Steps[Any]] = survey


@dataclass(frozen=True)
class Limits:
    """Ask ``parallel`` BMCs at once; ``timeout`` is for one whole answer, ``deadline`` for all of one BMC, in seconds.

    With ``verify`` TLS certificates are checked, against ``ca_file`` (PEM) or the system's authorities.
    """

    parallel: int = 50
    timeout: float = 4
    deadline: float = 8
    verify: bool = True
    ca_file: str | None = None


@dataclass(frozen=True)
class Answer:
    """The answer of a BMC: what its survey found, or a ``reason`` for the failure, one sentence without secrets."""

    host: str
    found: Any
    reason: str | None


def ask_bmcs(bmcs: Sequence[Bmc], limits: Limits) -> list[Answer]:
    """Return the answers in the order of ``bmcs``; a failure of one BMC becomes the reason in its answer.

    Raises RedfishError for a problem of all of them: a missing library, an unreadable CA file.
    """
    if not bmcs:
        return []
    library()
    context = tls_context(limits.verify, limits.ca_file)
    answers: list[Answer | None] = [None] * len(bmcs)
    thread = threading.Thread(
        target=lambda: asyncio.run(_ask_all(bmcs, limits, context, answers)), daemon=True, name="redfish"
    )
    thread.start()
    rounds = math.ceil(len(bmcs) / max(1, limits.parallel))
    thread.join(rounds * (limits.deadline + 2 * LOGOUT) + 10)
    over = f"no answer within {limits.deadline:g} s"
    return [answer or Answer(bmc.host, None, over) for bmc, answer in zip(bmcs, answers)]


async def _ask_all(bmcs: Sequence[Bmc], limits: Limits, context: ssl.SSLContext, answers: list[Answer | None]) -> None:
    places = asyncio.Semaphore(max(1, limits.parallel))

    async def ask(number: int, bmc: Bmc) -> None:
        async with places:
            answers[number] = await _ask(bmc, limits, context)

    await asyncio.gather(*(ask(number, bmc) for number, bmc in enumerate(bmcs)))


async def _ask(bmc: Bmc, limits: Limits, context: ssl.SSLContext) -> Answer:
    try:
        url = base_url(bmc.address, bool(bmc.username or bmc.password))
        found = await asyncio.wait_for(_read(url, bmc, limits, context), limits.deadline)
    except asyncio.TimeoutError:
        return Answer(bmc.host, None, f"did not answer all requests within {limits.deadline:g} s")
    except RedfishError as exc:
        return Answer(bmc.host, None, str(exc))
    except Exception as exc:  # one BMC must not end the run of the others; its text may hold data that it sent
        return Answer(bmc.host, None, f"no Redfish: its answer cannot be read ({type(exc).__name__})")
    return Answer(bmc.host, found, None)


async def _read(url: str, bmc: Bmc, limits: Limits, context: ssl.SSLContext) -> Any:
    """Return what the survey of one BMC finds. Raises RedfishError."""
    async with Service(url, bmc.username, bmc.password, limits.timeout, context) as service:
        steps = bmc.steps()
        wanted = next(steps)
        while True:
            documents = await _together(service, wanted)
            try:
                wanted = steps.send({item.path: document for item, document in zip(wanted, documents)})
            except StopIteration as done:
                return done.value


async def _together(service: Service, wanted: Sequence[Wanted]) -> list[Any]:
    """Return several documents; the first failure cancels the others."""
    tasks = [asyncio.ensure_future(service.get(item.path, item.levels)) for item in wanted]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
