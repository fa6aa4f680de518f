#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: host_tuning
short_description: (internal) Set kernel, PCI and chip settings of a host, and return to the former ones
description:
  - Reads each requested setting, sets it, and reads it again. A value that does not take effect is an error.
  - Keeps the values from before the first change in C(/var/lib/host-tuning/before.json). A setting that is no longer
    requested returns to them.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  governor:
    description: Frequency governor of every processor, such as V(performance); empty for no change.
    type: str
    default: ""
  persistence:
    description: Keep NVIDIA's driver loaded while no process uses a chip.
    type: bool
    default: false
  numa_balancing_off:
    description: Stop the kernel from moving memory between NUMA nodes.
    type: bool
    default: false
  transparent_huge_pages:
    description: When the kernel uses huge pages for a program's memory; empty for no change.
    type: str
    choices: ["", always, madvise, never]
    default: ""
  iommu_pt:
    description: Put the IOMMU into pass-through mode with kernel arguments.
    type: bool
    default: false
  acs_off:
    description: Switch off Access Control Services on the ports of PCIe switches.
    type: bool
    default: false
  limits:
    description: Limits of logins and units, by name; C(memlock) and C(stack) in KiB.
    type: dict
    default: {}
  power_cap:
    description: Power limit of every chip in watts; V(0) for no change.
    type: int
    default: 0
  reboot_allowed:
    description: Whether the host may be rebooted for kernel arguments.
    type: bool
    default: false
  controllers_boot:
    description: The boot_id of the controller's kernel. A host with the same one is never rebooted.
    type: str
    default: ""
  sysfs_root:
    description: Where sysfs is mounted; labs and tests use another tree.
    type: path
    default: /sys
  proc_root:
    description: Where procfs is mounted; labs and tests use another tree.
    type: path
    default: /proc
"""

EXAMPLES = "\n# roles/host_tuning/tasks/set.yml\n"


from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.common.processes_host import boot_id
from ..module_utils.host_tuning.host import REBOOT_MARK, HostSettings
from ..module_utils.host_tuning.plan import decide, describe, reboot_reasons
from ..module_utils.host_tuning.report_host import diff_of, refusal_of
from ..module_utils.host_tuning.settings import TuningError, wanted_of
from ..module_utils.vendor_stack.reboot import boot_mark


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    host = HostSettings(module.params["sysfs_root"], module.params["proc_root"])
    saved = host.saved()
    words = host.iommu_words()
    wanted = wanted_of(module.params, words, host.grubby)
    plan = decide(wanted, host.read({*wanted, *saved}), saved)
    reasons = reboot_reasons(plan, wanted, words, host.command_line())
    refusal = refusal_of(module.params, host, reasons)
    if refusal and not module.check_mode:
        raise TuningError(refusal)
    if not module.check_mode:
        host.apply(plan)
    return {
        "changed": bool(plan.changes) or plan.saved != saved,
        "settings": [step._asdict() for step in plan.steps],
        "lines": describe(plan.steps),
        "notes": list(plan.notes),
        "plan": {"reboot": reasons},
        "no_reboot": refusal,
        "mark": {"path": REBOOT_MARK, "content": boot_mark(boot_id(), reasons)},
        **({"diff": diff_of(plan)} if module._diff and plan.changes else {}),
    }


if __name__ == "__main__":
    main()
