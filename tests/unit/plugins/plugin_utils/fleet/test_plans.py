# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError, HostReader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import plan_declared, plan_fleet
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

INSTANCES = {"chat": {"recipe": "openai/gpt-oss-20b", "port": 8000}}
HOST = {"accelerator": "h200", "accelerator_count": 8, "vllm_release": "0.33.0", "vllm_instances": INSTANCES}

PLACE = {"vllm_cluster_network": "10.0.0.0/24", "vllm_cluster_interface": "eth1"}
DETECTED = {"model": "h100", "count": 8, "memory_mib": 81559, "driver_version": "580.1"}


class HostVars:
    """Stands for Ansible's hostvars: raw variables by host."""

    def __init__(self, hosts):
        self.hosts = hosts

    def raw_get(self, name):
        return {"inventory_hostname": name, "group_names": [], "groups": {"all": list(self.hosts)}, **self.hosts[name]}


class Planner:
    """Stands for plan_host and remembers what it was asked."""

    def __init__(self, problem=None):
        self.asked = []
        self.problem = problem

    def __call__(self, host, accelerator, settings):
        self.asked.append((host, accelerator, settings))
        if self.problem:
            raise PlanError(self.problem)
        return {name: {"host": host, "instance": name, "warnings": []} for name in settings["instances"]}


def fleet_of(hosts, planner=None):
    planner = planner or Planner()
    return plan_fleet(list(hosts), HostReader(HostVars(hosts), DataLoader()), planner), planner


def settings_of(**variables):
    """Return accelerator and settings that the planner is asked with for one host."""
    found, planner = fleet_of({"a": {**HOST, **variables}})
    found.check("nothing was done")
    return planner.asked[0][1:]


def problem_of(**variables):
    found, _planner = fleet_of({"a": {**HOST, **variables}})
    with pytest.raises(FleetError) as error:
        found.check("nothing was done")
    return str(error.value)


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


def test_without_a_release_the_plan_chooses_it():
    host = {name: value for name, value in HOST.items() if name != "vllm_release"}
    _found, planner = fleet_of({"a": host})
    assert planner.asked[0][2]["release"] == ""


def test_a_secret_of_no_instance_is_refused_with_the_nearest_name():
    secrets = {"chta": {"VLLM_API_KEY": "a"}}
    assert (
        "a: vllm_secrets.chta: no host has an instance 'chta', so that nothing would use these secrets; nearest: 'chat'"
    ) in problem_of(vllm_secrets=secrets)


def test_a_secret_of_an_instance_of_another_host_is_accepted():
    shared = {"vllm_secrets": {"chat": {"VLLM_API_KEY": "a"}, "embed": {"VLLM_API_KEY": "b"}}}
    other = {"vllm_instances": as_template("{{ {'embed': {'recipe': 'x', 'port': 8001}} }}")}
    # The other host is not in the play.
    hosts = {"a": {**HOST, **shared}, "b": {**HOST, **shared, **other}}
    found = plan_fleet(["a"], HostReader(HostVars(hosts), DataLoader()), Planner())
    assert found.problems == {}
    assert len(found.groups) == 1


def test_a_misspelt_option_of_a_role_is_a_problem_of_all_its_hosts():
    wrong = {**HOST, "vllm_drain_timout": 5}
    found, planner = fleet_of({"a": wrong, "b": wrong, "c": HOST})
    assert found.problems == {
        "vllm_drain_timout is not an option of the role vllm; nearest: 'vllm_drain_timeout'": ["a", "b"]
    }
    assert len(planner.asked) == 1


def test_a_boolean_that_is_none_is_a_problem():
    assert "a: weights_scrub: found 'maybe', expected true or false" in problem_of(weights_scrub="maybe")


def test_a_variable_that_no_role_reads_is_noted_once_with_its_hosts():
    found, _planner = fleet_of({"a": {**HOST, "vllm_dashboard": "x"}, "b": {**HOST, "vllm_dashboard": "y"}})
    assert found.notes() == ["a, b: the role vllm has no option called vllm_dashboard; nothing reads it"]


def test_an_option_of_gateways_that_only_servers_have_is_noted():
    def noted(gateways, **own):
        groups = {"gateways": gateways, "inference": ["a", "b"]}
        server = {**HOST, "groups": groups, "gateway_admission": "auto", "gateway_host_address": "192.0.2.1"}
        server["gateway_secret"] = "s" * 32
        found, _planner = fleet_of({"a": server, "b": server, "gw": {"groups": groups, **own}})
        return [note for note in found.notes() if "set here" in note]

    told = "gateway_admission: set here, read on the hosts of the group gateways, and set for none of them"
    assert noted(["gw"]) == [f"a, b: {told}"]
    assert noted(["gw"], gateway_admission="off") == []
    # A site without a gateway may have options for one.
    assert noted([]) == []


def test_a_value_of_a_rollout_is_judged_in_the_plan():
    hosts = {"a": {**HOST, "group_names": ["inference"], "rollout_waves": ["500%"]}}
    assert list(fleet_of(hosts)[0].problems) == [
        "rollout_waves[0]: found '500%', expected a number of hosts above 0, or a share such as 25%"
    ]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ansible_hots", "ansible_host"),
        ("ansible_usr", "ansible_user"),
        ("ansible_hosts", "ansible_host"),
        ("ansible_become_pasword", "ansible_become_pass"),
    ],
)
def test_a_misspelt_variable_of_a_connection_is_noted(name, near):
    """Ansible ignores it: it would ask another host, or log in as another user."""
    (note,) = fleet_of({"a": {**HOST, name: "192.0.2.1"}})[0].notes()
    assert note.startswith(f"a: {name} is no variable of Ansible; nearest: '{near}")


@pytest.mark.parametrize(
    "name",
    [
        "ansible_host",
        "ansible_hostname",
        "ansible_facts",
        "ansible_winrm_scheme",
        "ansible_ssh_args",
        "ansible_su_pass",
        "ansible_sftp_executable",
        "ansible_private_key",
    ],
)
def test_other_variables_of_ansible_are_not_noted(name):
    assert fleet_of({"a": {**HOST, name: {}}})[0].notes() == []


SERVER = {
    "bmc": "https://10.1.0.11", "mac": "52:54:00:12:34:56", "address": "10.0.1.11/24", "gateway": "10.0.1.1",
    "root_serial": "S6CKNX0T", "image": "debian13",
}  # fmt: skip


WITH, KEYS = {"provisioner": ["a"]}, "provision_ssh_keys: found"


@pytest.mark.parametrize(
    ("variables", "problems"),
    [
        ({"provision": SERVER}, []),
        ({"provision": {**SERVER, "image": as_template("{{ image }}")}}, []),
        ({"provision": None}, []),
        ({"provision": True}, []),
        (
            {"provision": {**SERVER, "root_seral": "S1"}},
            ["provision.root_seral: there is no such key; nearest: 'root_serial'"],
        ),
        # With a provisioner in the inventory it is no other variable of the site.
        (
            {"provision": "https://10.1.0.11", "groups": {"provisioner": ["a"]}},
            [
                "provision: found 'https://10.1.0.11', expected a mapping with bmc, mac, address, gateway, image",
            ],
        ),
        (
            {"provision": SERVER, "provision_ssh_key": ["x"]},
            ["provision_ssh_key: no playbook reads it; nearest: 'provision_ssh_keys'"],
        ),
        ({"provision": SERVER, "provision_colour": "red"}, []),
        # The site's own, which resemble options, modules and playbooks.
        ({"provision": SERVER, **dict.fromkeys(("provision_disk", "provision_ntp", "provision_os"), "x")}, []),
        ({"provision": SERVER, **dict.fromkeys(("provision_host", "provision_nexts", "provision_ssh_user"), "x")}, []),
        ({"provision": SERVER, "provision_users": ["x"], "mine": as_template("{{ provision_users }}")}, []),
        ({"provision_ssh_key": ["x"]}, []),
        (
            {"provision_ssh_key": ["x"], "groups": WITH},
            ["provision_ssh_key: no playbook reads it; nearest: 'provision_ssh_keys'"],
        ),
        (
            {"provision": SERVER, "provision_ssh_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]},
            [f"{KEYS} a private key, expected public keys as in a file id_ed25519.pub, one an entry"],
        ),
        ({"provision": SERVER, "provision_ssh_keys": "ssh-ed25519 AAAA me"}, []),
        ({"provision": SERVER, "provision_ssh_keys": as_template("{{ mine }}")}, []),
        (
            {"provision_ssh_keys": {}, "groups": WITH},
            [f"{KEYS} a mapping, expected public keys as in a file id_ed25519.pub, one an entry"],
        ),
        (
            {"provision_deadlines": {"ramdsk": 5}, "groups": WITH},
            ["provision_deadlines: there is no phase 'ramdsk'; nearest: 'ramdisk'"],
        ),
        (
            {"provision_deadlines": {"ramdisk": "soon"}, "groups": WITH},
            ["provision_deadlines.ramdisk: found 'soon', expected seconds from 1 to 86400"],
        ),
        (
            {"provision_deadlines": 5, "groups": WITH},
            ["provision_deadlines: found 5, expected a mapping of phases to seconds"],
        ),
        ({"provision_user": "ro ot", "groups": WITH}, ["provision_user: found 'ro ot', expected the name of a user"]),
        (
            {"provision_keep_node": "mabe", "groups": WITH},
            ["provision_keep_node: found 'mabe', expected true or false"],
        ),
        ({"provison": SERVER}, ["no playbook reads provison; nearest: 'provision'"]),
    ],
)
def test_a_server_that_is_switched_off_is_judged_in_the_plan(variables, problems):
    """Before, only provision.yml did, and only after it had reached the provisioner."""
    assert list(fleet_of({"a": {**HOST, **variables}})[0].problems) == problems


def test_two_servers_that_share_a_bmc_are_named_in_the_plan_once_for_both():
    hosts = {name: {**HOST, "provision": SERVER} for name in ("a", "b")}
    hosts["c"] = {**HOST, "provision": {**SERVER, **dict.fromkeys(("bmc", "mac", "address"))}}
    hosts["c"]["provision"].update(bmc="10.1.0.12", mac="52:54:00:12:34:57", address="10.0.1.12/24", root_serial="S12")
    text = "provision.bmc: found https://10.1.0.11 at the hosts a, b, expected each one once; correct the inventory"
    found = fleet_of(hosts)[0]
    assert found.problems == {text: ["a", "b"]}
    with pytest.raises(FleetError, match=r"2 of 3 hosts cannot be planned"):
        found.check("no plan is shown")


def test_chips_that_only_the_inventory_plugin_reads_are_noted_without_it():
    mixed = {**HOST, "accelerators": {"h200": 4, "l40s": 2}}
    (note,) = fleet_of({"a": mixed})[0].notes()
    assert note.startswith("a: accelerators: chips are taken from it by the inventory plugin")
    assert fleet_of({"a": {**mixed, "group_names": ["accel_h200"]}})[0].notes() == []


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (["openai/gtp-oss-20b"], "nearest: 'openai/gpt-oss-20b'"),
        ([{"mdoel": "x"}], "weights_models[0]: "),
        ([5], "weights_models"),
        (["openai/gpt-oss-20b"], ""),
        ("openai/gpt-oss-20b", ""),
        ([as_template("{{ mine }}")], ""),
    ],
)
def test_weights_that_no_manifest_pins_are_refused_in_the_plan(models, said):
    problems = "".join(fleet_of({"a": {**HOST, "weights_models": models}})[0].problems)
    assert said in problems and bool(problems) == bool(said)
    assert problems.startswith("weights_models") == bool(said)


def test_a_server_without_an_entry_is_noted_where_there_is_a_provisioner():
    text = "a: provision: found nothing, so provision.yml passes over this host"
    assert fleet_of({"a": {**HOST, "provision": None, "groups": WITH}})[0].notes() == [text]
    assert fleet_of({"a": {**HOST, "provision": None}})[0].notes() == []


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
