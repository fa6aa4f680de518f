# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the journal of a rollout: its beginning, the steps of its hosts, its waves and its end."""

import os
from typing import Any, Mapping

from ...module_utils.common.processes_host import boot_id, started_at
from .events import detail_of, events_of, last_step
from .journal import JOURNAL, append, read, state_of
from .waves import verdict


def write_events(path: str, host: str, rollout: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Write what the options of rollout_journal say about a host. Raises OSError."""
    if options["state"] == "begun":
        _begin(path, rollout)
    for event in events_of(host, options):
        append(path, event)
    if options["state"] in _WAYS:
        _WAYS[options["state"]](path, rollout, options)


def _begin(path: str, rollout: Mapping[str, Any]) -> None:
    """Create the journal, and close those of the rollouts that this one continues."""
    os.makedirs(os.path.dirname(path), mode=0o700)
    # The worker's parent is ansible-playbook itself.
    process = {"pid": os.getppid(), "pid_started": started_at(os.getppid()), "boot": boot_id()}
    for event in rollout["events"]:
        append(path, {**event, **process} if event["event"] == "begun" else event)
    for earlier in rollout["resumes"]:
        append(os.path.join(rollout["directory"], earlier, JOURNAL), {"event": "ended", "result": "interrupted"})


def _waving(path: str, _rollout: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    append(path, {"event": "wave", "wave": options["wave"], "state": "begun"})


def _wave(path: str, rollout: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Close a wave, and the rollout if too many failed: a host whose update never ended cannot be reached."""
    number = options["wave"]
    hosts = [host for names in rollout["waves"][number]["hosts"].values() for host in names]
    state = state_of(read(path))
    for host in hosts:
        if host in state.unfinished() or host in state.untouched():
            turn = rollout["hosts"].get(host, {})
            append(path, last_step(host, state.steps.get(host, ""), turn, options["gateways"]))
    state = state_of(read(path))
    failed = state.failed()
    append(
        path, {"event": "wave", "wave": number, "state": "ended", "failed": [host for host in hosts if host in failed]}
    )
    units = {host: turn["members"][0] for host, turn in rollout["hosts"].items()}
    reason = verdict(rollout["waves"], number, failed, rollout["limits"], units)
    if reason:
        append(path, {"event": "stopped", "reason": reason})


def _end(path: str, _rollout: Mapping[str, Any], _options: Mapping[str, Any]) -> None:
    """Close the journal with the result."""
    state = state_of(read(path))
    result = "stopped" if state.stopped else "failed" if state.failed() else "done"
    append(path, {"event": "ended", "result": result})


def _stop(path: str, _rollout: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Note that the rollout ends here, and why."""
    append(path, {"event": "stopped", "reason": detail_of(options)})


_WAYS = {"waving": _waving, "waved": _wave, "stopped": _stop, "ended": _end}
