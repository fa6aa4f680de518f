# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules cuda_state, rocm_state and cann_state have in common: their options and their results."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Mapping, Pattern, Sequence

from ..common.processes_host import boot_id
from .host import Run, active_units, offered_versions, read_holders, read_text, run_command
from .model import Host
from .proof import Finding, describe_findings
from .users import DAEMONS, EXPORTERS, SERVING

ARGUMENTS: dict[str, dict[str, Any]] = {
    "minimum_driver": {"type": "str", "default": ""},
    "hold": {"type": "bool", "default": True},
    "offered_of": {"type": "list", "elements": "str", "default": []},
    "contents_of": {"type": "list", "elements": "path", "default": []},
    "root": {"type": "path", "default": "/"},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "proc_root": {"type": "path", "default": "/proc"},
}


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
