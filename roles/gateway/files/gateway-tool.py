# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gateway's unit and keepalived ask of it.

gateway-tool.py save SOCKET FILE CONFIG   keep the state of the servers, so that a drained one stays drained
gateway-tool.py fit FILE CONFIG           make a kept state fit a configuration that has changed since
gateway-tool.py replace SOCKET MASTER     have HAProxy's master start another worker, and see that it has come
gateway-tool.py health ADDRESS PORT       end with 0 where the gateway answers and has servers
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import sys
import time

TIMEOUT = 5
# Seconds until a new worker answers; it loads the configuration, and tries for two seconds to bind.
START = 30


def save(admin: str, path: str, config: str) -> None:
    """Write the state of all servers to ``path``. A gateway that does not run leaves it as it is."""
    try:
        state = _asked(admin, "show servers state")
    except OSError as exc:
        print(f"{admin}: {exc.strerror or exc}; the state of the servers stays as it was kept last", file=sys.stderr)
        return
    # Half an answer would put the other half of the servers back to work.
    if not state.endswith("\n\n"):
        raise SystemExit(f"{admin}: the state of the servers is not whole; {path} stays as it was")
    _write(path, fitted(state, _read(config)))


def fit(path: str, config: str) -> None:
    """Give a kept state the ports of a configuration; none that is kept is no fault."""
    with contextlib.suppress(FileNotFoundError):
        state = _read(path)
        fresh = fitted(state, _read(config))
        if fresh != state:
            _write(path, fresh)


def fitted(state: str, config: str) -> str:
    """Return a state with the ports of ``config``: HAProxy takes those of the state over those of its configuration.

    Servers that the configuration does not have are left out.
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
    """Have the master start another worker and wait for its answer: where it cannot start, the one before goes on."""
    before = _worker(admin)
    os.kill(int(master), signal.SIGUSR2)
    deadline = time.monotonic() + START
    while _worker(admin) in ("", before):
        if time.monotonic() > deadline:
            raise SystemExit(
                f"HAProxy goes on with what it read before: no new worker has come within {START} s. The lines above "
                "say why; 'cannot bind' means that another process has the port"
            )
        time.sleep(0.1)


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
    """Return the process that answers on the admin socket, nothing where none does."""
    with contextlib.suppress(OSError):
        found = re.search(r"(?m)^Pid: (\d+)$", _asked(admin, "show info"))
        return found.group(1) if found else ""
    return ""


def _asked(admin: str, command: str) -> str:
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
    """Write a file by rename, so that nobody reads half of it."""
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(text)
    os.replace(beside, path)


COMMANDS = {"save": (save, 3), "fit": (fit, 2), "replace": (replace, 2), "health": (health, 2)}


def main() -> None:
    """Do what the command line says."""
    command, wanted = COMMANDS.get((sys.argv[1:] or [""])[0], (None, 0))
    if command is None or len(sys.argv) != wanted + 2:
        raise SystemExit(__doc__)
    if command(*sys.argv[2:]) is False:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
