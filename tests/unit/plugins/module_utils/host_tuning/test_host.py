# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.plan import reboot_reasons
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.settings import (
    GRUB_FILE,
    LIMITS_FILE,
    SYSTEMD_FILE,
    TuningError,
)

from tests.unit.plugins.module_utils.host_tuning.conftest import EVERYTHING


def test_every_setting_is_set_and_nothing_is_left_to_do(machine):
    plan = machine.run(EVERYTHING)
    assert {step.setting for step in plan.changes} == {
        "governor", "numa_balancing", "transparent_huge_pages", "acs", "persistence", "power_cap", "limits", "iommu_pt",
    }  # fmt: skip
    assert machine.text("sys/devices/system/cpu/cpufreq/policy1/scaling_governor") == "performance"
    assert machine.text("proc/sys/kernel/numa_balancing") == "0"
    assert machine.acs() == 0
    assert (machine.text("state/mode"), machine.text("state/limit")) == ("Enabled", "500")
    assert machine.text("sys/bus/pci/drivers/amdgpu/0000:05:00.0/hwmon/hwmon3/power1_cap") == "500000000"
    assert "DefaultLimitMEMLOCK=infinity" in machine.text(f"root{SYSTEMD_FILE}")
    assert "intel_iommu=on iommu=pt" in machine.text(f"root{GRUB_FILE}")
    assert machine.text("log").splitlines() == ["systemctl daemon-reexec", "update-grub"]
    # The kernel itself shows the brackets; a file keeps what was written.
    machine.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    assert machine.plan(EVERYTHING)[2].changes == ()


def test_the_way_back_leaves_the_host_as_it_was(kernel):
    before = {name: text.split() for name, text in kernel.snapshot().items() if not name.startswith("sys/bus/pci/dev")}
    kernel.run(EVERYTHING)
    kernel.run({})
    after = {name: text.split() for name, text in kernel.snapshot().items() if not name.startswith("sys/bus/pci/dev")}
    assert after == before and kernel.acs() == 0x1D


def test_one_setting_returns_while_the_others_stay(kernel):
    kernel.run(EVERYTHING)
    plan = kernel.run({**EVERYTHING, "power_cap": 0, "limits": {}})
    assert {step.setting for step in plan.changes} == {"power_cap", "limits"}
    assert kernel.text("state/limit") == "700" and not (kernel.root / LIMITS_FILE[1:]).exists()
    assert kernel.text("proc/sys/kernel/numa_balancing") == "0"


def test_reading_changes_nothing(machine):
    before = machine.snapshot()
    machine.plan(EVERYTHING)
    assert machine.snapshot() == before and not (machine.top / "log").exists()


def test_a_value_that_does_not_take_effect_is_an_error_and_the_way_back_is_kept(machine):
    machine.tool("nvidia-smi", "#!/bin/sh\ncase \"$*\" in *--query*) echo '0, Disabled, 700, 200, 700' ;; esac\n")
    with pytest.raises(TuningError, match="persistence: 0 was set to 'Enabled', and the host has 'Disabled'"):
        machine.run({"persistence": True, "numa_balancing_off": True})
    assert machine.settings().saved()["numa_balancing"] == {"kernel.numa_balancing": "1"}


def test_a_tool_that_fails_is_named_with_its_words(machine):
    machine.tool("nvidia-smi", "#!/bin/sh\necho 'NVML: Driver/library version mismatch'; exit 18\n")
    with pytest.raises(TuningError, match=r"nvidia-smi --query-gpu.* failed: NVML: Driver/library version mismatch"):
        machine.plan({"persistence": True})
    # Nobody asks the tool for anything else.
    machine.plan({"governor": "performance"})


def test_a_kernel_that_refuses_a_write_is_named(machine):
    path = machine.sysfs / "devices/system/cpu/cpufreq/policy0/scaling_governor"
    host, _wanted, plan = machine.plan({"governor": "performance"})
    path.unlink()
    path.mkdir()
    with pytest.raises(TuningError, match="governor: policy0 refused 'performance': Is a directory"):
        host.apply(plan)


def test_arguments_that_the_kernel_has_already_need_no_file(machine):
    machine.write("proc/cmdline", "ro intel_iommu=on iommu=pt\n")
    host, wanted, plan = machine.plan({"iommu_pt": True})
    assert plan.changes == () and reboot_reasons(plan, wanted, host.iommu_words(), host.command_line()) == []


def test_a_host_without_grub_is_refused_before_anything_changes(machine):
    (machine.root / "etc/default/grub").unlink()
    with pytest.raises(TuningError, match=r"has no GRUB .*; add intel_iommu=on iommu=pt to the kernel's command line"):
        machine.plan({"iommu_pt": True})


def test_grubby_gets_and_loses_the_arguments(machine):
    machine.write("state/args", "ro quiet")
    machine.tool(
        "grubby",
        f"""#!/bin/sh
case "$*" in
*--info*) echo "args=\\"$(cat {machine.top}/state/args)\\"" ;;
*--args=*) echo "ro quiet ${{2#--args=}}" > {machine.top}/state/args ;;
*--remove-args=*) echo "$2" > {machine.top}/removed; echo "ro quiet" > {machine.top}/state/args ;;
esac
""",
    )
    machine.run({"iommu_pt": True})
    assert machine.text("state/args") == "ro quiet intel_iommu=on iommu=pt"
    machine.run({})
    assert machine.text("removed") == "--remove-args=intel_iommu=on iommu=pt"


def test_damaged_values_from_before_are_an_error(machine):
    machine.write("root/var/lib/host-tuning/before.json", "{")
    with pytest.raises(TuningError, match=r"before.json: the values from before are damaged .*; delete the file"):
        machine.settings().saved()
