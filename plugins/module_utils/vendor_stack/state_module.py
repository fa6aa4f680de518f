# SPDX-License-Identifier: GPL-3.0-or-later
"""The options and results of the module driver_state that are the same for every stack."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Mapping, Pattern, Sequence

from ..common.kinds import show_value
from ..common.processes_host import boot_id
from .host import Run, active_units, offered_versions, read_holders, read_text, run_command
from .model import Host
from .proof import Finding, describe_findings
from .users import DAEMONS, EXPORTERS, SERVING

# The options of a stack have no default, so that one of another stack is an error.
OF_STACK = {
    "cuda": {"fabric", "memory", "partition"},
    "rocm": {"chips", "users", "userspace", "partition"},
    "cann": {"cann_version", "toolkit", "user", "group", "nodes"},
}


def foreign_option(options: Mapping[str, Any]) -> str:
    """Return the error of an option that is of another stack, empty for none."""
    for stack, names in OF_STACK.items():
        for name in names - OF_STACK[options["stack"]]:
            if options[name] is not None:
                found = f"found {show_value(options[name])} with stack {options['stack']}"
                return f"{name}: {found}; it is an option of stack {stack}"
    return ""


def common_state(
    options: Mapping[str, Any], host: Host, findings: Sequence[Finding], nodes: Pattern[str], run: Run = run_command
) -> dict[str, Any]:
    """Return the results that every stack's state has. ``nodes`` matches the paths of the chips' devices."""
    root, proc_root = options["root"], options["proc_root"]
    now = [finding for finding in findings if not finding.later]
    return {
        "host": host.as_dict(),
        "offered": {name: offered_versions(name, host.manager, run) for name in options["offered_of"]},
        "contents": {path: read_text(os.path.join(root, path.lstrip("/"))) for path in options["contents_of"]},
        "boot": boot_id(proc_root),
        "active": active_units(run, (SERVING, *EXPORTERS, *DAEMONS)),
        "holders": [asdict(holder) for holder in read_holders(proc_root, nodes)],
        "findings": [finding.as_dict() for finding in now],
        "later": [finding.as_dict() for finding in findings if finding.later],
        "summary": describe_findings(now),
    }
