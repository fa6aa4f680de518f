# SPDX-License-Identifier: GPL-3.0-or-later
"""A deadline for what waits for another host."""

import threading
from typing import Callable, TypeVar

T = TypeVar("T")


def finish_within(seconds: float, work: Callable[[], T]) -> T:
    """Return what ``work`` returns, or raise what it raises. Raises TimeoutError after ``seconds``.

    A timeout of a socket begins again with each byte. What is late goes on in a thread, which ends with the process. So
    what asks again and again uses ``within`` of instance/api_host.py, which leaves nothing behind.
    """
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as exc:  # also the end of a module
            raised.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise TimeoutError(f"no complete answer within {seconds:g} s")
    return found[0]
