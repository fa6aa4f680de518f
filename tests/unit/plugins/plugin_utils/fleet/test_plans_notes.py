# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan notes, warns of and skips."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError, HostReader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import plan_declared, plan_fleet

from tests.fakes.planned_fleets import DETECTED, HOST, INSTANCES, HostVars, Planner, fleet_of


def test_a_host_without_instances_is_named_and_skipped():
    found, _planner = fleet_of({"mirror": {}, "a": HOST})
    assert found.skipped == ["mirror"]
    assert found.notes() == ["skipped because vllm_instances is empty: mirror"]
    found.forget({"mirrors": ["mirror"]})
    assert found.notes() == []


IDLE = "the host has an accelerator and no vllm_instances, so nothing will be served on it"


@pytest.mark.parametrize(
    ("variables", "idle"),
    [
        ({"accelerator": "b200"}, True),
        ({"group_names": ["inference", "accel_b200"]}, True),
        ({"accelerator_detected": DETECTED}, True),
        ({"accelerator": "b200", "group_names": ["mirrors", "inference"]}, True),
        ({"accelerator": "l40s", "group_names": ["mirrors"]}, False),
        ({"accelerator": "l40s", "group_names": ["gateways"]}, False),
        ({"accelerator": "cpu", "group_names": ["inference", "accel_cpu"]}, False),
        ({}, False),
    ],
)
def test_a_host_with_an_accelerator_and_nothing_to_serve_is_a_warning_of_its_own(variables, idle):
    found, _planner = fleet_of({"b": {**variables, "vllm_instances": {}}, "a": variables})
    (note,) = found.notes()
    assert note.startswith(f"a, b: {IDLE}" if idle else "skipped because vllm_instances is empty: a, b")
    assert bool(found.idle_notes()) == idle


@pytest.mark.parametrize("declared", [None, []])
def test_where_no_host_of_the_inventory_declares_instances_nothing_can_be_rendered(declared):
    hosts = {"a": {"accelerator": "b200", "vllm_instances": declared}, "gw": {"group_names": ["gateways"]}}
    reader = HostReader(HostVars(hosts), DataLoader())
    with pytest.raises(FleetError, match=f"^a: {IDLE}"):
        plan_fleet(list(hosts), reader, Planner()).check_instances(reader)


@pytest.mark.parametrize("others", [
    {"a": HOST},  # -l, or a host that comes
    {"a": {"vllm_instances": {}}},  # said to serve nothing
])  # fmt: skip
def test_a_host_that_serves_nothing_beside_others_is_a_warning(others):
    reader = HostReader(HostVars({"b": {"accelerator": "b200"}, **others}), DataLoader())
    plan_fleet(["b"], reader, Planner()).check_instances(reader)


def test_a_mirror_alone_renders_nothing():
    reader = HostReader(HostVars({"m": {"accelerator": "l40s", "group_names": ["mirrors"]}}), DataLoader())
    plan_fleet(["m"], reader, Planner()).check_instances(reader)


def test_two_hosts_with_one_address_are_a_warning():
    here = {**HOST, "ansible_host": "192.0.2.10", "group_names": ["inference"]}
    found, _planner = fleet_of({"a": here, "b": here})
    told = "b: ansible_host: 192.0.2.10 is the address of a too; give each host its own"
    assert found.notes() == [told]


@pytest.mark.parametrize("other", [
    {"ansible_host": "192.0.2.11"}, {"ansible_port": 2222}, {"ansible_ssh_common_args": "-J bastion-2"},
    {"group_names": ["gateways"]}, {"ansible_connection": "podman"},
])  # fmt: skip
def test_hosts_that_are_reached_otherwise_may_have_one_address(other):
    here = {**HOST, "ansible_host": "192.0.2.10", "group_names": ["inference"]}
    found, _planner = fleet_of({"a": here, "b": {**here, **other}})
    assert found.notes() == []


@pytest.mark.parametrize("way", [
    {"ansible_host": "{{ inventory_hostname }}.site"}, {"ansible_host": "x", "ansible_ssh_args": "-J {{ jump }}"},
    {"ansible_host": "127.0.0.1", "ansible_connection": "local"}, {"ansible_host": ""}, {},
])  # fmt: skip
def test_hosts_whose_addresses_are_not_known_to_be_one_pass(way):
    here = {**HOST, **way, "group_names": ["inference"], "jump": "one"}
    found, _planner = fleet_of({"a": here, "b": {**here, "jump": "two"}})
    assert found.notes() == []


def test_before_hosts_are_contacted_those_with_nothing_to_serve_are_named():
    hosts = {"a": HOST, "b": {"group_names": ["inference", "accel_b200"]}}
    found = plan_declared(list(hosts), HostReader(HostVars(hosts), DataLoader()), Planner())
    assert found.idle_notes()[0].startswith(f"b: {IDLE}")


def test_a_host_with_chips_of_two_models_is_planned_once_it_was_contacted():
    several = {**HOST, "accelerator": "h200", "accelerator_count": 4, "accelerators": "h200:4 l40s:2"}
    seen = {"model": "h200", "count": 4, "models": {"h200": 4, "l40s": 2}, "numbers": {"h200": [2, 3, 4, 5]}}
    hosts = {"a": several, "b": {**several, "accelerator_detected": seen}}
    before = plan_declared(list(hosts), HostReader(HostVars(hosts), DataLoader()), Planner())
    assert (before.problems, [group.hosts for group in before.groups]) == ({}, [["b"]])
    found, _planner = fleet_of(hosts)
    message = next(iter(found.problems))
    assert "the host has l40s beside h200, so the numbers of its 4 x h200 depend on the PCI addresses" in message
    assert found.problems[message] == ["a"]


@pytest.mark.parametrize("plan", [plan_fleet, plan_declared])
@pytest.mark.parametrize("variables", [HOST, {"vllm_instances": {}}, {"vllm_instances": INSTANCES}])
def test_a_group_of_no_accelerator_is_refused_with_the_nearest(plan, variables):
    hosts = {"a": {**variables, "group_names": ["inference", "accel_b20"]}}
    found = plan(list(hosts), HostReader(HostVars(hosts), DataLoader()), Planner())
    message = "the group accel_b20 names no accelerator of the catalogue; nearest: 'accel_b200'"
    assert found.problems == {message: ["a"]}


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"accelerator": "h200"}, True),
        ({"group_names": ["accel_h200"]}, True),
        ({"accelerator": "h200", "accelerator_count": 1}, False),
        ({"accelerator": "h100", "accelerator_detected": DETECTED}, False),
        ({"accelerator_detected": DETECTED}, False),
        ({"accelerator": "b200", "accelerator_detected": DETECTED}, True),
        ({"accelerator": "cpu"}, False),
    ],
)
def test_a_plan_that_assumes_one_chip_is_a_warning(variables, told):
    found, _planner = fleet_of({"a": {"vllm_instances": INSTANCES, **variables}})
    found.check("nothing was done")
    model = variables.get("accelerator", "h200")
    words = f"a: accelerator_count is not set, so the plan is for one {model}; set it to the number of chips that"
    assert [note.startswith(words) for note in found.notes()] == [True] * told


def test_a_number_of_chips_that_is_not_declared_is_left_to_the_host():
    hosts = {"a": {"accelerator": "h200", "vllm_instances": INSTANCES}, "c": {**HOST, "accelerator": "cpu"}}
    planner = Planner()
    plan_declared(list(hosts), HostReader(HostVars(hosts), DataLoader()), planner)
    assert [host for host, _accelerator, _settings in planner.asked] == ["c"]


def test_warnings_of_plans_are_told_once_with_all_hosts():
    def planner(host, accelerator, settings):
        return {name: {"host": host, "instance": name, "warnings": ["careful"]} for name in ("chat", "chat-2")}

    found, _planner = fleet_of({"a": HOST, "b": {**HOST, "accelerator_count": 2}}, planner)
    assert found.notes() == ["a, b: careful"]


def test_a_cached_fact_is_found_among_the_facts():
    facts = {"ansible_facts": {"accelerator_detected": DETECTED}, "vllm_instances": INSTANCES, "accelerator": None}
    _found, planner = fleet_of({"a": facts})
    assert [accelerator.model for _host, accelerator, _settings in planner.asked] == ["h100"]


def test_a_directory_inside_the_inventory_is_noted_once(tmp_path):
    (tmp_path / "recipes").mkdir()
    host = {**HOST, "vllm_recipe_path": [f"{tmp_path}/recipes"]}
    found, _planner = fleet_of({"a": host, "b": {**host, "accelerator_count": 4}})
    (note,) = found.notes([str(tmp_path), "localhost,"])
    assert note.startswith(f"vllm_recipe_path: {tmp_path}/recipes lies in the inventory {tmp_path}, so Ansible reads")
    assert found.notes() == []
