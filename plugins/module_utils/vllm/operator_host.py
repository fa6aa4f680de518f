# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give this program access to the endpoints for operators of an instance (roles/vllm/files/vllm_operator.py)."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Iterator

from ..common.files_host import LockedError, locked

HEADER, FILE = "operator-token", "operator"
# Another program may have the token for as long as it takes to load adapters.
_WAIT_SECONDS = 60.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class OperatorError(Exception):
    """The engine cannot be given a token; the message is the whole sentence."""


@contextlib.contextmanager
def operator_token(directory: str, gid: int, wait: float = _WAIT_SECONDS) -> Iterator[str]:
    """Yield a token that the engine accepts until the end of the context.

    ``directory`` is that of the instance below /run/vllm, ``gid`` the group of the engine. Raises OperatorError.
    """
    path, token = os.path.join(directory, FILE), secrets.token_hex(32)
    try:
        with locked(directory, wait=wait):
            # A program that was killed may have left one; the lock says that none is at work.
            remove(path)
            try:
                write_new(path, f"{token}\n", 0o640, gid)
                yield token
            finally:
                remove(path)
    except LockedError as exc:
        raise OperatorError(f"{directory}: another program has been calling this instance for {wait:g} s") from exc


def write_new(path: str, text: str, mode: int, gid: int = -1) -> None:
    """Write a new file. Raises OperatorError.

    The directory belongs to the engine's user: nothing that is already there is followed or kept.
    """
    try:
        with os.fdopen(os.open(path, _NEW, 0o600), "w", encoding="utf-8") as file:
            os.fchown(file.fileno(), -1, gid)
            os.fchmod(file.fileno(), mode)
            file.write(text)
    except OSError as exc:
        raise OperatorError(f"{path} cannot be written: {exc.strerror}") from exc


def remove(path: str) -> None:
    """Remove a file that may be missing."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
