# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse to run where Ansible makes variables of what hosts answer.

Any module may answer with ``ansible_facts``. By default Ansible makes a variable of each one, above the whole
inventory, for the host itself, also for the one that a task is delegated for, and with run_once for all. A host that is
taken over would so choose the address of a BMC, the servers of a gateway, or the tasks that the controller runs.
"""

from __future__ import annotations

from ansible import constants


class InjectedFactsError(ValueError):
    """The configuration of Ansible lets a host replace variables; the message says which line to add, and where."""


def refuse_injected_facts() -> None:
    """Raise InjectedFactsError unless Ansible keeps facts apart; releases without the setting always do."""
    if getattr(constants, "INJECT_FACTS_AS_VARS", False):
        where = getattr(constants, "CONFIG_FILE", None) or "no ansible.cfg is in use"
        raise InjectedFactsError(
            f"inject_facts_as_vars: found true ({where}), expected false: otherwise the answer of a host replaces "
            "variables of the inventory; add 'inject_facts_as_vars = false' under [defaults] of your ansible.cfg, or "
            "set ANSIBLE_INJECT_FACT_VARS=false in the environment"
        )
