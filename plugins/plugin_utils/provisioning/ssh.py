# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's own ssh: the key that a host is given, and the proof that its new system answers with it.

The key of a host is made for one order, so a system that answers with it has read this order's config drive.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Mapping

from ...module_utils.common.files_host import locked, publish
from ...module_utils.common.foreign_text import quote_foreign
from ...module_utils.common.own_links_host import follow_links
from .entry import Entry, ProvisionError
from .host_firmware import MOST_BYTES, PROGRAM, read_shown
from .node import BUILD, ORDER, HostKey

PORT = 22
CONNECT = 4  # seconds
COMMAND = 60  # seconds; cloud-init alone takes 15 on a slow system
MOST_OUTPUT = 2000
KILLED = -signal.SIGKILL
NO_END = f"SSH did not answer within {COMMAND} s"

# Ready when cloud-init has nothing left to do; an image without it is asked for its marks only.
QUESTION = f"head -c 200 {BUILD}; echo; head -c 200 {ORDER}; echo; cloud-init status 2>/dev/null | head -n 1"
# Threads of one run take turns here, as in record.py.
_TURN = threading.Lock()


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
    status, output, errors = run(entry, host_key, user, private_key, QUESTION, os.devnull, MOST_OUTPUT)
    return Proof(reason=NO_END) if status == KILLED else read_proof(status, output, errors)


def show_firmware(entry: Entry, host_key: str, user: str, private_key: str) -> Mapping[str, Any]:
    """Return what a host itself shows of its firmware. Raises ProvisionError."""
    command = f"{'' if user == 'root' else 'sudo -n '}python3 -I -"
    status, output, errors = run(entry, host_key, user, private_key, command, str(PROGRAM), MOST_BYTES)
    if status:
        raise ProvisionError(NO_END if status == KILLED else f"SSH: {_last_line(errors) or f'status {status}'}")
    return read_shown(output)


def run(
    entry: Entry, host_key: str, user: str, private_key: str, command: str, sent: str, most: int
) -> tuple[int, bytes, bytes]:
    """Return status, the first bytes of the output, and the last of the errors of a command, which reads a file.

    The status is KILLED where the command does not end in time.
    """
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
        words = ["ssh", "-T", *(word for option in options for word in ("-o", option))]
        words += [*(["-i", private_key] if private_key else []), "-l", user, "--", str(entry.address.ip), command]
        return _run(words, sent, most)


def _run(words: list[str], sent: str, most: int) -> tuple[int, bytes, bytes]:
    try:
        with open(sent, "rb") as file, subprocess.Popen(
            words, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            timer = threading.Timer(COMMAND, _kill, [process])
            timer.start()
            errors = bytearray()
            # Beside the output, because ssh waits where nobody reads the errors.
            reader = threading.Thread(target=_keep_end, args=(process.stderr, errors))
            reader.start()
            try:
                output = process.stdout.read(most + 1) if process.stdout else b""
                if len(output) > most:
                    _kill(process)
                reader.join()
                status = process.wait()
                return (0 if len(output) > most else status), output[:most], bytes(errors)
            finally:
                timer.cancel()
                _kill(process)
    except OSError as exc:
        return 255, b"", f"ssh cannot be started: {exc.strerror}".encode()


def _keep_end(stream: IO[bytes], end: bytearray) -> None:
    for part in iter(lambda: stream.read(MOST_OUTPUT), b""):
        end[:] = (end + part)[-MOST_OUTPUT:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill ssh and what it has started: the ssh of a jump host holds the same pipes open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def read_proof(status: int, output: bytes, errors: bytes) -> Proof:
    """Return the answer of a system from the output of ssh."""
    if status == 255:
        return Proof(reason=f"SSH: {_last_line(errors) or 'no connection'}")
    lines = [*(line.strip() for line in output.decode("utf-8", "replace").split("\n")), "", "", ""]
    lines = [line for line in lines if line][:3]
    cloud_init = next((line for line in lines if line.startswith("status:")), "")
    marks = [line for line in lines if line != cloud_init]
    if len(marks) < 2:
        return Proof(cloud_init=cloud_init, reason=f"the system has no {BUILD} or no {ORDER} yet")
    return Proof(marks[0], marks[1], cloud_init)


def _last_line(errors: bytes) -> str:
    """Return the last line of ssh's errors, which may be what the system there has printed."""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return quote_foreign(lines[-1]) if lines else ""


def follow_known_hosts(path: str) -> Path:
    """Return the file behind links of the user and of root. Raises ProvisionError for a link of anybody else."""
    try:
        return Path(follow_links(path))
    except OSError as exc:
        raise ProvisionError(f"provision_known_hosts: {exc.strerror}") from exc


def trust(file: Path, names: tuple[str, ...], host_key: str) -> None:
    """Put the key of a host into a file of known hosts, in place of other keys of these names.

    Without a key, remove theirs. Raises ProvisionError as follow_known_hosts does, and OSError.
    """
    file = follow_known_hosts(str(file))
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _TURN, locked(f"{file}.lock", wait=30):
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
