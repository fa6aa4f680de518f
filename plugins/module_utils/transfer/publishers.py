# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads that publish finished files: they wait for the disk, so that the connections need not."""

import threading
from collections import deque
from typing import Callable


class Publishers:
    """Run tasks in up to ``most`` threads, which are started on demand."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._todo: deque[Callable[[], None]] = deque()
        self._lock = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._closed = False

    def add(self, work: Callable[[], None]) -> None:
        """Run a task in a thread; the task must handle its own errors."""
        with self._lock:
            self._todo.append(work)
            if self._free < len(self._todo) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._run, daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._lock.notify()

    def close(self) -> None:
        """Wait until all tasks are done."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._free += 1
                while not self._todo and not self._closed:
                    self._lock.wait()
                self._free -= 1
                if not self._todo:
                    return
                work = self._todo.popleft()
            work()
