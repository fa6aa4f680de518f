# SPDX-License-Identifier: GPL-3.0-or-later
"""Read once what each task would read again on each host.

Ansible imports an action in its main process, and runs it in a new process for each host. That process forgets what it
has read, but begins with everything that the main process has read before. So an action reads at its import what it
needs on every host, in functions with a cache.
"""

import contextlib
from typing import Callable

from ansible.plugins.loader import filter_loader, test_loader


def preload(*reads: Callable[[], object]) -> None:
    """Call each of ``reads``. An error is left to the task, which reads again and reports it."""
    for read in reads:
        with contextlib.suppress(Exception):
            read()


def load_jinja_plugins() -> None:
    """Load all filters and tests: for the first one that a process uses, Ansible loads them all."""
    filter_loader.get("ansible.builtin.bool")
    filter_loader.get("baremetal.inference.strict_bool")
    test_loader.get("ansible.builtin.defined")
