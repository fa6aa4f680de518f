# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time for a model's directory, on one host or on all hosts that share a file system."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import time
from typing import Callable, Iterator

from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError

LOCK_NAME = ".lock"
# Seconds between two looks at whether another run has ended.
PAUSE = 1.0


@contextlib.contextmanager
def locked(
    directory: str, waiting: Callable[[str], None] | None = None, patience: float = float("inf")
) -> Iterator[None]:
    """Keep all others out of a model's directory; ``waiting`` is told again and again whose end is waited for.

    The lock is a file that stays. It is let go by the kernel when its holder ends, however it ends; over NFS by the
    server when the lease of a dead host has run out. Raises WeightsError after ``patience`` seconds.
    """
    descriptor = _open(directory)
    try:
        deadline = time.monotonic() + patience
        while not _taken(descriptor, directory):
            holder = _holder(descriptor)
            if time.monotonic() >= deadline:
                raise WeightsError(
                    f"{directory}: {holder} still fetches into it after {patience:g} s of waiting; see there what it "
                    "does, or wait longer (weights_lock_timeout)"
                )
            if waiting:
                waiting(holder)
            time.sleep(min(PAUSE, max(0.01, deadline - time.monotonic())))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"host": platform.node(), "pid": os.getpid()}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _open(directory: str) -> int:
    path = os.path.join(directory, LOCK_NAME)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as exc:
        hint = "; does its export squash root?" if exc.errno in (errno.EACCES, errno.EPERM) else ""
        raise WeightsError(f"{path}: cannot be opened for writing: {exc.strerror}{hint}") from exc


def _taken(descriptor: int, directory: str) -> bool:
    """Return whether the lock is ours now. Raises WeightsError for a file system that has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        # NFS answers with the second where another host holds it.
        if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise WeightsError(
            f"{directory}: its file system gives no locks ({exc.strerror}), so two hosts could fetch at once; mount it "
            "with locks (Lustre: -o flock, NFS: without nolock)"
        ) from exc
    return True


def _holder(descriptor: int) -> str:
    """Return who holds the lock, for people."""
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(found['pid'])} of {found['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another run"
