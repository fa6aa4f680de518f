# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances of a host span several, also where the rest of its inventory cannot be rendered."""

from __future__ import annotations

from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.spanning import spanning_of

GROUPS = {"all": ["a", "b", "c"], "pod": ["a", "b"]}


class HostVars:
    """Ansible's hostvars, as far as they are read."""

    def __init__(self, hosts):
        self.hosts = hosts

    def raw_get(self, name):
        return self.hosts[name]


def found(**variables):
    return spanning_of(["a"], HostVars({"a": variables}), DataLoader(), GROUPS)["a"]


def test_groups_and_lists_of_hosts_are_resolved():
    instances = {"big": {"nodes": "pod"}, "two": {"nodes": ["c", "a"]}, "chat": {}, "odd": None}
    assert found(vllm_instances=instances) == {"big": ["a", "b"], "two": ["c", "a"]}


def test_templates_of_other_values_are_left_alone():
    instances = {"big": {"nodes": as_template("{{ place }}"), "args": as_template("{{ nobody_has_set_this }}")}}
    assert found(vllm_instances=instances, place="pod") == {"big": ["a", "b"]}
    assert found(vllm_instances=as_template("{{ all_of_them }}"), all_of_them={"big": {"nodes": "pod"}}) == {
        "big": ["a", "b"]
    }


def test_what_cannot_be_found_out_is_left_out():
    for instances in (
        None, {}, "text", {"chat": {}}, {"big": {"nodes": "gone"}}, {"big": {"nodes": ["a"]}},
        {"big": {"nodes": as_template("{{ nobody_has_set_this }}")}}, as_template("{{ nobody_has_set_this }}"),
    ):  # fmt: skip
        assert found(vllm_instances=instances) == {}
    assert found() == {}
