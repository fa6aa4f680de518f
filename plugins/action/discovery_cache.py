# SPDX-License-Identifier: GPL-3.0-or-later

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils.catalog.accelerators import load_catalogue
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.discovery.cache import read_discovery, write_discovery
from ..plugin_utils.discovery.observations import Answer, DiscoveryError, Entry, merge
from ..plugin_utils.discovery.report import Discovery, Reader, bounded, change_lines, counts_of, report, timestamp

_SSH = re.compile(r"\A(Failed to connect to the host via ssh: |Data could not be sent to remote host .* over ssh: )")
# A diff is read closely, so it may be longer than the summary.
MOST_OF_A_DIFF = 500


class ActionModule(ControllerAction):
    """Keep the answers of all hosts of the play in a file on the controller."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        hosts, path = variables["ansible_play_hosts_all"], options["path"]
        answers = _answers(hosts, variables["hostvars"], options["answers"])
        if not answers:
            raise AnsibleActionFail(f"answers: no host of the play has the variable {options['answers']!r}")
        reader = Reader(load_catalogue(options["catalog_path"]))
        discovery, damage = self._keep(path, answers, {*variables["groups"]["all"], *hosts})
        result: dict[str, Any] = {"changed": bool(discovery.changes), "path": path, **_returned(discovery, reader)}
        if damage:
            result["warnings"] = [f"{damage}; it is rebuilt from the answers of this run"]
        # Display shows the text as it is; a callback would quote it.
        show(report(discovery, path, reader))
        if self._task.diff and discovery.changes:
            lines = bounded(change_lines(discovery, reader), MOST_OF_A_DIFF)
            result["diff"] = {"prepared": "\n".join(lines) + "\n"}
        if len(discovery.silent) == len(answers):
            first, reason = next(iter(discovery.silent.items()))
            result.update(failed=True, msg=f"none of {len(answers)} hosts answered; {first}: {reason}")
        return result

    def _keep(self, path: str, answers: Mapping[str, Answer], known_hosts: set[str]) -> tuple[Discovery, str | None]:
        """Merge the answers into the file; return the result, and the problem of a damaged file."""
        now = timestamp(time.time())
        try:
            before, damage = read_discovery(path), None
        except DiscoveryError as exc:
            before, damage = {}, str(exc)
        after, changes = merge(before, answers, now, known_hosts)
        # A damaged file may still hold answers, so it is replaced only by new ones.
        if not self._task.check_mode and (after or not damage):
            write_discovery(path, after)
        return Discovery(answers, before, after, changes, now), damage


def _answers(hosts: list[str], hostvars: Any, name: str) -> dict[str, Answer]:
    """Return the result that each host registered under a name: its observation, or the reason why it has none."""
    answers: dict[str, Answer] = {}
    for host in hosts:
        # Reading one variable this way is a hundred times cheaper than hostvars[host], which templates.
        registered = hostvars.raw_get(host).get(name)
        if not isinstance(registered, Mapping) or registered.get("skipped"):
            continue
        if "observation" in registered:
            # Plain data: Ansible's values may carry tags.
            answers[host] = json.loads(json.dumps(registered["observation"]))
        else:
            answers[host] = _reason(host, str(registered.get("msg") or "no reason was given"))
    return answers


def _reason(host: str, message: str) -> str:
    """Return why a host gave no answer, without Ansible's prefixes."""
    reason = " ".join(message.split()).removeprefix("Task failed: ").removeprefix(f"{host}: ")
    return _SSH.sub("", reason)[:300]


def _returned(discovery: Discovery, reader: Reader) -> dict[str, Any]:
    """Return the results that a playbook may use."""
    stale: dict[str, Entry] = {host: entry for host, entry in discovery.after.items() if entry.stale_since}
    return {
        "answered": len(discovery.answers) - len(discovery.silent),
        "silent": discovery.silent,
        "accelerators": counts_of(discovery.after, reader),
        "stale": {host: {"at": entry.at, "reason": entry.stale_reason} for host, entry in stale.items()},
        "changes": {kind: list(names) for kind, names in vars(discovery.changes).items() if names},
    }
