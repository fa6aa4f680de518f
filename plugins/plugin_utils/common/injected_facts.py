# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep Ansible from making variables of what hosts answer.

Any module may answer with ``ansible_facts``. By default Ansible makes a variable of each one, above the whole
inventory, for the host itself and also for the one that a task is delegated for, and with run_once for all. A host that
is taken over would so choose the address of a BMC, the servers of a gateway, or the tasks that the controller runs.
"""

import os
import sys

from ansible import constants

SETTING, VARIABLE, KEPT = "INJECT_FACTS_AS_VARS", "ANSIBLE_INJECT_FACT_VARS", "_INJECT_FACTS"


def keep_facts_apart() -> None:
    """Switch that off in this process and those that it starts, whatever an ansible.cfg says.

    Only where Ansible itself asks, before a play has hosts: each task has another process.
    """
    if getattr(constants, SETTING, False):
        setattr(constants, SETTING, False)
        os.environ[VARIABLE] = "false"
    # From ansible-core 2.20 on its modules keep what was set when they were loaded: 2.20's when the first play began,
    # which may be one of somebody else, and 2.21's when Ansible started.
    for name, loaded in [*sys.modules.items()]:
        if name.startswith("ansible.") and hasattr(loaded, KEPT):
            setattr(loaded, KEPT, False)


def injected_facts_warnings() -> list[str]:
    """Return what to add to ansible.cfg, for a play that is none of the collection's; nothing where it is there."""
    if not getattr(constants, SETTING, False):
        return []
    where = getattr(constants, "CONFIG_FILE", None) or "no ansible.cfg is in use"
    return [
        f"inject_facts_as_vars: found true ({where}), expected false: what a host answers can replace variables of the "
        f"inventory; add 'inject_facts_as_vars = false' under [defaults] of your ansible.cfg, or set {VARIABLE}=false"
    ]
