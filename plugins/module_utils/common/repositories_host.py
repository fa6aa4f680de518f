# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that the host's package repositories answer, before a run that must install packages changes anything.

apt names the addresses and fetches them itself, with the host's proxy, certificates and logins. The package index stays
as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from typing import Iterable

from .foreign_trees_host import remove_tree

APT_GET = "/usr/bin/apt-get"
HELPER = "/usr/lib/apt/apt-helper"
# Seconds until a silent repository counts as unreachable, and for all attempts at one of them.
TIMEOUT, DEADLINE = 5, 20

_RELEASE = re.compile(r"'(https?://\S+)/InRelease' ")
_REASON = re.compile(r"Failed to fetch \S+\s+(.*)")


def repository_problem(needed: Iterable[str]) -> str:
    """Return a sentence on the package repositories that do not answer, "" where all do or the host has no apt.

    ``needed`` are the packages to install from them, for the message.
    """
    if not (os.path.exists(APT_GET) and os.path.exists(HELPER)):
        return ""
    found = unreachable(_run([APT_GET, "update", "--print-uris"])[1])
    if not found:
        return ""
    places = "; ".join(f"the package repository {uri} cannot be reached: {reason}" for uri, reason in found.items())
    return (
        f"{places}. It is needed for {', '.join(needed)}; correct the sources or the proxy of apt on the host, or "
        "install this beforehand"
    )


def unreachable(addresses: str) -> dict[str, str]:
    """Return the repositories that do not answer with the reasons, from the output of apt-get update --print-uris.

    A server that is down is asked only once, even if it has many repositories.
    """
    found: dict[str, str] = {}
    servers: set[str] = set()
    directory = tempfile.mkdtemp(prefix="repositories-")
    try:
        for base in dict.fromkeys(_RELEASE.findall(addresses)):
            server = base.split("/")[2]
            reason = "" if server in servers else _ask(base, os.path.join(directory, "release"))
            if reason:
                found[without_login(base)] = reason
                servers.add(server)
    finally:
        remove_tree(directory, ignore_errors=True)
    return found


def without_login(address: str) -> str:
    """Return an address without user and password."""
    return re.sub(r"//[^/@]*@", "//", address)


def _ask(base: str, path: str) -> str:
    """Return why a repository does not answer, "" if it does; an old one has a Release without a signature in it."""
    reason = ""
    for name in ("InRelease", "Release"):
        rc, output = _run(
            [
                HELPER, "-o", "Acquire::Retries=0", "-o", f"Acquire::http::Timeout={TIMEOUT}",
                "-o", f"Acquire::https::Timeout={TIMEOUT}", "download-file", f"{base}/{name}", path,
            ]
        )  # fmt: skip
        if rc == 0:
            return ""
        match = _REASON.search(output)
        reason = reason or without_login(
            match.group(1).strip() if match else output.strip()[-200:] or "no reason given"
        )
        if not re.search(r"\b40[34]\b", output):
            break
    return reason


def _run(argv: list[str]) -> tuple[int, str]:
    """Return exit status and output of a command, which gets DEADLINE seconds."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            timeout=DEADLINE,
        )
    except subprocess.TimeoutExpired:
        return 124, f"Failed to fetch it  no answer within {DEADLINE} s"
    except OSError as exc:
        return 127, f"Failed to fetch it  {exc}"
    return done.returncode, done.stdout.decode("utf-8", "replace")
