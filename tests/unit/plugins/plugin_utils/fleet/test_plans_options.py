# SPDX-License-Identifier: GPL-3.0-or-later
"""Options and variables that a plan judges for every role, before a host is contacted."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError, HostReader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import plan_fleet

from tests.fakes.planned_fleets import HOST, HostVars, Planner, fleet_of, problem_of


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
