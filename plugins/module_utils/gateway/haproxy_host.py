# SPDX-License-Identifier: GPL-3.0-or-later
"""Query and change the HAProxy of this gateway over its admin socket, and save its server states."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Sequence

from ..common.foreign_numbers import read_count
from ..common.foreign_text import quote_foreign
from ..common.unix_socket_host import PART_SECONDS, ask_root
from .servers import ServersError
from .state import READY, VIEW_COMMANDS, HaproxyView, StateError, read_kept_states, read_view
from .workers_host import replaced_sessions

# Seconds for the tool to save the server states.
SAVE_SECONDS = 30.0
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class GatewayPaths:
    """Files of the gateway."""

    socket: str = "/run/haproxy/admin.sock"
    config: str = "/etc/haproxy/haproxy.cfg"
    state_file: str = "/var/lib/haproxy/server-state"
    owners_file: str = "/var/lib/haproxy/drained.json"
    arrivals_file: str = "/var/lib/haproxy/address-arrivals"
    tool: str = "/usr/local/lib/gateway-tool.py"
    usage_file: str = "/var/lib/gateway-usage/usage.sqlite"


class NoAnswerError(ServersError):
    """HAProxy does not answer; it may be restarting."""


class HaproxyHost:
    """The HAProxy of this host."""

    def __init__(self, paths: GatewayPaths) -> None:
        self.paths = paths
        self.name = os.uname().nodename

    def ask(self, command: str) -> str:
        """Return HAProxy's answer to a command. Raises NoAnswerError, and ServersError without permission."""
        path = self.paths.socket
        try:
            return ask_root(path, command)
        except PermissionError as exc:
            raise ServersError(f"{self.name}: {path}: only root may use it; run the task with become: true") from exc
        except OSError as exc:
            raise NoAnswerError(
                f"{self.name}: HAProxy does not answer at {path} ({exc.strerror or exc}); see "
                "'systemctl status haproxy'. If this host is not a gateway yet, run playbooks/gateway.yml"
            ) from exc

    def view(self) -> HaproxyView:
        """Return HAProxy's servers now, including the sessions of replaced workers. Raises ServersError."""
        try:
            view = read_view(self.ask(VIEW_COMMANDS))
        except StateError as exc:
            raise ServersError(
                f"{self.name}: {self.paths.socket}: {exc}, expected the answer of HAProxy 2.6 or later"
            ) from exc
        try:
            older = replaced_sessions(view.pid, {server.port for server in view.servers.values()})
        except OSError as exc:
            raise ServersError(
                f"{self.name}: the kernel does not say which requests the replaced workers of HAProxy still have "
                f"({exc}), expected an answer of sock_diag; load the kernel's module tcp_diag"
            ) from exc
        if not older:
            return view
        servers = {
            name: dataclasses.replace(server, sessions=server.sessions + older.get((server.host, server.port), 0))
            for name, server in view.servers.items()
        }
        return dataclasses.replace(view, servers=servers)

    def wait_for_view(self) -> HaproxyView:
        """Return the view of a HAProxy that has just answered and may be reloading. Raises ServersError."""
        deadline = time.monotonic() + PART_SECONDS
        while True:
            try:
                return self.view()
            except NoAnswerError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def save_states(self) -> None:
        """Save the server states as the systemd unit does, so that they survive a restart. Raises ServersError."""
        paths = self.paths
        words = [sys.executable or "python3", paths.tool, "save", paths.socket, paths.state_file, paths.config]
        try:
            done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=SAVE_SECONDS)
            problem = done.stderr.strip() if done.returncode or done.stderr else ""
        except (OSError, subprocess.TimeoutExpired) as exc:
            problem = str(exc)
        if problem:
            raise ServersError(
                f"{self.name}: HAProxy has the new server states, but {paths.tool} could not save them in "
                f"{paths.state_file} ({quote_foreign(problem)}); run playbooks/gateway.yml, then run this again"
            )

    def address_arrivals(self) -> int:
        """Return how often the shared address has come to this gateway, 0 without a shared address."""
        try:
            with open(self.paths.arrivals_file, encoding="ascii") as file:
                return read_count(file.read(32).strip()) or 0
        except (OSError, ValueError):
            return 0

    def unsaved_servers(self, view: HaproxyView, names: Sequence[str]) -> list[str]:
        """Return the servers that a restart of HAProxy would put into another state."""
        try:
            with open(self.paths.state_file, encoding="utf-8", errors="replace") as file:
                kept = read_kept_states(file.read())
        except OSError:
            kept = {}
        return [name for name in names if kept.get(name, READY) != view.servers[name].state]
