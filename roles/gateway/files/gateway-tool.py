# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands for the gateway's systemd unit and for keepalived.

gateway-tool.py save SOCKET FILE CONFIG   save the server states, so that a drained server stays drained
gateway-tool.py fit FILE CONFIG           adapt a saved state to a configuration that has changed since
gateway-tool.py replace SOCKET MASTER     make HAProxy's master start a new worker, and wait for it
gateway-tool.py health ADDRESS PORT       exit with 0 if the gateway answers and has servers
gateway-tool.py arrived FILE              count that the shared address has come to this gateway
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import re
import signal
import socket
import sys
import time
from typing import Callable

TIMEOUT = 5
# Seconds until a new worker answers: it loads the configuration, and tries to bind for two seconds.
START = 30


def save(admin: str, path: str, config: str) -> None:
    """Write the state of all servers to ``path``; keep the file when HAProxy does not run."""
    try:
        state = _send(admin, "show servers state")
    except OSError as exc:
        print(f"{admin}: {exc.strerror or exc}; the last saved server states are kept", file=sys.stderr)
        return
    # A truncated answer would return the missing servers to service.
    if not state.endswith("\n\n"):
        raise SystemExit(f"{admin}: the answer with the server states is incomplete; {path} is unchanged")
    _write(path, fitted(state, _read(config)))
    _keep_used_budgets(admin)


def _keep_used_budgets(admin: str) -> None:
    """Write HAProxy's map of used budgets to its file, so that the next worker begins with it."""
    found = re.search(r"\((/\S+/over\.map)\)", _send(admin, "show map"))
    if found:
        # Each line begins with the memory address of the entry.
        lines = [line.partition(" ")[2] for line in _send(admin, f"show map {found[1]}").splitlines()]
        _write(found[1], "".join(f"{line}\n" for line in lines if line))


def fit(path: str, config: str) -> None:
    """Set the ports of a saved state to those of a configuration; a missing file is no error."""
    with contextlib.suppress(FileNotFoundError):
        state = _read(path)
        fresh = fitted(state, _read(config))
        if fresh != state:
            _write(path, fresh)


def fitted(state: str, config: str) -> str:
    """Return a state with the ports of ``config``, because HAProxy prefers those of the state to its configuration.

    Servers that are not in the configuration are left out.
    """
    lines = state.splitlines()
    if len(lines) < 2 or not lines[1].startswith("# "):
        return state
    columns = lines[1][2:].split()
    ports, agent = _ports(config)
    kept = []
    for row in (line.split(" ") for line in lines[2:]):
        entry = dict(zip(columns, row))
        port = ports.get((entry.get("be_name", ""), entry.get("srv_name", "")))
        if port:
            entry.update(srv_port=port, srv_agent_port=agent)
            kept.append(" ".join(entry.values()))
    return "\n".join([*lines[:2], *kept, "", ""])


def replace(admin: str, master: str) -> None:
    """Make the master start a new worker and wait for its answer; the old worker continues if it cannot start."""
    # A new worker reads the maps before it takes over the socket: nobody may change them meanwhile (maps_host.py).
    with open(f"{admin}.lock", "a", encoding="ascii", opener=_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _worker(admin)
        os.kill(int(master), signal.SIGUSR2)
        deadline = time.monotonic() + START
        while _worker(admin) in ("", before):
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"HAProxy still runs with its old configuration: no new worker started within {START} s. The lines "
                    "above give the reason; 'cannot bind' means that another process uses the port"
                )
            time.sleep(0.1)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def health(address: str, port: str) -> bool:
    """Return whether the gateway answers and has servers."""
    connection = http.client.HTTPConnection(address, int(port), timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def arrived(path: str) -> None:
    """Add one to the number in a file; a missing or damaged file counts as 0."""
    before = 0
    with contextlib.suppress(FileNotFoundError, ValueError):
        text = _read(path).strip()
        # A larger number is damage, as for those who read it.
        before = int(text) if len(text) <= 18 else 0
    _write(path, f"{before + 1}\n")


def _ports(config: str) -> tuple[dict[tuple[str, str], str], str]:
    """Return the port of each server by backend and name, and the agent's port."""
    ports, backend, agent = {}, "", "0"
    for line in config.splitlines():
        words = line.split()
        if words[:1] == ["backend"]:
            backend = words[1]
        elif words[:1] == ["server"]:
            ports[backend, words[1]] = words[2].rpartition(":")[2]
        found = re.search(r" agent-port (\d+)", line)
        agent = found.group(1) if found else agent
    return ports, agent


def _worker(admin: str) -> str:
    """Return the PID of the process behind the admin socket, an empty string without one."""
    with contextlib.suppress(OSError):
        found = re.search(r"(?m)^Pid: (\d+)$", _send(admin, "show info"))
        return found.group(1) if found else ""
    return ""


def _send(admin: str, command: str) -> str:
    """Return HAProxy's answer to a command on its admin socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(admin)
        connection.sendall(f"{command}\n".encode("ascii"))
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode("ascii")


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    """Write a file by rename, so that nobody reads a part of it, not even after a power failure."""
    beside = f"{path}.{os.getpid()}"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise


COMMANDS: dict[str, tuple[Callable[..., bool | None], int]] = {
    "save": (save, 3),
    "fit": (fit, 2),
    "replace": (replace, 2),
    "health": (health, 2),
    "arrived": (arrived, 1),
}


def main() -> None:
    """Run the command of the command line."""
    command, wanted = COMMANDS.get((sys.argv[1:] or [""])[0], (None, 0))
    if command is None or len(sys.argv) != wanted + 2:
        raise SystemExit(__doc__)
    if command(*sys.argv[2:]) is False:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
