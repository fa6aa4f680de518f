# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.plan import (
    decide,
    describe,
    reboot_reasons,
)
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.settings import Knob, TuningError

GOVERNORS = [Knob("governor", f"policy{number}", "powersave", ("performance", "powersave")) for number in range(3)]
FAST = {"governor": {"": "performance"}}


def pairs(plan):
    return [(step.place, step.before, step.after) for step in plan.changes]


def test_a_requested_value_is_set_where_the_host_has_another():
    mixed = [GOVERNORS[0], GOVERNORS[1]._replace(value="performance")]
    plan = decide(FAST, mixed, {})
    assert pairs(plan) == [("policy0", "powersave", "performance")]
    assert plan.saved == {"governor": {"policy0": "powersave", "policy1": "performance"}}


def test_the_values_from_before_are_those_of_the_first_change():
    fast = [knob._replace(value="performance") for knob in GOVERNORS[:1]]
    plan = decide(FAST, fast, {"governor": {"policy0": "schedutil"}})
    assert plan.changes == () and plan.saved == {"governor": {"policy0": "schedutil"}}


def test_a_setting_that_is_no_longer_requested_returns():
    fast = [knob._replace(value="performance") for knob in GOVERNORS]
    plan = decide({}, fast, {"governor": {"policy0": "powersave", "policy1": "powersave"}})
    # policy2 came later: nobody knows what it was before.
    assert pairs(plan) == [("policy0", "performance", "powersave"), ("policy1", "performance", "powersave")]
    assert plan.saved == {}


def test_a_setting_that_was_never_requested_is_not_touched():
    assert decide({}, GOVERNORS, {}).steps == ()


def test_a_setting_that_the_host_does_not_have_is_noted():
    plan = decide(FAST, [], {})
    assert plan.steps == () and plan.notes == ("governor is requested, and this host has nothing to set there",)


def test_a_value_that_the_host_does_not_take_is_refused():
    with pytest.raises(TuningError, match="host_tuning_governor: policy0 does not accept 'fast'; expected one of perf"):
        decide({"governor": {"": "fast"}}, GOVERNORS, {})


@pytest.mark.parametrize(("watts", "accepted"), [("199", False), ("200", True), ("700", True), ("701", False)])
def test_a_power_cap_outside_of_the_chips_range_is_refused(watts, accepted):
    chip = Knob("power_cap", "0000:1b:00.0", "700", (), 200.0, 700.0)
    if accepted:
        assert decide({"power_cap": {"": watts}}, [chip], {}).steps[0].after == watts
    else:
        with pytest.raises(TuningError, match=f"does not accept {watts}; expected a value from 200 to 700"):
            decide({"power_cap": {"": watts}}, [chip], {})


def test_one_line_stands_for_all_places_with_the_same_values():
    mixed = [*GOVERNORS, Knob("numa_balancing", "kernel.numa_balancing", "0")]
    lines = describe(decide({**FAST, "numa_balancing": {"": "0"}}, mixed, {}).steps)
    assert lines == [
        "governor: powersave -> performance (3 places, from policy0 to policy2)",
        "numa_balancing: 0 (kernel.numa_balancing)",
    ]


def test_kernel_arguments_that_are_not_active_need_a_reboot_even_when_they_are_written():
    wanted = {"iommu_pt": {"/grub": "iommu=pt"}}
    plan = decide(wanted, [Knob("iommu_pt", "/grub", "iommu=pt")], {})
    assert plan.changes == ()
    assert reboot_reasons(plan, wanted, ["iommu=pt"], "ro quiet") == ["the kernel's command line has no iommu=pt yet"]
    assert reboot_reasons(plan, wanted, ["iommu=pt"], "ro iommu=pt") == []


def test_the_way_back_reboots_no_host():
    plan = decide({}, [Knob("iommu_pt", "/grub", "iommu=pt")], {"iommu_pt": {"/grub": ""}})
    assert len(plan.changes) == 1 and reboot_reasons(plan, {}, ["iommu=pt"], "ro") == []
