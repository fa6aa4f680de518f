# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill a piece of work at any step."""

from __future__ import annotations

import os
import signal
import sys


def killed_at(call, work):
    """Run ``work`` in a child that is killed as it enters the named C call; return whether it came that far."""
    child = os.fork()
    if child == 0:
        left = call

        def profile(_frame, event, _function):
            nonlocal left
            if event in ("c_call", "c_return"):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(profile)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
