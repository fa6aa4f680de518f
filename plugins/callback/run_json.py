# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: run_json
type: stdout
short_description: One JSON document of what a playbook did and said
version_added: 0.9.0
author:
  - the baremetal.inference authors (@baremetal-inference)
description:
  - Prints nothing while a playbook runs, and one JSON document at its end. C(inference VERB --json) uses it.
  - C(hosts) has for each host how many tasks were C(ok), C(changed), C(failed) and C(unreachable).
  - C(errors) has a row for each task that failed, with C(host), C(task) and C(message).
  - C(messages) has what the playbook showed with M(ansible.builtin.debug), in order; C(warnings) has those of tasks.
  - C(results) has the whole result of each host when C(ansible) runs one module.
  - C(ok) is true when there was a host and nothing failed on any.
"""

from typing import Any, Mapping

from ansible.plugins.callback import CallbackBase

from ..plugin_utils.common.output import problem_of, show_json


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
        self._is_ad_hoc = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._is_ad_hoc = playbook._file_name == "__adhoc_playbook__"

    def v2_runner_on_ok(self, result: Any) -> None:
        values = self._values_of(result)
        # debug marks what it shows.
        if values.get("_ansible_verbose_always"):
            self._messages.append(values.get("msg"))
        if self._is_ad_hoc:
            shown = {key: value for key, value in values.items() if not key.startswith("_ansible")}
            self._results[(getattr(result, "host", None) or result._host).get_name()] = shown

    def _values_of(self, result: Any) -> Mapping[str, Any]:
        """Return what a task returned, and keep its warnings."""
        # ansible-core 2.18 has only the names with the underscore, which 2.23 removes.
        values: Mapping[str, Any] = getattr(result, "result", None) or result._result
        self._warnings += [text for text in map(str, values.get("warnings") or ()) if text not in self._warnings]
        return values

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._add_error(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._add_error(result)

    def _add_error(self, result: Any) -> None:
        host, task = getattr(result, "host", None) or result._host, getattr(result, "task", None) or result._task
        message = problem_of(self._values_of(result))
        self._errors.append({"host": host.get_name(), "task": task.get_name(), "message": message})

    def v2_playbook_on_stats(self, stats: Any) -> None:
        hosts = {}
        for name in sorted(stats.processed):
            found = stats.summarize(name)
            hosts[name] = {"ok": found["ok"], "changed": found["changed"], "failed": found["failures"]}
            hosts[name]["unreachable"] = found["unreachable"]
        is_ok = bool(hosts) and not any(counts["failed"] or counts["unreachable"] for counts in hosts.values())
        document = {"ok": is_ok, "hosts": hosts, "errors": self._errors, "messages": self._messages}
        show_json({**document, "warnings": self._warnings, **({"results": self._results} if self._is_ad_hoc else {})})
