# SPDX-License-Identifier: GPL-3.0-or-later
"""What tasks get of a driver's plan; tests of the action driver_plan run it with a host."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.processes_host import boot_id
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import (
    ConfigFile,
    DriverPlan,
    Host,
    Key,
    Package,
    Repository,
    StackError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.reboot import boot_mark
from ansible_collections.baremetal.inference.plugins.plugin_utils.vendor_stack import action
from ansible_collections.baremetal.inference.plugins.plugin_utils.vendor_stack.action import StackInputs

HOST = Host(
    "ubuntu", "24.04", "noble", "x86_64", "6.8.0", "6.8.0", False, packages={"kept": "1", "held": "2"}, holds=("held",)
)
STATE = {
    "host": HOST.as_dict(), "contents": {"/etc/same": "x", "/etc/other": "y"}, "services": {"runs.service": "active"},
    "findings": [], "active": [], "holders": [], "boot": "b1",
    "later": [{"where": "amdgpu", "what": "the next kernel has no module", "action": "install headers"}],
}  # fmt: skip
PLAN = DriverPlan(
    packages=(Package("driver", "2"), Package("pin", ahead=True), Package("tool")), hold=("kept", "held", "new"),
    files=(ConfigFile("/etc/same", "x"), ConfigFile("/etc/other", "x")), services=("runs.service", "new.service"),
    pins=("pin-1", "pin"),
)  # fmt: skip


def inputs(host=HOST, **state):
    return StackInputs(None, {**STATE, "host": host.as_dict(), **state}, {}, None)


def test_steps_leave_out_what_the_host_has():
    steps = action._steps(PLAN, inputs(), ["chat.service"])
    assert [file["path"] for file in steps["files"]] == ["/etc/other"] and steps["services"] == ["new.service"]
    assert steps["hold"] == ["kept"] and steps["release"] == ["held"] and steps["stop"] == ["chat.service"]
    assert steps["packages"] == ["driver=2", "pin", "tool"] and steps["unpin"] == steps["recover"] == []
    assert action._steps(replace(PLAN, packages=()), inputs(), [])["release"] == []
    assert action._steps(replace(PLAN, reboot=("a new kernel",)), inputs(), [])["services"] == []


def test_repositories_are_files_with_their_keys():
    key = Key("https://repo/key.asc", "/etc/apt/keyrings/x.asc", "AB")
    plan = DriverPlan(repositories=(Repository("x", "https://repo", key, ("noble",), ("main",)),))
    (found,) = action._steps(plan, inputs(), [])["repositories"]
    assert (found["key"], found["key_path"]) == (key.url, key.path) and found["path"].endswith("/x.sources")
    assert "URIs: https://repo\nSuites: noble\n" in found["content"] and key.path in found["content"]


def test_an_interrupted_installation_is_completed_and_unpinned_first():
    steps = action._steps(PLAN, inputs(replace(HOST, unfinished=("driver",))), [])
    assert steps["recover"] == ["driver"] and steps["unpin"] == ["pin-1"]
    found = action._result("cuda", PLAN, inputs(replace(HOST, unfinished=("driver",))), [])
    assert found["before_download"] == ["recover", "unpin"]
    assert (found["ahead"], found["batches"]) == ([], [["driver=2", "tool"], ["pin"]])


def test_packages_that_decide_on_versions_come_first_and_tools_before_what_they_build():
    assert action._batches(PLAN, HOST) == {"ahead": ["pin"], "batches": [["driver=2", "tool"]]}
    assert action._batches(replace(PLAN, in_order=True), HOST)["batches"] == [["tool"], ["driver=2"]]
    assert action._batches(DriverPlan(), HOST) == {"ahead": [], "batches": []}


def test_a_result_says_what_a_failed_upgrade_restores_and_warns_of_the_next_boot():
    found = action._result("cuda", replace(PLAN, pins=("pin-1", "held")), inputs(), [])
    assert found["installed"] == ["kept=1", "held=2", "held=2"] and found["changes"] and found["manager"] == "apt"
    assert found["warnings"] == ["amdgpu: the next kernel has no module; install headers"]
    assert found["mark"]["path"] == "/var/lib/baremetal-cuda/rebooted"
    assert not action._result("cuda", DriverPlan(), inputs(), [])["changes"]


@pytest.mark.parametrize(
    ("plan", "findings", "works"),
    [
        (DriverPlan(), [], True), (DriverPlan(), ["x"], False), (PLAN, [], False),
        (DriverPlan(files=PLAN.files), [], True), (DriverPlan(remove=("x",)), [], False),
        (DriverPlan(reboot=("x",)), [], False),
    ],
)  # fmt: skip
def test_a_driver_works_that_nothing_changes_and_no_finding_is_about(plan, findings, works):
    assert action._works(plan, {"findings": findings}) == works


def holder(pid, unit):
    return {"pid": pid, "command": "python", "unit": unit, "path": "/dev/nvidia0"}


def test_others_that_use_the_chips_stop_a_replacement_and_instances_are_stopped():
    replaces = DriverPlan(replaces="570.1")
    state = {"active": ["vllm@chat.service"], "holders": [holder(1, "vllm@chat.service")]}
    assert "vllm@chat.service" in action._stopping(replaces, state)
    assert action._stopping(DriverPlan(), {"active": [], "holders": [holder(2, "")]}) == ()
    with pytest.raises(
        StackError, match=r"driver 570\.1 is to be replaced, and process 2 .* as have 1 more; stop every"
    ):
        action._stopping(replaces, {**state, "holders": [*state["holders"], holder(2, ""), holder(3, "x.service")]})


def test_a_reboot_needs_permission_and_is_none_of_the_controllers():
    needs, mark = DriverPlan(reboot=("a new kernel",)), {"contents": {}, "boot": "b1"}
    assert action._refused("cuda", DriverPlan(), mark, {"reboot_allowed": False}) is None
    assert action._refused("cuda", needs, mark, {"reboot_allowed": True}) is None
    assert "cuda_reboot_allowed is false" in action._refused("cuda", needs, mark, {"reboot_allowed": False})
    own = {**mark, "boot": boot_id()}
    assert "this host is the controller" in action._refused("cuda", needs, own, {"reboot_allowed": True})
    again = {"contents": {"/var/lib/baremetal-cuda/rebooted": boot_mark("b0", needs.reboot)}, "boot": "b1"}
    assert (action._refused("cuda", needs, again, {"reboot_allowed": True}) or "").startswith(
        "the host was already rebooted"
    )
