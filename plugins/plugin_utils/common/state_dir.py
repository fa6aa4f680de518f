# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the controller keeps what must outlive a run, if its own options name no other place.

A variable of the environment, because an inventory plugin reads no variables of Ansible.
"""

import os
from typing import Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest

VARIABLE = "BAREMETAL_STATE_DIR"
ROLLOUTS = "rollouts"
DISCOVERY = "discovery"
# The directories, and where each one is without the variable. Results are relative to the run's working directory.
PLACES = {
    ROLLOUTS: "",  # decided by _own_rollouts
    DISCOVERY: "~/.ansible/accelerators",
    "gateway-ca": "",
    # A file.
    "gateway-secret": "",
    "accept-results": "accept-results",
    "bench-results": "bench-results",
    "bmc-logs": "bmc-logs",
    "evaluate-results": "evaluate-results",
    "tune-results": "tune-results",
}


class StateDirError(ValueError):
    """The variable or the name of a directory is invalid; the message is the whole sentence."""


def state_dir(name: str, environment: Mapping[str, str]) -> str:
    """Return the directory ``name`` of PLACES, below $BAREMETAL_STATE_DIR if that is set. Raises StateDirError.

    An empty text means that there is no default.
    """
    if name not in PLACES:
        raise StateDirError(f"state_dir: there is no directory {name!r}; {nearest(name, PLACES)}")
    top = environment.get(VARIABLE, "")
    if not top:
        return _own_rollouts(environment) if name == ROLLOUTS else PLACES[name]
    expanded = os.path.expanduser(top)
    if not os.path.isabs(expanded):
        raise StateDirError(f"{VARIABLE}: found {show_value(top)}, expected an absolute path")
    return os.path.join(os.path.normpath(expanded), name)


def _own_rollouts(environment: Mapping[str, str]) -> str:
    home = environment.get("XDG_STATE_HOME") or environment.get("HOME", "") + "/.local/state"
    return f"{home}/baremetal-inference/{ROLLOUTS}"
