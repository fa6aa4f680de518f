# SPDX-License-Identifier: GPL-3.0-or-later
"""Notice whether another process opens a file while this one writes it.

Locks bind only those who ask for them, and times do not tell our own writes from others'. The kernel reports every
opening on this host (inotify); one from another host that shares the file system goes unnoticed.
"""

import ctypes
import os

# linux/inotify.h
_IN_OPEN = 0x20
_EVENTS = 65536
_LIBC = ctypes.CDLL(None, use_errno=True)


class OpeningsWatch:
    """Watches a file that this process has open, and does not open again."""

    def __init__(self, path: str) -> None:
        self._descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor >= 0 and _LIBC.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_OPEN) < 0:
            self.close()

    def was_opened(self) -> bool:
        """Whether somebody has opened the file since then; also where the kernel cannot say."""
        if self._descriptor < 0:
            return True
        try:
            return bool(os.read(self._descriptor, _EVENTS))
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """End the watch; afterwards nothing is known."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
