# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: selected_hosts
short_description: (internal) The hosts of a play, or an error where there are none
description:
  - Internal to the collection's playbooks.
  - Returns the pattern of a play. Fails if no host of the inventory matches it, or none of those that C(-l) leaves.
    Ansible itself skips the play and reports success. Fails for a tag that no task of the playbook has, too.
options:
  _terms:
    description: The default pattern, and before it the name of the variable with which a user sets another.
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
  strict:
    description: Whether a group whose name misspells one of the collection is an error. It is a warning where a
      playbook has to work whatever else is wrong, such as the one that ends a leaked key.
    type: bool
    default: false
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

from typing import Any

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.common.injected_facts import keep_facts_apart
from ..plugin_utils.common.output import warn
from ..plugin_utils.common.playbook_options import PlaybookOptionError, refuse_a_limit, refuse_other_names
from ..plugin_utils.common.selection import Selection, SelectionError, check_inventory
from ..plugin_utils.common.tags import TagError, check_tags


class LookupModule(LookupBase):
    """The lookup of the pattern in C(hosts) of a play."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **options: Any) -> list[str]:
        """Return the pattern. Raises AnsibleLookupError where it selects no host."""
        keep_facts_apart()
        known = variables or {}
        option, default = terms if len(terms) > 1 else ("", *terms)
        only, is_limited = options.get("only", ""), options.get("limited", True)
        option = "" if only else option
        given = self._templar.template(known[option]) if option in known else only or default
        pattern = ",".join(map(str, given)) if isinstance(given, (list, tuple)) else str(given)
        # A check of the syntax has no inventory.
        if not context.CLIARGS.get("syntax"):
            try:
                check_tags(context.CLIARGS)
                groups, sources = known.get("groups") or {}, known.get("ansible_inventory_sources") or ()
                # A task sees the inventory's variables, too, which may have any name.
                if "inventory_hostname" not in known:
                    refuse_other_names(known)
                    refuse_a_limit(known if option else {}, {*groups, *groups.get("all", ())})
                for text in check_inventory(groups, tuple(map(str, sources)), options.get("strict", False)):
                    warn(text)
                limit = str(known.get("ansible_limit") or "") if is_limited else ""
                selection = Selection(pattern, option, option not in known, limit, options.get("also", ""))
                selection.check(groups, self._loader)
            except (PlaybookOptionError, SelectionError, TagError) as exc:
                raise AnsibleLookupError(str(exc)) from None
        return [pattern]
