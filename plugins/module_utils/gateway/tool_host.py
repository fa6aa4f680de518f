# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gateway's unit and keepalived do with HAProxy: save and fit states, start a new worker, ask for health."""

import contextlib
import http.client
import os
import re
import signal
import time

from ..common.files_host import publish
from ..common.lines_host import write_error
from ..common.unix_socket_host import ask_root
from ..instance.api_host import within
from .admin_socket_host import without_reload
from .server_state import fitted

# Seconds until a new worker answers: it loads the configuration, and tries to bind for two seconds.
START = 30


def save(admin: str, path: str, config: str) -> None:
    """Write the state of all servers to ``path``; keep the file when HAProxy does not run."""
    try:
        state = ask_root(admin, "show servers state")
    except OSError as exc:
        write_error(f"{admin}: {exc.strerror or exc}; the last saved server states are kept")
        return
    # A truncated answer would return the missing servers to service.
    if not state.endswith("\n\n"):
        raise SystemExit(f"{admin}: the answer with the server states is incomplete; {path} is unchanged")
    text = _read(config)
    publish(path, fitted(state, text))
    _keep_used_budgets(admin, text)


def _keep_used_budgets(admin: str, config: str) -> None:
    """Write HAProxy's map of used budgets to the file that its configuration names: the next worker begins with it."""
    found = re.search(r"map_str\((/[^\s,()]+/over\.map)\)", config)
    if found and f"({found[1]})" in ask_root(admin, "show map"):
        # Each line begins with the memory address of the entry.
        lines = [line.partition(" ")[2] for line in ask_root(admin, f"show map {found[1]}").splitlines()]
        publish(found[1], "".join(f"{line}\n" for line in lines if line))


def fit(path: str, config: str) -> None:
    """Set the ports of a saved state to those of a configuration; a missing file is no error."""
    with contextlib.suppress(FileNotFoundError):
        state = _read(path)
        fresh = fitted(state, _read(config))
        if fresh != state:
            publish(path, fresh)


def replace(admin: str, master: str) -> None:
    """Make the master start a new worker and wait for its answer; the old worker continues if it cannot start."""
    # A new worker reads the maps before it takes over the socket: nobody may change them meanwhile (maps_host.py).
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(without_reload(admin))
        except OSError as exc:
            raise SystemExit(f"HAProxy still runs with its old configuration: {exc.filename}: {exc.strerror}") from exc
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


def health(address: str, port: str) -> bool:
    """Return whether the gateway answers and has servers."""
    connection = http.client.HTTPConnection(address, int(port), timeout=2)
    try:
        with contextlib.closing(connection), within(2, connection):
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def arrived(path: str) -> None:
    """Add one to the number in a file; a missing or damaged file counts as 0."""
    before = 0
    with contextlib.suppress(FileNotFoundError, ValueError):
        text = _read(path).strip()
        # A larger number is damage, as for those who read it.
        before = int(text) if len(text) <= 18 else 0
    publish(path, f"{before + 1}\n")


def _worker(admin: str) -> str:
    """Return the PID of the process behind the admin socket, an empty string without one."""
    with contextlib.suppress(OSError):
        found = re.search(r"(?m)^Pid: (\d+)$", ask_root(admin, "show info"))
        return found.group(1) if found else ""
    return ""


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
