# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gateway's HAProxy, what it keeps of its servers, and the record of who drained them, on the gateway itself."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Callable, Iterator, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.admin_socket_host import ANSWER, ask
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import (
    DRAINED,
    STATUS,
    RecordsError,
    ServersError,
    Turn,
    Wish,
    chosen,
    decide,
    document,
    growth,
    read_records,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.state import (
    LOOK,
    READY,
    StateError,
    View,
    read_kept,
    read_view,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.workers_host import replaced_sessions

# Seconds for an answer of HAProxy, for other turns at this gateway to end, and for the tool.
LOCKED, SAVING = 60.0, 30.0
# A reload reads the kept states before its worker answers here: a drain counts once it has stood for so long.
SETTLE = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
Records = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Paths:
    """Where things are on the gateway."""

    socket: str = "/run/haproxy/admin.sock"
    config: str = "/etc/haproxy/haproxy.cfg"
    state_file: str = "/var/lib/haproxy/server-state"
    owners_file: str = "/var/lib/haproxy/drained.json"
    tool: str = "/usr/local/lib/gateway-tool.py"


@dataclass
class Outcome:
    """What was done, or would be; ``view`` and ``records`` are from afterwards, ``before`` the same from before."""

    names: list[str]
    view: View
    records: Records
    turn: Turn
    changed: bool
    before: tuple[View, Records]
    warnings: list[str]
    waited: float = 0.0

    def idle(self) -> bool:
        """Return whether nothing runs or waits on the servers."""
        return not any(self.view.servers[name].sessions + self.view.servers[name].queued for name in self.names)

    def up(self) -> bool:
        """Return whether all of them are in service, but for those that somebody else holds."""
        return all(self.view.servers[name].serves for name in self.names if name not in self.turn.held)


class Gateway:
    """One gateway, looked at and changed from its own host."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.name = os.uname().nodename
        self.warnings: list[str] = []

    def view(self) -> View:
        """Return HAProxy's servers now, with what still runs in workers that were replaced. Raises ServersError."""
        try:
            view = read_view(self._ask(LOOK))
        except StateError as exc:
            raise ServersError(
                f"{self.name}: {self.paths.socket}: {exc}, expected that of HAProxy 2.6 or later"
            ) from exc
        older = replaced_sessions(view.pid)
        if not older:
            return view
        servers = {
            name: dataclasses.replace(server, sessions=server.sessions + older.get((server.host, server.port), 0))
            for name, server in view.servers.items()
        }
        return dataclasses.replace(view, servers=servers)

    def _view_soon(self) -> View:
        """Look at a HAProxy that has just answered, and may be on its way back."""
        end = time.monotonic() + ANSWER
        while True:
            try:
                return self.view()
            except _SilentError:
                if time.monotonic() > end:
                    raise
            time.sleep(_FIRST_PAUSE)

    def records(self) -> dict[str, dict[str, str]]:
        """Return who drained what; nothing, with a warning, where the file is damaged. Raises ServersError."""
        path, problem = self.paths.owners_file, ""
        try:
            with open(path, encoding="utf-8") as file:
                return read_records(json.load(file))
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise ServersError(f"{self.name}: {path}: cannot be read: {exc.strerror}; run as root (become)") from exc
        except RecordsError as exc:
            problem = str(exc)
        except ValueError as exc:
            problem = f"is no JSON ({exc})"
        text = (
            f"{self.name}: {path}: {problem}; what is drained counts as drained by hand until it is made ready "
            "with force, and the next change writes the file anew"
        )
        if text not in self.warnings:
            self.warnings.append(text)
        return {}

    def turn(self, names: Sequence[str], hosts: Sequence[str], wish: Wish, check: bool) -> Outcome:
        """Look, refuse, set, record and save, while nobody else does. Raises ServersError."""
        quiet = check or wish.state == STATUS
        with contextlib.nullcontext() if quiet else self._alone():
            view, records = self.view(), self.records()
            meant = chosen(view, names, hosts, self.name)
            try:
                turn = decide(view, meant, wish, records)
            except ServersError as exc:
                raise ServersError("\n".join(f"{self.name}: {line}" for line in str(exc).splitlines())) from exc
            stale = [] if wish.state == STATUS else self._unsaved(view, meant)
            outcome = Outcome(
                meant, view, turn.records, turn, bool(turn.changed or stale), (view, records), self.warnings
            )
            if not quiet and outcome.changed:
                self._carry_out(turn, wish.state == DRAINED)
                outcome.view = self._view_soon()
            return outcome

    def wait(self, outcome: Outcome, wish: Wish, seconds: float) -> None:
        """Wait until nothing runs on the drained servers, or the ready ones are up; what a reload lost is set again."""
        began = time.monotonic()
        settled = began + (SETTLE if outcome.turn.commands and wish.state == DRAINED else 0)
        mine = [name for name in outcome.names if name not in outcome.turn.held]
        pause, unanswered = _FIRST_PAUSE, ""
        # A reload may have come before the look after the change.
        worker = outcome.before[0].started
        while True:
            now = time.monotonic()
            outcome.waited = now - began
            done = outcome.idle() if wish.state == DRAINED else all(outcome.view.servers[name].serves for name in mine)
            if not unanswered and now >= settled and (done or outcome.waited >= seconds):
                return
            if unanswered and outcome.waited >= max(seconds, ANSWER):
                raise ServersError(unanswered)
            time.sleep(min(pause, settled - now) if done and now < settled else pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            try:
                if self._look_again(outcome, wish, mine, worker):
                    settled = time.monotonic() + SETTLE
                worker, unanswered = outcome.view.started, ""
            except _SilentError as exc:
                # It is being started again; what was kept of it tells its new process.
                unanswered = str(exc)

    def watch(self, outcome: Outcome, seconds: float) -> None:
        """See for ``seconds`` that servers that are back answer without errors. Raises ServersError."""
        began, silent = time.monotonic(), ""
        names = [name for name in outcome.names if outcome.view.servers[name].serves]
        # From before they were brought back, so that the first request counts.
        first = outcome.before[0]
        while True:
            if outcome.view.started != first.started:
                first = outcome.view
            problems = growth(first, outcome.view, names)
            if problems:
                raise ServersError("\n".join(f"{self.name}: {line}" for line in problems))
            left = seconds - (time.monotonic() - began)
            if left <= 0 and not silent:
                return
            if left <= 0:
                raise ServersError(silent)
            time.sleep(min(_LONGEST_PAUSE, left))
            try:
                outcome.view, silent = self.view(), ""
                chosen(outcome.view, names, (), self.name)
            except _SilentError as exc:
                # It is being started again.
                silent = str(exc)

    def _look_again(self, outcome: Outcome, wish: Wish, mine: Sequence[str], worker: str) -> bool:
        """Look once more; return whether something that a reload since ``worker`` began had lost was set again."""
        outcome.view = self.view()
        chosen(outcome.view, outcome.names, (), self.name)
        if wish.state != DRAINED:
            return False
        lost = [name for name in mine if outcome.view.servers[name].state == READY]
        if not lost:
            return False
        recorded = self.records()
        if outcome.view.started == worker or any(name not in recorded for name in lost):
            raise ServersError(
                f"{self.name}: {', '.join(lost)} was made ready by somebody else while it was being drained; "
                "nothing was stopped, see who needs it"
            )
        again = self.turn(mine, (), wish, False)
        outcome.view, outcome.records = again.view, again.records
        return True

    def _carry_out(self, turn: Turn, draining: bool) -> None:
        """Set, record and save. Whoever is killed in between leaves a record too many, which counts for nothing."""
        if draining:
            self._record(turn.records)
        for command in turn.commands:
            answer = self._ask(command).strip()
            if answer:
                raise ServersError(f"{self.name}: HAProxy refused '{command}': {answer.splitlines()[0]}")
        self._save()
        if not draining:
            self._record(turn.records)

    def _save(self) -> None:
        """Keep the states as the unit does, so that they outlast HAProxy."""
        paths = self.paths
        words = [sys.executable or "python3", paths.tool, "save", paths.socket, paths.state_file, paths.config]
        try:
            done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=SAVING)
            problem = done.stderr.strip() if done.returncode or done.stderr else ""
        except (OSError, subprocess.TimeoutExpired) as exc:
            problem = str(exc)
        if problem:
            raise ServersError(
                f"{self.name}: the servers are set, but {paths.tool} could not keep that in {paths.state_file} "
                f"({problem}); run playbooks/gateway.yml, then this again"
            )

    def _unsaved(self, view: View, names: Sequence[str]) -> list[str]:
        """Return the servers that would be in another state after a restart."""
        try:
            with open(self.paths.state_file, encoding="utf-8", errors="replace") as file:
                kept = read_kept(file.read())
        except OSError:
            kept = {}
        return [name for name in names if kept.get(name, READY) != view.servers[name].state]

    def _record(self, records: Records) -> None:
        path = self.paths.owners_file
        beside = f"{path}.{os.getpid()}"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                json.dump(document(records), file, indent=1)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except OSError as exc:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise ServersError(f"{self.name}: {path}: cannot be written: {exc.strerror}") from exc

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the gateway's lock. Raises ServersError where another turn does not end."""
        path = f"{self.paths.owners_file}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise ServersError(f"{self.name}: {path}: cannot be opened: {exc.strerror}; run as root (become)") from exc
        try:
            if not _until(lambda: _locked(descriptor), LOCKED):
                raise ServersError(
                    f"{self.name}: another run has changed servers here for {LOCKED:.0f} s ({path} is locked); see "
                    "which process holds it, and try again"
                )
            yield
        finally:
            os.close(descriptor)

    def _ask(self, command: str) -> str:
        """Return HAProxy's answer. Raises _SilentError where there is none."""
        path = self.paths.socket
        try:
            return ask(path, command)
        except PermissionError as exc:
            raise ServersError(f"{self.name}: {path} is for root; run the task with become: true") from exc
        except OSError as exc:
            raise _SilentError(
                f"{self.name}: HAProxy does not answer at {path} ({exc.strerror or exc}); see "
                "'systemctl status haproxy'; where this host is no gateway yet, run playbooks/gateway.yml"
            ) from exc


class _SilentError(ServersError):
    """HAProxy does not answer; it may soon."""


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
