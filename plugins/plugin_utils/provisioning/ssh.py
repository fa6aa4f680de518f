# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's own ssh: the key that a host is given, and the proof that its new system answers with it.

The key of a host is made for one order, so a system that answers with it has read this order's config drive.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ...module_utils.common.files_host import locked, publish
from .entry import Entry
from .node import BUILD, ORDER, HostKey

PORT = 22
CONNECT = 4  # seconds
COMMAND = 20  # seconds
MOST_OUTPUT = 2000

# Ready when cloud-init has nothing left to do; an image without it is asked for its marks only.
QUESTION = f"head -c 200 {BUILD}; echo; head -c 200 {ORDER}; echo; cloud-init status 2>/dev/null | head -n 1"


@dataclass(frozen=True)
class Proof:
    """What a system answered: the build of its image, its order, cloud-init's state; ``reason`` where it did not."""

    build_id: str = ""
    order: str = ""
    cloud_init: str = ""
    reason: str = ""

    @property
    def settled(self) -> bool:
        """Return whether the first boot is over; "error" of cloud-init is an end too."""
        return self.cloud_init in ("", "status: done", "status: error", "status: disabled")


def make_host_key(host: str) -> HostKey:
    """Return a new key for a host; it is never stored on the controller."""
    with tempfile.TemporaryDirectory(prefix="provision-") as directory:
        file = Path(directory) / "key"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host, "-f", str(file)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND)
        public = file.with_suffix(".pub").read_text(encoding="ascii").split()
        return HostKey(" ".join(public[:2]), file.read_text(encoding="ascii"))


def answers(address: str, port: int = PORT) -> bool:
    """Return whether anything accepts connections at the port of SSH."""
    try:
        with socket.create_connection((address, port), CONNECT):
            return True
    except OSError:
        return False


def ask(entry: Entry, host_key: str, user: str, private_key: str) -> Proof:
    """Return what the system with this host key answers at the address of a host."""
    with tempfile.NamedTemporaryFile("w", prefix="known-hosts-", encoding="ascii") as known:
        known.write(f"{entry.host} {host_key}\n")
        known.flush()
        options = [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            f"UserKnownHostsFile={known.name}",
            "GlobalKnownHostsFile=/dev/null",
            f"HostKeyAlias={entry.host}",
            "HostKeyAlgorithms=ssh-ed25519",
            f"ConnectTimeout={CONNECT}",
            "ControlPath=none",
            "LogLevel=ERROR",
        ]
        command = ["ssh", "-T", *(word for option in options for word in ("-o", option))]
        command += [*(["-i", private_key] if private_key else []), "-l", user, "--", str(entry.address.ip), QUESTION]
        try:
            done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND)
        except subprocess.TimeoutExpired:
            return Proof(reason=f"SSH did not answer within {COMMAND} s")
        except OSError as exc:
            return Proof(reason=f"ssh cannot be started: {exc.strerror}")
    return read_proof(done.returncode, done.stdout[:MOST_OUTPUT], done.stderr[-MOST_OUTPUT:])


def read_proof(status: int, output: bytes, errors: bytes) -> Proof:
    """Return the answer of a system from the output of ssh."""
    if status == 255:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        return Proof(reason=f"SSH: {lines[-1] if lines else 'no connection'}")
    lines = [*(line.strip() for line in output.decode("utf-8", "replace").split("\n")), "", "", ""]
    lines = [line for line in lines if line][:3]
    cloud_init = next((line for line in lines if line.startswith("status:")), "")
    marks = [line for line in lines if line != cloud_init]
    if len(marks) < 2:
        return Proof(cloud_init=cloud_init, reason=f"the system has no {BUILD} or no {ORDER} yet")
    return Proof(marks[0], marks[1], cloud_init)


def trust(file: Path, names: tuple[str, ...], host_key: str) -> None:
    """Put the key of a host into a file of known hosts, in place of other keys of these names.

    Without a key, remove theirs.
    """
    file = file.resolve()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(f"{file}.lock", wait=30):
        for name in names if file.exists() else ():
            command = ["ssh-keygen", "-q", "-R", name, "-f", str(file)]
            subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND)
        if not host_key:
            # ssh-keygen leaves a copy with the removed key.
            file.with_name(f"{file.name}.old").unlink(missing_ok=True)
            return
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        separator = "" if not text or text.endswith("\n") else "\n"
        publish(str(file), f"{text}{separator}{','.join(names)} {host_key}\n", 0o600)
