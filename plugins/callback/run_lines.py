# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: run_lines
type: stdout
short_description: (internal) A line for each change and for each error of a playbook
version_added: 0.10.0
author:
  - the baremetal.inference authors (@baremetal-inference)
description:
  - Prints what a playbook shows, a line for each task that changes a host, and one sentence for each task that fails.
  - C(inference VERB) uses it; C(inference VERB -v) has the output of Ansible itself.
  - On a terminal the last line is the task that runs.
  - Check mode ends with a table of what would change, a row for hosts that would change alike in a role.
"""

import atexit
import shutil
from typing import Any, Mapping

from ansible import context
from ansible.plugins.callback import CallbackBase

from ..plugin_utils.common.change_table import Change, change_of, change_table
from ..plugin_utils.common.output import (
    Books,
    OwnCounts,
    as_lines,
    place_of,
    problem_of,
    read_result,
    show,
    show_progress,
    warn,
)

# Columns where no terminal has its own.
WIDTH = 120
# The most characters of an error; -v has the rest.
LONGEST = 1000


class CallbackModule(CallbackBase):
    """Prints a line for each change and for each error."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "baremetal.inference.run_lines"

    def __init__(self) -> None:
        super().__init__()
        self._own = OwnCounts()
        self._books = Books()
        self._changes: list[Change] = []
        self._is_silent = True
        self._changed = "would change" if context.CLIARGS.get("check") else "changed"
        self._tells_silent = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        del playbook
        self._books.begin()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        # A play that goes on without hosts, such as those of status.yml, is followed by one that tells of them.
        self._tells_silent = bool(play.ignore_unreachable)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool = False) -> None:
        del is_conditional
        show_progress(_name(task))

    v2_playbook_on_handler_task_start = v2_playbook_on_cleanup_task_start = v2_playbook_on_task_start

    def v2_runner_on_ok(self, result: Any) -> None:
        values = _values(result)
        if values.get("changed"):
            self._own.add(result, "changed")
            self._changes.append(change_of(place_of(result), _name(read_result(result)[1])))
        # debug marks what it shows.
        if values.get("_ansible_verbose_always") and values.get("msg"):
            self._say(result, as_lines(values["msg"]), False)
        elif values.get("changed"):
            self._say(result, self._changed)

    def v2_on_file_diff(self, result: Any) -> None:
        values = _values(result)
        for each in values.get("results") or [values]:
            if each.get("diff") and each.get("changed"):
                show(self._get_diff(each["diff"]).rstrip())

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._own.add(result, "failures")
            self._say(result, _shortened(problem_of(_values(result), read_result(result)[1].delegate_to)))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._own.add(result, "unreachable")
        if not self._tells_silent:
            self._say(result, f"not reachable: {problem_of(_values(result))}")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        atexit.unregister(self._show_end)
        if self._books.is_end(stats):
            self._show_end(stats, self._is_silent)
        else:
            # A next playbook that Ansible cannot read ends the run without statistics; of its hosts nothing is known.
            atexit.register(self._show_end, stats, False)

    def _show_end(self, stats: Any, is_silent: bool) -> None:
        words = {"changed": self._changed, "failures": "failed", "unreachable": "not reachable"}
        for name, found in self._own.correct(stats, words).items():
            parts = [f"{found[key]} {word}" for key, word in words.items() if found[key]]
            if parts:
                show(f"{name}: {', '.join(parts)}")
        if context.CLIARGS.get("check"):
            self._show_table(stats, is_silent)

    def _show_table(self, stats: Any, is_silent: bool) -> None:
        """Show what would change, or that nothing would where the run has shown nothing else."""
        text = change_table(self._changes, shutil.get_terminal_size((WIDTH, 0)).columns)
        if text:
            show(f"\nWhat would change:\n{text}")
        elif is_silent and stats.processed:
            show(f"Nothing would change; hosts checked: {len(stats.processed):,}")

    def _say(self, result: Any, text: str, with_task: bool = True) -> None:
        self._is_silent = False
        host, task, _values_of = read_result(result)
        parts = [place_of(result), _name(task) if with_task else "", text]
        # A table keeps its columns, and a text that begins with the host needs no other place.
        show(text if "\n" in text or text.startswith(f"{host}: ") else ": ".join(filter(None, parts)))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ...; -v shows the rest"


def _values(result: Any) -> Mapping[str, Any]:
    _host, _task, values = read_result(result)
    for text in values.get("warnings") or ():
        warn(str(text))
    return values


def _name(task: Any) -> str:
    """Return the name of a task, and that of its role without the collection; include_role takes no argument for it."""
    return str(task.get_name()).removeprefix("baremetal.inference.")
