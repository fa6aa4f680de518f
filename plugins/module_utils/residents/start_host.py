# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait before vLLM starts, which needs the memory of the chips, until the others sleep and no other one starts.

The service learns from the unit when the start has ended, so nobody has to give anything back.
"""

import contextlib
import socket
import subprocess
import time

from ..common.lines_host import write_line
from ..instance.marks import unit_of
from .service_host import OWN


def acquire(group: str, name: str, seconds: float) -> None:
    """Wait until an instance may start. Raises SystemExit when the time is up."""
    until = time.monotonic() + seconds
    write_line(f"Waiting for the chips of {group}")
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{OWN}/{group}/socket")
            connection.settimeout(max(0.1, until - time.monotonic()))
            connection.sendall(f"{name}\n".encode())
            if connection.recv(10) == b"go\n":
                return
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))
    # The limit of starts is meant for vLLM's failures.
    subprocess.run(["systemctl", "reset-failed", unit_of(name)], check=False)
    raise SystemExit(
        f"The chips of {group} did not become free in {seconds:.0f} s, another attempt follows; what they wait for: "
        f"journalctl -u vllm-residents@{group}"
    )
