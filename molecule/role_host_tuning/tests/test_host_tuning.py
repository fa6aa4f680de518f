# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings after a run, after a boot, and after the way back. Each test goes on from the state of the last one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
INVENTORY = TOP / ".config/molecule/inventory/role"
TREE = "/var/lib/host-settings"
GOVERNOR = f"{TREE}/sys/devices/system/cpu/cpufreq/policy1/scaling_governor"
NUMA = f"{TREE}/proc/sys/kernel/numa_balancing"
ROOTS = {"host_tuning_sysfs_root": f"{TREE}/sys", "host_tuning_proc_root": f"{TREE}/proc"}
REQUESTED = {
    **ROOTS,
    "host_tuning_governor": "performance",
    "host_tuning_numa_balancing_off": True,
    "host_tuning_persistence": True,
    "host_tuning_limits": {"memlock": "unlimited", "nofile": 1048576},
}


def tune(host, *words, **options):
    # All tests of one host run before those of the next, and the last one takes the settings back: only from that host.
    extra = json.dumps({"target_hosts": host.check_output("hostname"), **options})
    command = ["ansible-playbook", "-i", INVENTORY, TOP / "playbooks/host_tuning.yml", "-e", extra, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, timeout=300, check=False
    )
    done.told = f"{done.stdout}\n{done.stderr}"
    return done


def text(host, path):
    return host.file(path).content_string.strip()


def test_the_settings_are_set_and_a_unit_sets_them_at_boot(host):
    assert (text(host, GOVERNOR), text(host, NUMA)) == ("performance", "0")
    unit = host.service("host-tuning.service")
    assert unit.is_running and unit.is_enabled
    assert host.run("host-tuning status").rc == 0


def test_units_get_the_limits(host):
    shown = host.check_output("systemctl show -p DefaultLimitMEMLOCK -p DefaultLimitNOFILE")
    assert sorted(shown.splitlines()) == ["DefaultLimitMEMLOCK=infinity", "DefaultLimitNOFILE=1048576"]
    assert "* hard memlock unlimited" in text(host, "/etc/security/limits.d/90-host-tuning.conf")


def test_what_the_host_does_not_have_is_listed(host):
    done = tune(host, "--check", **REQUESTED)
    assert done.returncode == 0 and "changed=0" in done.stdout, done.told
    assert "persistence is requested, and this host has nothing to set there" in done.stdout


def test_a_boot_that_has_lost_the_settings_sets_them_again(host):
    host.run_test(f"echo powersave > {GOVERNOR}; echo 1 > {NUMA}")
    status = host.run("host-tuning status")
    assert status.rc == 1 and "numa_balancing: 1 -> 0" in status.stdout
    host.run_expect([0], "systemctl restart host-tuning.service")
    assert (text(host, GOVERNOR), text(host, NUMA)) == ("performance", "0")


def test_kernel_arguments_without_permission_to_reboot_stop_the_run_before_anything_changes(host):
    done = tune(host, **{**REQUESTED, "host_tuning_governor": "powersave", "host_tuning_iommu_pt": True})
    assert done.returncode != 0
    # A container has no boot loader of its own, or shares the kernel of the controller.
    assert "has no GRUB" in done.told or "this host is the controller or runs on its kernel" in done.told, done.told
    assert text(host, GOVERNOR) == "performance"


def test_a_governor_that_the_host_does_not_know_is_refused(host):
    done = tune(host, **{**REQUESTED, "host_tuning_governor": "schedutil"})
    assert done.returncode != 0
    assert "does not accept 'schedutil'; expected one of performance, powersave" in done.told
    assert text(host, GOVERNOR) == "performance"


def test_check_mode_shows_the_way_back_and_takes_no_step_of_it(host):
    done = tune(host, "--check", "--diff", **ROOTS)
    assert done.returncode == 0, done.told
    assert (
        "governor of policy1: powersave" in done.stdout and "+numa_balancing of kernel.numa_balancing: 1" in done.stdout
    )
    assert text(host, GOVERNOR) == "performance" and host.service("host-tuning.service").is_running


def test_without_options_the_host_is_as_before_and_nothing_stays(host):
    done = tune(host, **ROOTS)
    assert done.returncode == 0, done.told
    assert (text(host, GOVERNOR), text(host, NUMA)) == ("powersave", "1")
    left = host.check_output(
        "find / -xdev '(' -name '*host-tuning*' -o -path '*/host-tuning/*' ')' -not -path '/proc/*'"
    )
    assert left == ""
    again = tune(host, **ROOTS)
    assert again.returncode == 0 and "changed=0" in again.stdout, again.told
