# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: run_json
type: stdout
short_description: One JSON document of what a playbook did and said
version_added: 0.9.0
author:
  - the baremetal.inference authors (@baremetal-inference)
description:
  - Prints nothing while a playbook runs, and one JSON document at its end. C(inference VERB --json) uses it.
  - C(hosts) has for each host how many tasks were C(ok), C(changed), C(failed) and C(unreachable). What fails once, for
    all hosts, is no failure of one of them.
  - C(errors) has a row for each task that failed, with C(host), C(task) and C(message). C(host) is empty where the task
    runs once, for all hosts.
  - C(messages) has what the playbook showed with M(ansible.builtin.debug), in order; C(warnings) has those of tasks.
  - C(changes) has a row for each task that changed a host, or would change it in check mode, with C(host) and C(task).
  - C(fleet), C(instances), C(services) and C(totals) are the rows and the totals of M(baremetal.inference.fleet_page),
    and C(faults) the last faults where it was given them.
  - C(results) has the whole result of each host when C(ansible) runs one module.
  - C(ok) is true when there was a host and nothing failed on any.
"""

from typing import Any, Mapping

from ansible.plugins.callback import CallbackBase

from ..plugin_utils.common.output import Books, OwnCounts, place_of, problem_of, read_result, show_json


class CallbackModule(CallbackBase):
    """Collects what is shown and what fails, and prints the document at the end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "baremetal.inference.run_json"

    def __init__(self) -> None:
        super().__init__()
        self._errors: list[dict[str, str]] = []
        self._messages: list[Any] = []
        self._warnings: list[str] = []
        self._results: dict[str, Any] = {}
        self._rows: dict[str, Any] = {}
        self._changes: list[dict[str, str]] = []
        self._own = OwnCounts()
        self._books = Books()
        self._is_ad_hoc = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._books.begin()
        self._is_ad_hoc = playbook._file_name == "__adhoc_playbook__"

    def v2_runner_on_ok(self, result: Any) -> None:
        host, task, values = self._read(result)
        if values.get("changed") and not self._is_ad_hoc:
            self._changes.append({"host": host, "task": task.get_name()})
        # debug marks what it shows.
        if values.get("_ansible_verbose_always"):
            self._messages.append(values.get("msg"))
        if self._is_ad_hoc:
            self._results[host] = {key: value for key, value in values.items() if not key.startswith("_ansible")}

    def _read(self, result: Any) -> tuple[str, Any, Mapping[str, Any]]:
        """Return what read_result does, and keep the warnings, and the rows of the fleet."""
        host, task, values = read_result(result)
        if task.action == "baremetal.inference.fleet_page" and "rows" in values:
            self._rows = {**values["rows"], "totals": values["totals"]}
        self._warnings += [text for text in map(str, values.get("warnings") or ()) if text not in self._warnings]
        return host, task, values

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._add_error(result, "failures")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._add_error(result, "unreachable")

    def _add_error(self, result: Any, key: str) -> None:
        _host, task, values = self._read(result)
        self._own.add(result, key)
        message = problem_of(values, task.delegate_to)
        self._errors.append({"host": place_of(result), "task": task.get_name(), "message": message})

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if not self._books.is_end(stats):
            return
        words = {"ok": "ok", "changed": "changed", "failed": "failures", "unreachable": "unreachable"}
        counts = self._own.correct(stats, ["failures", "unreachable"])
        hosts = {name: {word: found[key] for word, key in words.items()} for name, found in counts.items()}
        is_ok = bool(hosts) and not stats.failures and not stats.dark
        document = {"ok": is_ok, "hosts": hosts, "errors": self._errors, "messages": self._messages}
        document["changes"] = self._changes
        document |= self._rows
        show_json({**document, "warnings": self._warnings, **({"results": self._results} if self._is_ad_hoc else {})})
