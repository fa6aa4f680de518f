# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError, HostReader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import plan_declared

from tests.fakes.planned_fleets import HOST, INSTANCES, PLACE, HostVars, Planner, fleet_of, problem_of, settings_of


def test_hosts_that_are_served_alike_cost_one_plan():
    found, planner = fleet_of({f"gpu-{number}": dict(HOST) for number in range(50)})
    assert len(planner.asked) == 1
    assert len(found.groups[0].hosts) == 50


def test_hosts_that_differ_in_one_setting_are_planned_for_themselves():
    found, _planner = fleet_of({"a": HOST, "b": {**HOST, "accelerator_count": 4}, "c": HOST})
    assert [group.hosts for group in found.groups] == [["a", "c"], ["b"]]


def test_a_variable_that_no_plan_is_made_from_makes_no_difference():
    _found, planner = fleet_of({"a": HOST, "b": {**HOST, "rack": "r7", "ansible_host": "10.0.0.2"}})
    assert len(planner.asked) == 1


def test_an_instance_that_spans_hosts_is_planned_for_each():
    spans = {**HOST, **PLACE, "vllm_instances": {"chat": {"recipe": "x", "nodes": ["a", "b"]}}}
    _found, planner = fleet_of({"a": {**spans, "ansible_host": "10.0.0.1"}, "b": {**spans, "ansible_host": "10.0.0.2"}})
    assert [host for host, _accelerator, _settings in planner.asked] == ["a", "b"]
    places = {"a": {"address": "10.0.0.1", "interface": "eth1"}, "b": {"address": "10.0.0.2", "interface": "eth1"}}
    assert [settings["members"] for _host, _accelerator, settings in planner.asked] == [places, places]


def test_the_name_of_a_group_stands_for_its_hosts():
    spans = {**HOST, **PLACE, "vllm_instances": {"chat": {"recipe": "x", "nodes": "pod"}}}
    hosts = {name: {**spans, "ansible_host": f"10.0.0.{number}"} for number, name in enumerate("abc", 1)}
    for host in hosts.values():
        host["groups"] = {"all": list(hosts), "pod": ["b", "a"]}
    del hosts["c"]["vllm_instances"]
    found, planner = fleet_of(hosts)
    assert found.problems == {}
    assert [settings["instances"]["chat"]["nodes"] for _host, _accelerator, settings in planner.asked] == [
        ["b", "a"]
    ] * 2
    for host in hosts.values():
        host["groups"] = {"all": list(hosts), "pods": ["b", "a"]}
    assert list(fleet_of(hosts)[0].problems) == [
        "vllm_instances.chat.nodes: the inventory has no group 'pod'; nearest: 'pods'"
    ]


def test_a_host_that_is_not_in_the_inventory_is_no_member():
    text = problem_of(**PLACE, vllm_instances={"chat": {"recipe": "x", "nodes": ["a", "bb"]}})
    assert "vllm_instances.chat.nodes: the inventory has no host 'bb'; known: a" in text


def test_a_host_whose_place_in_the_network_needs_facts_is_planned_once_it_was_contacted():
    spans = {**HOST, "vllm_cluster_network": "10.0.0.0/24", "vllm_instances": {"chat": {"recipe": "x", "nodes": ["a"]}}}
    found, _planner = fleet_of({"a": spans})
    assert list(found.problems) == [
        "a: its address in vllm_cluster_network 10.0.0.0/24 is unknown until Ansible has gathered facts; set "
        "vllm_cluster_address and vllm_cluster_interface for the host"
    ]
    declared = plan_declared(["a"], HostReader(HostVars({"a": spans}), DataLoader()), Planner())
    assert (declared.problems, declared.groups) == ({}, [])


def test_the_defaults_of_the_role_lie_below_a_hosts_variables():
    _accelerator, settings = settings_of(vllm_drain_timeout="90")
    assert (settings["release"], settings["drain_timeout"], settings["cache_root"]) == ("0.33.0", 90, "/var/cache/vllm")
    assert settings["weights_root"] == "/srv/models"


def test_a_default_that_refers_to_another_variable_follows_it():
    _accelerator, settings = settings_of(weights_root="/data/models")
    assert settings["weights_root"] == "/data/models"


@pytest.mark.parametrize(
    ("variables", "engine"),
    [
        ({}, ""),
        ({"container_runtime_engine": "podman"}, "podman"),
        ({"container_runtime_engine": "podman", "vllm_engine": "docker"}, "docker"),
    ],
)
def test_the_engine_is_the_one_that_the_role_container_runtime_is_told_to_install(variables, engine):
    found, _planner = fleet_of({"a": {**HOST, **variables}})
    assert found.groups[0].variables["vllm_engine"] == engine


def test_templates_are_those_of_each_host():
    shared = {"chat": {"recipe": "x", "port": as_template("{{ base_port + 1 }}"), "host": as_template("{{ address }}")}}
    own = {"address": as_template("10.0.0.{{ index }}")}
    hosts = {
        name: {**HOST, **own, "vllm_instances": shared, "base_port": 8000 + index, "index": index}
        for index, name in enumerate("abc")
    }
    found, planner = fleet_of(hosts)
    assert found.problems == {}
    asked = {host: settings["instances"]["chat"] for host, _accelerator, settings in planner.asked}
    # In ansible-core 2.18 the value of a template is a text; the plan turns a port into a number.
    numbered = {host: {**instance, "port": int(instance["port"])} for host, instance in asked.items()}
    assert numbered["a"] == {"recipe": "x", "port": 8001, "host": "10.0.0.0"}
    assert numbered["c"] == {"recipe": "x", "port": 8003, "host": "10.0.0.2"}


def test_a_template_is_rendered_once_for_hosts_with_the_same_values(monkeypatch):
    rendered = []
    original = HostReader._inputs
    monkeypatch.setattr(HostReader, "_inputs", lambda *args: rendered.append(original(*args)) or rendered[-1])
    fleet_of({f"h{number}": {**HOST, "weights_root": "/m"} for number in range(3)})
    assert None not in rendered and len(set(rendered)) == len(rendered) / 3


def test_a_variable_that_is_not_defined_names_variable_and_host():
    text = problem_of(vllm_instances=as_template("{{ nowhere }}"))
    assert "nothing was done: 1 of 1 hosts cannot be planned.\na: vllm_instances: " in text
    assert "'nowhere' is undefined" in text


def test_templates_among_secrets_are_not_rendered():
    boom = as_template("{{ lookup('ansible.builtin.file', '/nowhere') }}")
    _accelerator, settings = settings_of(vllm_secrets={"chat": {"VLLM_API_KEY": boom, "HF_TOKEN": boom}})
    assert settings["secrets"] == {"chat": {"HF_TOKEN": "", "VLLM_API_KEY": ""}}
    assert "vllm_secrets" not in settings


def test_secrets_that_are_no_mapping_are_refused():
    assert "vllm_secrets: found a list, expected a mapping" in problem_of(vllm_secrets=["x"])


@pytest.mark.parametrize(("value", "kind"), [("sk-canary", "a text"), (["sk-canary"], "a list"), (None, "nothing")])
def test_the_secrets_of_an_instance_that_are_no_mapping_are_refused_and_not_shown(value, kind):
    """The letters of a text would become the names of secrets, which plans show."""
    text = problem_of(vllm_secrets={"chat": value})
    assert f"vllm_secrets.chat: found {kind}, expected a mapping of environment variables" in text
    assert "canary" not in text


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"vllm_drain_timeout": "soon"}, "vllm_drain_timeout"),
        ({"accelerator_count": 0}, "accelerator_count: found 0, expected a whole number from 1"),
        ({"accelerator_count": 72}, "accelerator_count: found 72, expected a whole number from 1 to 64"),
        (
            {"accelerator": "gb200", "accelerator_count": "72"},
            "a: accelerator_count: found 72, expected 1 to 4, the chips of one host with NVIDIA GB200; an NVL72 rack "
            "is 18 such hosts; declare each host with its own chips (docs/operate/several-hosts.md)",
        ),
        ({"accelerator": "gb10", "accelerator_count": 2}, "accelerator_count: found 2, expected 1, the chips of one"),
        ({"accelerator_count": "many"}, "accelerator_count: found 'many', expected a whole number"),
        (
            {"accelerator": "h20o"},
            "accelerator 'h20o' of the inventory is in no file of the catalogue; nearest: ",
        ),
    ],
)
def test_a_wrong_variable_is_named(variables, message):
    assert message in problem_of(**variables)


def test_the_problems_of_all_hosts_are_one_error_each_sentence_once():
    bad = {**HOST, "accelerator": "h20o"}
    none = {key: value for key, value in HOST.items() if key != "accelerator"}
    found, _planner = fleet_of({"a": bad, "b": HOST, "c": bad, "d": none})
    with pytest.raises(FleetError) as error:
        found.check("nothing was written")
    lines = str(error.value).splitlines()
    assert lines[0] == "nothing was written: 3 of 4 hosts cannot be planned."
    assert lines[1].startswith("a, c: accelerator 'h20o'") and lines[2].startswith("d: the accelerator is unknown")


def test_a_problem_lists_its_hosts_by_name():
    found, _planner = fleet_of({name: {**HOST, "accelerator": "h20o"} for name in ("gpu-10", "gpu-9", "amd-1")})
    with pytest.raises(FleetError, match="\namd-1, gpu-9, gpu-10: accelerator 'h20o'"):
        found.check("nothing was written")


def test_hosts_without_instances_are_not_counted():
    found, _planner = fleet_of({"mirror-1": {}, "a": HOST, "b": {**HOST, "accelerator": "h20o"}})
    with pytest.raises(FleetError, match="1 of 2 hosts cannot be planned"):
        found.check("nothing was written")


def test_the_same_problem_is_found_once_for_equal_hosts():
    found, planner = fleet_of({"a": HOST, "b": HOST}, Planner("too little memory"))
    assert found.problems == {"too little memory": ["a", "b"]} and len(planner.asked) == 1


def test_without_a_release_the_plan_chooses_it():
    host = {name: value for name, value in HOST.items() if name != "vllm_release"}
    _found, planner = fleet_of({"a": host})
    assert planner.asked[0][2]["release"] == ""


def test_hosts_whose_hardware_is_declared_are_planned_before_they_are_contacted():
    undeclared = {"vllm_instances": INSTANCES, "vllm_release": "0.33.0"}
    by_facts = {**HOST, "vllm_instances": as_template("{{ {ansible_facts.hostname: {'recipe': 'x'}} }}")}
    hosts = {"a": HOST, "b": undeclared, "c": by_facts, "d": {**undeclared, "vllm_verfy": False}}
    planner = Planner("does not fit")
    found = plan_declared(list(hosts), HostReader(HostVars(hosts), DataLoader()), planner)
    assert [host for host, _accelerator, _settings in planner.asked] == ["a"]
    assert found.problems == {
        "vllm_verfy is not an option of the role vllm; nearest: 'vllm_verify'": ["d"],
        "does not fit": ["a"],
    }


def test_hosts_that_declare_nothing_are_left_for_later():
    hosts = {"b": {"vllm_instances": INSTANCES, "vllm_release": "0.33.0"}}
    found = plan_declared(list(hosts), HostReader(HostVars(hosts), DataLoader()), Planner("never"))
    assert (found.problems, found.groups) == ({}, [])


def test_values_that_python_counts_as_equal_stay_different():
    values = (True, 1, 1.0, "1")
    hosts = {f"gpu-{number}": {**HOST, "ansible_managed": value} for number, value in enumerate(values)}
    reader = HostReader(HostVars(hosts), DataLoader())
    found = [dict(reader.read(name))["ansible_managed"] for name in hosts]
    assert found == ["true", "1", "1.0", '"1"']


def test_the_index_of_wheels_is_read_and_a_template_of_it_is_not_rendered():
    assert settings_of()[1]["wheel_index"] == ""
    assert settings_of(vllm_wheel_index="http://mirror/simple/")[1]["wheel_index"] == "http://mirror/simple/"
    assert settings_of(vllm_wheel_index=as_template("{{ facts_of_the_mirror }}"))[1]["wheel_index"]
