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

WORDS = {"type": "list", "elements": "str"}
PARTITION = {"type": "str"}
# The options of a stack have no default here, so that one of another stack is an error.
OF_STACK: dict[str, dict[str, dict[str, Any]]] = {
    "cuda": {
        "fabric": {"type": "str", "choices": ["nvswitch", "nvlink5", "none"]},
        "memory": {"type": "dict"},
        "partition": PARTITION,
    },
    "rocm": {"chips": WORDS, "users": WORDS, "userspace": {"type": "bool"}, "partition": PARTITION},
    "cann": {
        "cann_version": {"type": "str"},
        "toolkit": {"type": "bool"},
        "user": {"type": "str"},
        "group": {"type": "str"},
        "nodes": WORDS,
    },
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "stack": {"type": "str", "choices": list(OF_STACK), "required": True},
    "faults": {"type": "dict", "default": {}},
    "minimum_driver": {"type": "str", "default": ""},
    "hold": {"type": "bool", "default": True},
    "offered_of": {**WORDS, "default": []},
    "contents_of": {"type": "list", "elements": "path", "default": []},
    "root": {"type": "path", "default": "/"},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "proc_root": {"type": "path", "default": "/proc"},
    **{name: entry for options in OF_STACK.values() for name, entry in options.items()},
}


def foreign_option(options: Mapping[str, Any]) -> str:
    """Return the error of an option that is of another stack, empty for none."""
    for stack, names in OF_STACK.items():
        for name in names.keys() - OF_STACK[options["stack"]].keys():
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
