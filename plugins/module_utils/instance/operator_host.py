# SPDX-License-Identifier: GPL-3.0-or-later
"""Give this program access to the endpoints for operators of an instance."""

import contextlib
import os
import re
import time
from typing import Iterator

from ..common.files_host import LockedError, locked
from ..common.foreign_files_host import ForeignDirectory
from .marks import OPERATOR, OPERATOR_SECONDS

# Another program may have the token for as long as it takes to load adapters.
_WAIT_SECONDS = 60.0
# Attempts to share a token, and the seconds between two.
_ATTEMPTS, _PAUSE = 5, 0.5
_TOKEN = re.compile(r"[A-Za-z0-9_=-]{17,190}\Z", re.ASCII)


class OperatorError(Exception):
    """The engine cannot be given a token; the message is the whole sentence."""


@contextlib.contextmanager
def operator_token(directory: str, gid: int, wait: float = _WAIT_SECONDS) -> Iterator[str]:
    """Yield a token that the engine accepts until the end of the context.

    ``directory`` is that of the instance below /run/vllm, ``gid`` the group of the engine. Raises OperatorError.
    """
    place, token = ForeignDirectory(directory), os.urandom(32).hex()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_locked(directory, wait))
        except LockedError as exc:
            raise OperatorError(
                f"{directory}: another program has been calling this instance for {wait:g} s: {exc.holder}"
            ) from exc
        except OSError as exc:
            raise OperatorError(f"{directory} cannot be locked: {exc.strerror}; does the instance run?") from exc
        try:
            # A program that was killed may have left one; the lock says that none is at work.
            write_new(place, OPERATOR, f"{token}\n", 0o640, gid)
            yield token
        finally:
            place.remove(OPERATOR)


def shared_token(directory: str) -> str:
    """Return the token that the engine accepts now; write one for the own group where there is none. Raises OSError.

    It stays for the next calls, for half of the time that the engine accepts it. Another program's token is used as it
    is, because that program is calling now.
    """
    place = ForeignDirectory(directory)
    for _attempt in range(_ATTEMPTS):
        found = _token_in(place, OPERATOR_SECONDS / 2)
        if found:
            return found
        try:
            with _locked(directory, 0):
                if not _token_in(place, OPERATOR_SECONDS / 2):
                    place.remove(OPERATOR)
                    place.create(OPERATOR, f"{os.urandom(32).hex()}\n", 0o640)
        except LockedError:
            found = _token_in(place, OPERATOR_SECONDS)
            if found:
                return found
            time.sleep(_PAUSE)
    raise OSError(f"{directory}: another program calls the instance, and has written no token")


@contextlib.contextmanager
def _locked(directory: str, wait: float) -> Iterator[None]:
    """Hold the lock of the token, in the directory above: the user of the instance could hold one in its own.

    Raises LockedError, OSError; the latter for an instance that is down, whose directory is missing.
    """
    above, name = os.path.split(directory)
    os.stat(directory)
    with locked(os.path.join(above, f".{name}.lock"), wait):
        yield


def write_new(place: ForeignDirectory, name: str, text: str, mode: int, gid: int = -1) -> None:
    """Write a file in the place of what is there. Raises OperatorError."""
    try:
        place.remove(name)
        place.create(name, text, mode, gid)
    except OSError as exc:
        raise OperatorError(f"{place.path}/{name} cannot be written: {exc.strerror}") from exc


def _token_in(place: ForeignDirectory, seconds: float) -> str:
    """Return the token that was written in the last ``seconds``, empty where there is none."""
    text = place.text(OPERATOR, 200).strip()
    with contextlib.suppress(OSError):
        if _TOKEN.match(text) and time.time() - place.modified_at(OPERATOR) <= seconds:
            return text
    return ""
