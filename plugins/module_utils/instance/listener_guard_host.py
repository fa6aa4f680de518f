# SPDX-License-Identifier: GPL-3.0-or-later
"""End a program that sends the key of an instance as soon as it is not the instance that listens at its port.

The program asks for minutes or hours, and any user can take the port in the moment in which the instance ends. So a
connection to the instance stays open meanwhile: the kernel closes it in that moment, and wakes the guard.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from typing import Iterator

from .config_file import Processes
from .listener_host import check_peer

_TIMEOUT = 5.0
# Between two questions to the kernel, whether somebody else listens there as well; and before a new connection.
_INTERVAL, _PAUSE = 1.0, 0.1


class ListenerGuard:
    """A proven connection to an instance. ``problem``: why a program was ended, empty where none was."""

    def __init__(self, host: str, port: int, expected: Processes) -> None:
        """Connect. Raises OSError where nobody listens, and StrangerError for another process than the instance's."""
        self.problem = ""
        self._place, self._expected = (host, port), expected
        self._connection = self._connect()
        # Closed at the end, so that the guard wakes at once.
        self._over, self._end = socket.socketpair()

    def _connect(self) -> socket.socket:
        opened = socket.create_connection(self._place, _TIMEOUT)
        try:
            check_peer(opened, self._expected)
        except OSError:
            opened.close()
            raise
        return opened

    @contextlib.contextmanager
    def ending(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Kill the group of a process in this time where the instance does not listen any longer; then disconnect."""
        thread = threading.Thread(target=self._watch, args=(process,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.close()
            thread.join()
            self._over.close()
            self._connection.close()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                if self._is_over():
                    return
            except OSError as exc:
                host, port = self._place
                self.problem = exc.args[0] if len(exc.args) == 1 else f"{host} port {port}: {exc.strerror or exc}"
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                return

    def _is_over(self) -> bool:
        """Return whether it is the end, after a moment. Raises OSError where the instance no longer listens."""
        readable, _writable, _odd = select.select([self._connection, self._over], [], [], _INTERVAL)
        if self._over in readable:
            return True
        if readable:
            # The instance also closes a connection on which nobody asks.
            self._connection.close()
            self._connection = self._connect()
            time.sleep(_PAUSE)
        else:
            check_peer(self._connection, self._expected)
        return False
