# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time for a model's directory, on one host or on all hosts that share a file system."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Callable, Iterator

from ..common.files_host import LockedError, locked
from .manifest import WeightsError

LOCK_NAME = ".lock"
# Between two attempts at the lock: each is a request to the server of a shared file system.
PAUSE_SECONDS = 1.0


@contextlib.contextmanager
def lock_model_directory(
    directory: str, waiting: Callable[[str], None] | None = None, wait: float = float("inf")
) -> Iterator[None]:
    """Hold the lock of a model's directory; ``waiting`` is called with the holder at each attempt that fails.

    The lock file is not removed. The kernel releases the lock when its holder ends in any way; over NFS the server
    does so when the lease of a dead host has expired. Raises WeightsError after ``wait`` seconds.
    """
    path = os.path.join(directory, LOCK_NAME)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path, wait, waiting=waiting, pause=PAUSE_SECONDS))
        except LockedError as exc:
            raise WeightsError(
                f"{directory}: {exc.holder} is still downloading into it after {wait:g} s of waiting; check that "
                "process on its host, or wait longer (weights_lock_timeout)"
            ) from exc
        except OSError as exc:
            raise _explain(exc, directory, path) from exc
        yield


def _explain(exc: OSError, directory: str, path: str) -> Exception:
    """Return the error for a lock that cannot be taken: its file cannot be opened, or the file system has no locks."""
    if exc.filename is not None:
        hint = "; does the NFS export squash root?" if exc.errno in (errno.EACCES, errno.EPERM) else ""
        return WeightsError(f"{path}: cannot be opened for writing: {exc.strerror}{hint}")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return WeightsError(f"{path}: cannot be written: {exc.strerror}; free some space there")
    return WeightsError(
        f"{directory}: its file system supports no locks ({exc.strerror}), so two hosts could fetch at once; mount it "
        "with locks (Lustre: -o flock, NFS: without nolock)"
    )
