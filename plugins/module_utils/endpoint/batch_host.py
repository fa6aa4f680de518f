# SPDX-License-Identifier: GPL-3.0-or-later
"""Send the requests of a batch file to a gateway, and write one answer for each; a second run goes on."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from typing import Any, BinaryIO, Callable, Iterator, Set

from ..common.files_host import locked
from ..common.own_links_host import follow_links
from .batch import BUSY, MAX_LINE, BatchError, Request, answer_of, answered_id, check_cut_off, requests_of
from .client import TimedClient

# Seconds until a request that the gateway refused is sent again; it says as much to the class batch.
PAUSE = 10.0
# Futures of an id and a line; Python 3.8 has no type for them.
Futures = Set[Any]
# Without an answer, or with a failure of the engine, a request is sent so many times.
ATTEMPTS = 5


def run(
    source: str, target: str, client: TimedClient, at_once: int, timeout: float, report: Callable[[str], None]
) -> int:
    """Answer all requests of ``source`` that ``target`` has no answer for; return how many it has at the end.

    An interrupt lets what runs be completed. Raises BatchError before the first request, LockedError and OSError, also
    where a link of another user leads to the target.
    """
    target = follow_links(target)
    _check_files(source, target)
    with locked(f"{target}.lock", 0), open(target, "a+b", opener=_unlinked) as output:
        done = _done(output)
        # Nothing is sent of a file with a fault.
        count = sum(1 for _request in _requests(source))
        report(f"{count} requests, {len(done)} of them answered")
        left = (request for request in _requests(source) if request.custom_id not in done)
        stopped = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            running: Futures = set()
            try:
                for request in left:
                    running.add(pool.submit(_answer, client, request, timeout, stopped))
                    if len(running) >= at_once:
                        running = _wait(running, output, done)
                while running:
                    running = _wait(running, output, done)
            finally:
                stopped.set()
                for future in concurrent.futures.as_completed(running):
                    _keep(future, output, done)
        report(f"{len(done)} of {count} answered")
    return len(done)


def _check_files(source: str, target: str) -> None:
    """Raise BatchError for anything that is not a file, such as a pipe: both are read again from their beginning."""
    for path in (source, target):
        if os.path.exists(path) and not os.path.isfile(path):
            raise BatchError(f"{path} is not a file")
    if os.path.exists(target) and os.path.samefile(source, target):
        raise BatchError("is the output too; name another file for the answers")


def _requests(source: str) -> Iterator[Request]:
    with open(source, "rb") as file:
        yield from requests_of(iter(lambda: file.readline(MAX_LINE + 2), b""))


def _unlinked(path: str, flags: int) -> int:
    """Open a file for ``open``; what has become a link since follow_links saw it raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _done(output: BinaryIO) -> set[str]:
    """Return the ids that have an answer; a line that a crash has cut off is removed."""
    done: set[str] = set()
    end = 0
    output.seek(0)
    for number, line in enumerate(iter(lambda: output.readline(MAX_LINE), b""), 1):
        if not line.endswith(b"\n"):
            check_cut_off(number, line)
            break
        done.add(answered_id(number, line))
        end += len(line)
    output.truncate(end)
    output.seek(end)
    return done


def _wait(running: Futures, output: BinaryIO, done: set[str]) -> Futures:
    """Write the answers that come next; return what still runs."""
    ready, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
    for future in ready:
        _keep(future, output, done)
    return running


def _keep(future: Any, output: BinaryIO, done: set[str]) -> None:
    """Write one answer, so that a crash loses none that was written."""
    custom_id, line = future.result()
    # After an interrupt it may be here again.
    if line and custom_id not in done:
        output.write(line)
        output.flush()
        os.fsync(output.fileno())
        done.add(custom_id)


def _answer(client: TimedClient, request: Request, timeout: float, stopped: threading.Event) -> tuple[str, bytes]:
    """Return the id and the line for a request, no line if it was stopped before it had an answer."""
    attempts = 0
    while not stopped.is_set():
        reply = client.request("POST", request.path, request.body, timeout)
        attempts += reply.status not in BUSY
        if reply.status in BUSY or ((reply.failure or reply.status >= 500) and attempts < ATTEMPTS):
            stopped.wait(PAUSE)
            continue
        return request.custom_id, answer_of(request, reply.status, reply.body, reply.failure)
    return request.custom_id, b""
