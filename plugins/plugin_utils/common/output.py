# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way to the controller's terminal: recipes, and answers of hosts and of BMCs, may hold control characters."""

import json
import re
import shutil
import sys
from collections import Counter
from typing import Any, Iterable, Mapping

from ansible import context
from ansible.utils.display import Display

from ...module_utils.common.foreign_text import escape_lines

# What Ansible puts before the sentence of a module, of a filter and of an action.
_OF_ANSIBLE = re.compile(
    "(Task failed: |Module failed: |Finalization of task args for '[^']*' failed: "
    "|Error while resolving value for '[^']*': |The (filter|lookup) plugin '[^']*' failed: )+"
)
# A worker of Ansible, in which actions print, has no terminal; it inherits this from the process of the callbacks.
_IS_TERMINAL = sys.stdout.isatty()


def show(text: str) -> None:
    """Print a text; what would move the cursor, ring the bell or colour the terminal is escaped."""
    show_progress("")
    Display().display(escape_lines(text))


def show_json(document: Any) -> None:
    """Print a document as JSON that any program can read, in ASCII."""
    Display().display(json.dumps(document, indent=2).replace("\x7f", "\\u007f"))


def show_progress(text: str) -> None:
    """Show on a terminal what happens now, in place of what was shown before; "" removes it."""
    if _IS_TERMINAL:
        columns = shutil.get_terminal_size().columns
        Display().display(f"\r\033[K{escape_lines(text)[: columns - 1]}", newline=False, screen_only=True)
        sys.stdout.flush()


def warn(text: str) -> None:
    """Print a warning; as show() does, and once per run."""
    Display().warning(escape_lines(text))


def escaped(texts: Iterable[Any]) -> list[str]:
    """Return the warnings of a result, which Ansible prints as they are."""
    return [escape_lines(str(text)) for text in texts]


def read_result(result: Any) -> tuple[str, Any, Mapping[str, Any]]:
    """Return the host, the task and the values of a result; ansible-core 2.18 has only the names with underscores."""
    host, task = getattr(result, "host", None) or result._host, getattr(result, "task", None) or result._task
    return host.get_name(), task, getattr(result, "result", None) or result._result


def place_of(result: Any) -> str:
    """Return the host that a result is about; "" for that of a task that runs once, for all hosts.

    A task for a host may run on another one, such as a gateway, and not reach it; problem_of names that of a loop.
    """
    host, task, values = read_result(result)
    if not values.get("unreachable"):
        return "" if task.run_once else host
    items = [each.get("item") for each in _results_of(values) if each.get("unreachable")]
    if items and task.delegate_to:
        return "" if isinstance(items[0], str) else host
    return task.delegate_to if task.delegate_to and "{{" not in task.delegate_to else host


def _results_of(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the results of a loop; a module can answer anything under this name."""
    results = values.get("results")
    return [each for each in results if isinstance(each, Mapping)] if isinstance(results, (list, tuple)) else []


class Books:
    """Tells the end of a run: Ansible ends each of its playbooks with the statistics of all so far."""

    def __init__(self) -> None:
        # `ansible`, which runs one module, has a pattern there.
        books = context.CLIARGS.get("args")
        self._left = len(books) if isinstance(books, (list, tuple)) else 1

    def begin(self) -> None:
        """Note that a playbook begins."""
        self._left -= 1

    def is_end(self, stats: Any) -> bool:
        """Return whether no playbook follows these statistics; after one that fails none does."""
        return self._left <= 0 or bool(stats.failures or stats.dark)


class OwnCounts:
    """Counts what is a host's own: Ansible also counts for one of the hosts what runs once, for all of them."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def add(self, result: Any, key: str) -> None:
        """Count a result under one of the names of Ansible's statistics, where it is its host's own."""
        host, _task, _values = read_result(result)
        self._seen[host, key] += place_of(result) == host

    def correct(self, stats: Any, keys: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return Ansible's statistics of each host, corrected under these names; they know what was rescued."""
        found = {name: stats.summarize(name) for name in sorted(stats.processed)}
        return {
            name: {**counts, **{key: min(counts[key], self._seen[name, key]) for key in keys}}
            for name, counts in found.items()
        }


def as_lines(value: Any) -> str:
    """Return a message as a text; of a list its entries, one on each line."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def problem_of(values: Mapping[str, Any], delegate_to: Any = None) -> str:
    """Return why a task failed, in one line: of a loop the first item that did, of a command what it said last."""
    failed = next((each for each in _results_of(values) if each.get("failed") or each.get("unreachable")), None)
    if failed:
        # An item that names another host, such as a gateway, is the place; the host may know itself by another name.
        is_host, text = failed.get("unreachable") or delegate_to == "{{ item }}", problem_of(failed)
        item = failed.get("item") if is_host else None
        return f"{item}: {text}" if isinstance(item, str) and not text.startswith(f"{item}: ") else text
    message = " ".join(as_lines(values.get("msg") or "it failed without a message").split())
    message = message[found.end() :] if (found := _OF_ANSIBLE.match(message)) else message
    said = str(values.get("stderr") or values.get("module_stderr") or "").strip().splitlines()
    if said and said[-1] not in message:
        message = f"{message}: {said[-1].strip()}"
    return message
