# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import AcceleratorError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.hardware import accelerator_of, hardware_facts
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError

DETECTED = {"model": "h100", "count": 8, "memory_mib": 81559, "driver_version": "580.1"}


def accelerator_of_variables(variables, catalogue):
    return accelerator_of(hardware_facts(variables, catalogue), catalogue)


def where_from(**variables):
    accelerator = accelerator_of_variables(variables, load_catalogue())
    return accelerator.model, accelerator.count, accelerator.memory_mib


def test_an_accelerator_is_declared_by_variables():
    assert where_from(accelerator="a100", accelerator_count=4, accelerator_memory_gib=40) == ("a100", 4, 40 * 1024)


@pytest.mark.parametrize("value", [0, -1, True, "viel", [2], float("nan"), float("inf"), 10**400])
def test_a_memory_or_number_that_no_chip_has_is_refused_with_its_name(value):
    for name in ("accelerator_memory_gib", "accelerator_count"):
        with pytest.raises(FleetError, match=f"{name}: found .*, expected a number above 0"):
            where_from(**{"accelerator": "a100", name: value})


@pytest.mark.parametrize("value", [595, 580.95, True])
def test_a_version_that_a_template_makes_a_number_is_refused_with_its_name(value):
    for name in ("accelerator_driver_version", "accelerator_cuda_version"):
        with pytest.raises(FleetError, match=f"{name}: found .*, expected a version in quotes"):
            where_from(**{"accelerator": "a100", name: value})


MIXED = {"model": "h100_nvl", "count": 2, "models": {"h100_nvl": 2, "l4": 1}}
NUMBERED = {**MIXED, "numbers": {"h100_nvl": [1, 2], "l4": [0]}}


def test_chips_beside_others_have_the_numbers_of_the_detection():
    catalogue = load_catalogue()
    assert accelerator_of(NUMBERED, catalogue).numbers == (1, 2)
    variables = {"accelerator_detected": NUMBERED}
    assert accelerator_of_variables(variables, catalogue).numbers == (1, 2)
    # The inventory may choose the model of which there are fewer.
    found = accelerator_of_variables({**variables, "accelerator": "l4"}, catalogue)
    assert (found.model, found.count, found.numbers) == ("l4", 1, (0,))
    # What was detected before the host got other chips says nothing.
    assert accelerator_of_variables({**variables, "accelerator": "h200", "accelerator_count": 8}, catalogue).count == 8


@pytest.mark.parametrize(
    "variables",
    [
        {"accelerator_detected": MIXED},
        {"accelerator": "h100_nvl", "accelerator_count": 2, "accelerators": {"h100_nvl": 2, "l4": 1}},
        {"accelerator": "h100_nvl", "accelerator_count": 2, "accelerators": "h100_nvl:2 l4:1"},
        {"accelerator_detected": NUMBERED, "accelerator": "h100_nvl", "accelerator_count": 3},
        {"accelerator_detected": {**NUMBERED, "numbers": {"h100_nvl": ["0", 1]}}},
    ],
)
def test_chips_beside_others_whose_places_are_unknown_are_refused(variables):
    with pytest.raises(
        AcceleratorError,
        match=r"accelerator: the host has l4 beside h100_nvl, so the numbers of its . x h100_nvl depend on the PCI "
        r"addresses of all of them, which were not read; run playbooks/discover\.yml",
    ):
        accelerator_of_variables(variables, load_catalogue())


def test_two_models_of_a_vendor_that_nobody_can_number_are_refused():
    facts = {"model": "ascend_a2", "count": 8, "models": {"ascend_a2": 8, "ascend_310p": 1}}
    with pytest.raises(AcceleratorError, match="nothing says how its driver numbers chips of several models; keep one"):
        accelerator_of(facts, load_catalogue())
    other = {"model": "h200", "count": 8, "models": {"h200": 8, "mi300x": 1}}
    assert accelerator_of(other, load_catalogue()).numbers is None


CPX = {"accelerator": "mi300x", "accelerator_count": 8, "accelerator_partition": "CPX/NPS4"}


def test_each_part_of_a_chip_counts_as_a_chip():
    found = accelerator_of_variables(CPX, load_catalogue())
    assert (found.count, found.memory_mib, found.devices_per_card, found.divided) == (64, 24 * 1024, 8, True)
    assert where_from(**{**CPX, "accelerator_partition": "SPX/NPS1"}) == ("mi300x", 8, 192 * 1024)


MIG = {"accelerator": "h100", "accelerator_count": 8, "accelerator_partition": "7x1g.10gb"}


def test_each_mig_instance_counts_as_a_chip_with_the_memory_of_its_profile():
    found = accelerator_of_variables(MIG, load_catalogue())
    assert (found.count, found.memory_mib, found.devices_per_card, found.divided) == (56, int(8.7 * 1024), 7, True)
    # The detected memory is that of the whole chip.
    seen = {"model": "h200", "count": 1, "memory_mib": 143771}
    assert where_from(accelerator_detected=seen, accelerator_partition="2x3g.71gb") == ("h200", 2, int(66.1 * 1024))
    with pytest.raises(
        AcceleratorError, match=r"accelerator_partition: l40s: found '7x1g.10gb', but NVIDIA lists no MIG"
    ):
        where_from(**{**MIG, "accelerator": "l40s"})


def test_parts_that_were_found_count_and_what_is_declared_goes_before():
    seen = {"model": "mi300x", "count": 8, "memory_mib": 196592, "partition": "DPX/NPS2"}
    assert where_from(accelerator_detected=seen) == ("mi300x", 16, 196592 // 2)
    assert where_from(accelerator_detected=seen, **CPX) == ("mi300x", 64, 196592 // 8)


def test_a_partition_that_a_chip_cannot_have():
    with pytest.raises(
        AcceleratorError, match="accelerator_partition: h200: found 'CPX', expected instances of one MIG profile"
    ):
        where_from(accelerator="h200", accelerator_count=8, accelerator_partition="CPX")


def test_or_by_a_group():
    assert where_from(group_names=["accel_cuda", "accel_hopper", "accel_h200", "x"])[:2] == ("h200", 1)
    assert where_from(group_names=["accel_cpu"])[:2] == ("cpu", 1)


def test_or_by_what_was_found_and_cached():
    assert where_from(accelerator_detected=DETECTED) == ("h100", 8, 81559)
    assert accelerator_of_variables({"accelerator_detected": DETECTED}, load_catalogue()).driver_version == "580.1"


def test_a_group_goes_before_what_was_found():
    assert where_from(group_names=["accel_b200"], accelerator_detected=DETECTED)[:2] == ("b200", 1)


def test_what_is_declared_goes_before_what_was_found():
    assert where_from(accelerator="h100", accelerator_count=2, accelerator_detected=DETECTED)[:2] == ("h100", 2)
    assert where_from(accelerator="b200", accelerator_detected=DETECTED)[:2] == ("b200", 1)


def test_two_groups_that_name_a_model_are_refused():
    with pytest.raises(FleetError, match="several groups that name a model: accel_h100, accel_h200"):
        where_from(group_names=["accel_h100", "accel_h200"])


def test_a_stack_with_the_name_of_a_model_is_no_second_model():
    assert where_from(group_names=["accel_gaudi", "accel_gaudi3"])[0] == "gaudi3"


def test_of_two_kinds_in_one_host_the_one_that_leads_is_planned_for():
    groups = ["accel_h100", "accel_l40s"]
    assert where_from(group_names=groups, accelerator_detected=DETECTED)[0] == "h100"


def test_the_three_ways_to_name_an_accelerator_are_told():
    with pytest.raises(FleetError) as error:
        where_from()
    for words in ("accelerator and accelerator_count", "accel_<model>", "accelerator_detected"):
        assert words in str(error.value)


def test_the_group_of_unknown_chips_is_refused():
    with pytest.raises(FleetError, match="accel_unknown"):
        where_from(group_names=["accel_unknown"])
