#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: instance_slot
short_description: Keep what a vLLM instance serves with, and go back to it
version_added: 0.6.0
description:
  - Keeps copies of all files of an instance of the role P(baremetal.inference.vllm#role), its link to the weights and
    the id of its image as a slot below C(/var/lib/vllm/NAME/slots), and restores such a slot.
  - A slot is named after its contents, so that the same state is kept once. It is either complete or does not exist.
  - Downloads nothing and does not wait until the instance is ready; M(baremetal.inference.endpoint) does that.
extends_documentation_fragment: baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Names the files that differ and shows nothing of their contents.
options:
  instance:
    description:
      - Name of the instance. Only O(state=status) works without it, and then returns all instances of the host.
    type: str
  state:
    description:
      - V(kept) makes the installed state the good one; call it after the instance has answered. It refuses an instance
        that does not run, or that runs with other files than those installed.
      - V(restored) goes back to a kept state. It first checks what that state needs; if anything is missing, it changes
        nothing. Then it stops the unit, restores the files and starts the unit.
      - V(status) changes nothing.
    type: str
    choices: [kept, restored, status]
    default: status
  to:
    description:
      - For O(state=restored), V(good) (the last good state), V(previous) (the good one before it), or the name of a
        slot.
      - The links C(good) and C(previous) stay unchanged until the state is kept again.
    type: str
    default: good
  plan:
    description: For O(state=kept), the instance's plan as M(baremetal.inference.serve_plan) returns it; a summary of it
      is kept with the slot.
    type: dict
    default: {}
  record:
    description: For O(state=kept), measured figures, by name. Without it the slot's earlier figures remain.
    type: dict
  keep:
    description: For O(state=kept), how many slots are kept; the good one and the previous one always are.
    type: int
    default: 2
  plans:
    description: For O(state=status), the plans of instances, each as O(plan), by the name of the instance. RV(kept)
      compares the slots with them.
    type: dict
    default: {}
    version_added: 0.7.0
  rewritten:
    description: For check mode, whether the same run would write files of the instance before it keeps the state. The
      state that is installed now is then not the one that would be kept.
    type: bool
    default: false
    version_added: 0.7.0
  root:
    description: Root of the host's files; for tests.
    type: path
    default: /
"""

EXAMPLES = r"""
- name: Keep the verified state
  baremetal.inference.instance_slot:
    instance: chat
    state: kept
  become: true

- name: Restore the last good state
  baremetal.inference.instance_slot:
    instance: chat
    state: restored
  become: true
  register: back

- name: List the kept states of all instances
  baremetal.inference.instance_slot:
  become: true
  register: slots
"""

RETURN = r"""
digest:
  description: Name of the state that is installed; empty where the instance is not installed.
  type: str
  returned: with O(instance)
good:
  description: The last good state (C(digest), C(plan), C(record), C(kept_at)), null where none was kept.
  type: dict
  returned: with O(instance)
previous:
  description: The good state before it in the same form, null where there is none.
  type: dict
  returned: with O(instance)
slots:
  description: All slots in the same form, with C(damage), a list of the problems of each.
  type: list
  elements: dict
  returned: with O(instance)
installed:
  description: Whether the instance has its files on the host.
  type: bool
  returned: with O(instance)
missing:
  description: Files that an instance of this kind needs and that are missing.
  type: list
  elements: str
  returned: with O(instance)
up:
  description: Whether its unit runs or is on its way up.
  type: bool
  returned: with O(instance)
enabled:
  description: Whether its unit starts at boot.
  type: bool
  returned: with O(instance)
  version_added: 0.7.0
kept:
  description:
    - Whether O(state=kept) with the plan of the instance in O(plans) would change nothing; false without such a plan.
  type: bool
  returned: with O(instance)
  version_added: 0.7.0
running_since:
  description: When its process was started (UTC), empty where there is none.
  type: str
  returned: with O(instance)
stale:
  description: Whether the process was started before the newest change of the instance's files, or from another image
    than the one that its name stands for now. A run that ended between writing and restarting leaves this.
  type: bool
  returned: with O(instance)
group:
  description: The C(hosts) and this host's C(role) where the installed instance spans several hosts, else empty.
  type: dict
  returned: with O(instance)
  version_added: 0.7.0
needs_reload:
  description: Whether systemd has not read the unit of the installed instance as it is on disk now.
  type: bool
  returned: with O(instance)
differences:
  description: Files in which the installed state and the requested slot differ.
  type: list
  elements: str
  returned: with O(state=restored)
instances:
  description: The values above, by the name of the instance.
  type: dict
  returned: without O(instance)
stale_instances:
  description: Names of the instances whose C(stale) is true.
  type: list
  elements: str
  returned: without O(instance)
turn:
  description: The mark of a rollout that is updating the host, C(/var/lib/vllm/rollout.json); null without one.
  type: dict
  returned: with O(state=status)
"""

import os
import platform

from ..module_utils.common.door import start_module
from ..module_utils.slots.state import SlotError
from ..module_utils.slots.work_host import do


def main() -> None:
    module = start_module(
        DOCUMENTATION,
        required_if=[("state", "kept", ["instance"]), ("state", "restored", ["instance"])],
    )
    # systemd must be able to enter the directories of its files, whatever root's umask is.
    os.umask(0o022)
    try:
        result = do(module)
    except (SlotError, OSError) as exc:
        who = f"instance {module.params['instance']}: " if module.params["instance"] else ""
        module.fail_json(msg=f"{platform.node()}: {who}{exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
