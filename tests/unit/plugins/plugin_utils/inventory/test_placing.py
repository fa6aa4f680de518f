# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and groups in Ansible's own inventory."""

from __future__ import annotations

import pytest
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import EVALUATES_ALL, is_template
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.candidates import Candidate
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.placing import (
    add_groups,
    add_hosts,
    areas_of,
    check_names,
    mark_earlier,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.sorting import SortingError


def candidate(name, **more):
    return Candidate(name, "hosts.yml, line 3", {}, **more)


@pytest.fixture
def inventory():
    return InventoryData()


def test_hosts_keep_their_variables_and_get_new_ones_that_nobody_evaluates(inventory):
    inventory.add_host("gpu-1")
    inventory.set_variable("gpu-1", "kept", 1)
    add_groups(inventory, ["accel"], [("accel", "accel_h200")])
    one = candidate("gpu-1", new={"serial": "{{ lookup('pipe', 'id') }}", "kept": 2})
    add_hosts(inventory, [one, candidate("gpu-2")], {"accel_h200": ["gpu-1", "gpu-2"]})
    own = inventory.hosts["gpu-1"].vars
    assert own["kept"] == 2 and not is_template(own["serial"])
    assert {group.name for group in inventory.hosts["gpu-2"].get_groups()} == {"accel_h200", "accel"}


def test_groups_that_would_be_below_themselves_are_refused(inventory):
    add_groups(inventory, [], [("a", "b")])
    with pytest.raises(SortingError, match="group a cannot be put below b"):
        add_groups(inventory, [], [("b", "a")])


@pytest.mark.parametrize(
    ("name", "groups", "refused"), [("accel", ["accel"], True), ("old", [], True), ("new", [], False)]
)
def test_a_host_has_no_name_of_a_group(inventory, name, groups, refused):
    inventory.add_group("old")
    if refused:
        with pytest.raises(SortingError, match=r"hosts\.yml, line 3: host '.*': a group has this name too; rename"):
            check_names(inventory, [candidate(name)], groups)
    else:
        check_names(inventory, [candidate(name)], groups)


def test_a_host_that_an_earlier_source_named_like_a_group_stays(inventory):
    inventory.add_group("both")
    inventory.add_host("both")
    check_names(inventory, [candidate("both")], [])


def test_a_cluster_below_a_site_of_an_earlier_source_stays_at_that_site(inventory):
    hosts = [candidate("a", cluster="c1", site="fra"), candidate("b", cluster="c1", site="muc")]
    assert "c1" in areas_of(inventory, hosts).split_clusters, "without an earlier source it may span sites"
    for name in ("site_fra", "cluster_c1"):
        inventory.add_group(name)
    inventory.add_child("site_fra", "cluster_c1")
    with pytest.raises(
        SortingError, match=r"host 'b': site: found .muc., but an earlier source has put its cluster 'c1'"
    ):
        areas_of(inventory, hosts)
    assert not areas_of(inventory, hosts[:1]).split_clusters


def test_a_name_that_makes_no_group_is_refused_with_its_host(inventory):
    with pytest.raises(SortingError, match="host 'b': cluster: found 'c_1', and 'c 1' elsewhere"):
        areas_of(inventory, [candidate("a", cluster="c 1"), candidate("b", cluster="c_1")])


@pytest.mark.parametrize(
    ("file", "text", "is_evaluated"),
    [
        ("x.yml", "---\nplugin: netbox.netbox.nb_inventory\n", False), ("x.yaml", '{"plugin": "x"}', False),
        ("x.yml", "all:\n  vars:\n    plugin: x\n  hosts:\n    a: {text: '{{ x }}'}\n", True),
        ("hosts", "[rack]\na text='{{ x }}'\n", True), ("hosts", "[rack]\na\n", False),
        ("service.conf", "# x\n", False),
        ("inventory.py", "#!/usr/bin/env python\n", True), ("vfat.yml", "plugin: x\n", False),
    ],
)  # fmt: skip
def test_texts_of_a_plugin_are_no_templates(tmp_path, inventory, file, text, is_evaluated):
    source = tmp_path / file
    source.write_text(text)
    # On a file system without modes every file is a program.
    source.chmod(0o755)
    inventory.processed_sources += [str(source), "a,b"]
    inventory.add_host("a")
    inventory.hosts["a"].vars.update(text="{{ x }}")
    mark_earlier(inventory, DataLoader())
    # Newer cores evaluate only what they have read from files themselves.
    assert is_template(inventory.hosts["a"].vars["text"]) == (EVALUATES_ALL and is_evaluated)


@pytest.mark.parametrize("source", ["gone.yml", "@service", "/no/such,/netbox.yml"])
def test_a_source_that_cannot_be_read_makes_no_template(inventory, source):
    inventory.processed_sources.append(source)
    inventory.set_variable("all", "text", "{{ 1 }}")
    mark_earlier(inventory, DataLoader())
    assert not is_template(inventory.groups["all"].vars["text"])
