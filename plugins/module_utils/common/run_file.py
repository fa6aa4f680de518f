# SPDX-License-Identifier: GPL-3.0-or-later
"""How a vendor's self-extracting ``.run`` file is downloaded, verified and run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Installer:
    """A vendor's .run file: downloaded from ``url`` to ``path``, and run as ``argv`` if its sha256 matches.

    Exit status 0 means installed, 2 installed and a reboot is needed. The end of the file ``log`` explains a failure.
    ``stdin`` is the input for its questions.
    """

    name: str
    url: str
    path: str
    sha256: str
    argv: tuple[str, ...]
    why: str
    log: str = ""
    stdin: str = ""
