# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write docker's daemon.json."""

import contextlib
import os
import stat

from ..common.files_host import publish
from .facts import RuntimePlanError


def read_text(path: str) -> str:
    """Return the text of the file, empty where there is none. Raises RuntimePlanError where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as exc:
        raise RuntimePlanError(
            f"{path} is not valid JSON: byte {exc.start} is not UTF-8; repair or remove it, docker cannot start with it"
        ) from None
    except OSError as exc:
        raise RuntimePlanError(f"{path} cannot be read: {exc.strerror}; repair or remove it") from exc


def write_text(path: str, text: str) -> None:
    """Replace the file in one durable step; its mode stays, because a site may protect a password with it.

    Raises OSError.
    """
    mode = 0o644
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(path).st_mode)
    publish(path, text, mode)
