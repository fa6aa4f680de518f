# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: selected_hosts
short_description: (internal) The hosts of a play, or an error where there are none
description:
  - Internal to the collection's playbooks.
  - Returns the pattern of a play. Fails if no host of the inventory matches it, or none of those that C(-l) leaves.
    Ansible itself skips the play and reports success.
options:
  _terms:
    description:
      - The default pattern, and before it the name of the variable with which a user sets another.
      - A name that ends in C(_hosts) is deprecated; the variable is C(target_hosts) in all playbooks.
    type: list
    elements: str
    required: true
  also:
    description: The pattern of other plays of the playbook; C(-l) may leave hosts of these only.
    type: str
    default: ""
  only:
    description: The pattern in place of the others, where a playbook continues with hosts of another one.
    type: str
    default: ""
  limited:
    description: Whether C(-l) applies. It does not where a task, and not a play, works on the hosts.
    type: bool
    default: true
"""

RETURN = r"""
_raw:
  description: The pattern.
  type: list
  elements: str
  sample: [inference]
"""

from typing import Any, Mapping

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.common.output import warn
from ..plugin_utils.common.selection import Selection, SelectionError

OPTION = "target_hosts"


def _option(name: str, known: Mapping[str, Any]) -> str:
    """Return the variable that the user has set. Raises AnsibleLookupError where it has its former name, too."""
    if not name.endswith("_hosts"):
        return name
    if name not in known:
        return OPTION
    if OPTION in known:
        raise AnsibleLookupError(f"found {OPTION} and {name}, its former name; leave {name} out")
    warn(f"{name} is deprecated and goes in 0.11.0; write {OPTION}, as in all playbooks")
    return name


class LookupModule(LookupBase):
    """The lookup of the pattern in C(hosts) of a play."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **options: Any) -> list[str]:
        """Return the pattern. Raises AnsibleLookupError where it selects no host."""
        known = variables or {}
        name, default = terms if len(terms) > 1 else ("", *terms)
        only = options.get("only", "")
        option = "" if only else _option(name, known)
        given = self._templar.template(known[option]) if option in known else only or default
        pattern = ",".join(map(str, given)) if isinstance(given, (list, tuple)) else str(given)
        # A check of the syntax has no inventory.
        if not context.CLIARGS.get("syntax"):
            try:
                limit = str(known.get("ansible_limit") or "") if options.get("limited", True) else ""
                selection = Selection(pattern, option, option not in known, limit, options.get("also", ""))
                selection.check(known.get("groups") or {}, self._loader)
            except SelectionError as exc:
                raise AnsibleLookupError(str(exc)) from None
        return [pattern]
