# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run in check mode would change, as a short table: hosts that would change alike share a row for each role."""

from collections import defaultdict
from typing import NamedTuple, Sequence

from .tables import by_name, hosts_in_words, table

HEADERS = ("hosts", "role", "changes", "tasks")
# What runs once, for all hosts, such as a certificate on the controller.
ONCE = "(once)"
# Hosts and tasks of a row; the lines above the table have all of them.
MOST_HOSTS, MOST_TASKS = 4, 3


class Change(NamedTuple):
    """A task that would change a host; ``host`` is empty for one that runs once, ``role`` for one of a playbook."""

    host: str
    role: str
    task: str


def change_of(host: str, task: str) -> Change:
    """Return a change by the name of its task, which begins with the role and the file: `vllm : run | Start it`."""
    role, colon, name = task.partition(" : ")
    return Change(host, role if colon else "", (name if colon else task).rpartition(" | ")[2])


def change_table(changes: Sequence[Change], width: int) -> str:
    """Return the table, empty without changes; the roles are in the order in which they run."""
    tasks: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for change in changes:
        tasks[change.role][change.host].append(change.task)
    return table(HEADERS, [row for role, hosts in tasks.items() for row in _rows(role, hosts)], width)


def _rows(role: str, tasks: dict[str, list[str]]) -> list[list[str]]:
    """Return a row for each group of hosts with the same tasks."""
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for host in by_name(tasks):
        alike[tuple(tasks[host])].append(host or ONCE)
    return [
        [hosts_in_words(hosts, MOST_HOSTS), role, f"{len(names):,}", _first_names(names)]
        for names, hosts in alike.items()
    ]


def _first_names(tasks: Sequence[str]) -> str:
    names = list(dict.fromkeys(tasks))
    more = f"; and {len(names) - MOST_TASKS} more" if len(names) > MOST_TASKS else ""
    return f"{'; '.join(names[:MOST_TASKS])}{more}"
