# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared tools of the lab: podman and other commands, atomic writes, locks, and the requirements on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.lab.plan import Lab, LabError, containers_conf

TOP = Path(__file__).resolve().parents[2]
CONFIGURATION = "containers.conf"
STARTED = time.monotonic()

# A command or file that the lab uses -> the Debian package that contains it.
NEEDED = {
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}

# Locks of this process. Its child processes inherit them, so a later run waits for those of a killed run.
HELD: set[int] = set()


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", flush=True)


def run(command: Sequence[str], data: bytes | None = None, hold: bool = True) -> str:
    """Run a command and return its output; on failure its error output becomes the error."""
    result = subprocess.run(command, check=False, input=data, capture_output=True, pass_fds=tuple(HELD) if hold else ())
    if result.returncode:
        raise LabError(f"`{shlex.join(command)}` failed:\n{complaint(result.stderr.decode())}")
    return result.stdout.decode()


def complaint(stderr: str) -> str:
    """Return the relevant part of podman's error output: netavark misses a syslog on many machines, harmlessly."""
    return "\n".join(line for line in stderr.strip().splitlines() if "failed to connect to syslog" not in line)


def podman(*arguments: str, data: bytes | None = None) -> str:
    # `start` leaves the host itself running, and that must not hold a lock.
    return run(["podman", *arguments], data, hold=arguments[0] != "start")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file by rename, so that no reader sees an incomplete file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text)
    partial.chmod(mode)
    partial.replace(path)


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file; wait for another run that holds it."""
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another run that uses {what}")
                fcntl.flock(handle, fcntl.LOCK_EX)
            # `down` removes the file while it holds the lock; a lock on a removed file excludes nobody.
            if path.exists() and path.samefile(f"/proc/self/fd/{handle.fileno()}"):
                HELD.add(handle.fileno())
                try:
                    yield
                finally:
                    HELD.discard(handle.fileno())
                return


def configure_podman(lab: Lab) -> None:
    """Write podman's configuration and use it in every call of podman."""
    lab.home.mkdir(parents=True, exist_ok=True)
    limits = [resource.getrlimit(limit)[1] for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)]
    write(lab.home / CONFIGURATION, containers_conf(limits))
    os.environ["CONTAINERS_CONF"] = str(lab.home / CONFIGURATION)


def require_controller(arguments: Sequence[str]) -> None:
    """Fail where this machine cannot run a lab, with the one command that fixes it."""
    if os.geteuid():
        settings = [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith("LAB_")]
        raise LabError(f"The lab needs root. Run: {shlex.join(['sudo', *settings, 'bin/lab', *arguments])}")
    absent = sorted({package for thing, package in NEEDED.items() if not (shutil.which(thing) or Path(thing).exists())})
    if absent:
        raise LabError(f"Not installed here: {', '.join(absent)}. Run: {TOP / 'tools' / 'bootstrap.sh'}")
