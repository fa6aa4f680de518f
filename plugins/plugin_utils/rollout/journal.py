# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a rollout on the controller: one line of JSON for each event.

Each line is on the disk before its step begins, so a journal that breaks off shows where the rollout stopped.
"""

import json
import os
import platform
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Mapping

from ...module_utils.common.files_host import locked, open_regular
from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.processes_host import boot_id, started_at

JOURNAL = "journal.jsonl"
# That of Linux; a larger number is damage, and os.kill refuses it.
_LARGEST_PID = 2**22
# The steps that end the update of a host, by their meaning for the rollout.
DONE_STEPS, FAILED_STEPS = ("done",), ("failed", "rolled_back", "skipped", "out")


class JournalError(Exception):
    """The journal cannot be written; the message is the whole sentence."""


@dataclass
class JournalState:
    """The content of a journal: ``steps`` is the last step of each host; ``result`` is empty until the rollout ends."""

    begun: Mapping[str, Any] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    # By host and instance: the state before the update, and the state after it.
    before: dict[str, dict[str, str]] = field(default_factory=dict)
    after: dict[str, dict[str, str]] = field(default_factory=dict)
    stopped: str = ""
    result: str = ""

    def failed(self) -> dict[str, str]:
        """Return the hosts whose update failed, with their clusters."""
        return {host: self.clusters.get(host, "") for host, step in self.steps.items() if step in FAILED_STEPS}

    def unfinished(self) -> list[str]:
        """Return the hosts whose update has begun and not ended."""
        return [host for host, step in self.steps.items() if step not in (*DONE_STEPS, *FAILED_STEPS)]

    def changed(self) -> list[str]:
        """Return the hosts that the rollout has changed or may have changed."""
        return [host for host, step in self.steps.items() if step in (*DONE_STEPS, "out") or host in self.unfinished()]

    def untouched(self) -> list[str]:
        """Return the hosts whose update has not begun."""
        return [host for host in self.clusters if host not in self.steps]


def shorten(detail: str, most_lines: int = 3, most: int = 300) -> str:
    """Return a detail for people in one line: its first lines. The journal and the report have all of it."""
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    text = " ".join(lines[:most_lines])
    cut = len(lines) > most_lines or len(text) > most
    return f"{text[:most].rstrip()} ... (the rest is in the report)" if cut else text


def new_id(now: float | None = None) -> str:
    """Return a new name for a rollout: the time in UTC and four hexadecimal digits."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now)) + f"-{secrets.token_hex(2)}"


def append(path: str, event: Mapping[str, Any], now: float | None = None) -> None:
    """Add an event to a journal; it is on the disk when this returns. Raises OSError."""
    line = json.dumps({"at": round(time.time() if now is None else now, 3), **event}, ensure_ascii=False) + "\n"
    # The updates of several hosts write from separate processes.
    with locked(f"{path}.lock"), open(path, "a+b", opener=_open_own) as file:
        size = os.fstat(file.fileno()).st_size
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            # A controller that was killed may have left an incomplete line; it must not spoil this one.
            line = "\n" + line
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _open_own(path: str, flags: int) -> int:
    """Open a journal for ``open``: no link leads to another file of this user, also in a directory that is shared."""
    return open_regular(path, flags | os.O_NOFOLLOW)


def read(path: str) -> list[dict[str, Any]]:
    """Return the events of a journal without incomplete lines. Raises OSError."""
    events = []
    with open(path, encoding="utf-8", errors="replace", opener=open_regular) as file:
        for line in file:
            try:
                event = load_json(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                events.append(event)
    return events


def state_of(events: list[dict[str, Any]]) -> JournalState:
    """Return the state that results from the events of a journal."""
    state = JournalState()
    for event in events:
        kind, host = event["event"], str(event.get("host", ""))
        if kind == "begun":
            state.begun = event
        elif kind == "host":
            state.clusters[host] = str(event.get("cluster", ""))
            state.before[host] = _states(event)
        elif kind == "step":
            state.steps[host] = str(event.get("step", ""))
            state.details[host] = str(event.get("detail") or "")
            state.after[host] = _states(event)
        elif kind == "stopped":
            state.stopped = str(event.get("reason", ""))
        elif kind == "ended":
            state.result = str(event.get("result", ""))
    return state


def _states(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the state of each instance in an event; empty where a damaged journal has something else there."""
    states = event.get("states")
    return {str(key): str(digest) for key, digest in states.items()} if isinstance(states, dict) else {}


def may_run(begun: Mapping[str, Any]) -> bool:
    """Return whether a rollout may still run; True for one of another controller, which cannot be checked here."""
    return begun.get("controller", platform.node()) != platform.node() or is_running(begun)


def is_running(begun: Mapping[str, Any]) -> bool:
    """Return whether the process that began a rollout on this controller still runs."""
    pid, started = begun.get("pid"), begun.get("pid_started")
    if not isinstance(pid, int) or not 0 < pid <= _LARGEST_PID or begun.get("boot") != boot_id():
        return False
    if started is None:
        # This system does not report when a process was started.
        return _is_there(pid)
    return bool(started_at(pid) == started)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
