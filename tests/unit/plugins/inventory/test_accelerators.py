# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin between its sources and Ansible's inventory."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleParserError
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.role_options import FACTS, options_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory import source as inventory_source
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.candidates import BMC_NAMES
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.ask import Answer
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import Chips

from tests.fakes.inventory_plugin import inventory_of, parse, write_source

H200 = ["0000:17:00.0 10de 2335 0302 10de 18be 0", "0000:3d:00.0 10de 2335 0302 10de 18be 0"]
H100 = ["0000:17:00.0 10de 2330 0302 10de 16c1 0", "0000:3d:00.0 10de 2330 0302 10de 16c1 0"]
CPU = {
    "arch": "x86_64", "model": "AMD EPYC 9654", "instruction_sets": ["avx2"], "cores": 96, "threads": 192,
    "numa_nodes": 2, "memory_mib": 1547642,
}  # fmt: skip


def discover(directory, stale=None, **hosts):
    """Write a cache of discovery with the PCI functions of hosts, whose names have _ for -."""
    entries = {}
    for name, functions in hosts.items():
        observation = {"functions": functions, "cpu": CPU, "drivers": {}, "memory_mib": {}}
        entry = {"at": "2026-11-20T08:00:00Z", "observation": observation, "stale_since": None, "stale_reason": None}
        entries[name.replace("_", "-")] = {**entry, **(stale or {})}
    (directory / "discovery.json").write_text(json.dumps({"schema": 1, "hosts": entries}))


def test_all_three_forms_of_a_fleet_file_say_the_same(tmp_path):
    variables = {"accelerator": "h200", "accelerator_count": 8, "cluster": "fra1", "site": "de", "rack": "r1"}
    forms = {
        "fleet.json": json.dumps({"hosts": {"gpu-1": variables, "gpu-2": {}}}),
        "fleet.yml": "hosts:\n"
        "  gpu-1: {accelerator: h200, accelerator_count: 8, cluster: fra1, site: de, rack: r1}\n"
        "  gpu-2:\n",
        "fleet.csv": "name,accelerator,accelerator_count,cluster,site,rack\ngpu-1,h200,8,fra1,de,r1\ngpu-2,,,,,\n",
        "excel.csv": "\ufeffrack;cluster;site;accelerator_count;accelerator;host\r\n"
        "r1;fra1;de;8;h200;gpu-1\r\n;;;;;gpu-2\r\n",
    }  # fmt: skip
    found = []
    for name, content in forms.items():
        directory = tmp_path / name
        directory.mkdir()
        found.append(parse(write_source(directory, {name: content})))
    for other in found:
        assert other.variables == {"gpu-1": variables, "gpu-2": {}}
        assert other.groups == found[0].groups
    expected = {"accel_cuda", "accel_hopper", "accel_h200", "cluster_fra1", "site_de"}
    assert found[0].groups_of("gpu-1") == expected
    assert found[0].groups_of("gpu-2") == set()


def test_hosts_of_earlier_sources_are_sorted_by_what_groups_files_and_they_themselves_say(tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "group_vars" / "rack7.yml").write_text("accelerator: h200\naccelerator_count: 8\ncluster: fra1\n")
    (tmp_path / "group_vars" / "all.yml").write_text("site: de\n")
    (tmp_path / "host_vars" / "gpu-2.yml").write_text("accelerator: mi300x\n")
    inventory = inventory_of({"gpu-1": {}, "gpu-2": {}, "gpu-3": {"accelerator": "l40s"}, "gpu-4": {}})
    inventory.add_group("rack7")
    for host in ("gpu-1", "gpu-2", "gpu-3"):
        inventory.add_child("rack7", host)
    inventory.add_group("accel_h100")
    inventory.add_child("accel_h100", "gpu-4")
    found = parse(write_source(tmp_path, {}), inventory)
    where = {"rack7", "cluster_fra1", "site_de"}
    assert found.groups_of("gpu-1") == {"accel_cuda", "accel_hopper", "accel_h200", *where}
    assert found.groups_of("gpu-2") == {"accel_rocm", "accel_gfx942", "accel_mi300x", *where}
    assert found.groups_of("gpu-3") == {"accel_cuda", "accel_ada", "accel_l40s", *where}
    # A group that somebody made by hand says it too, and is put where it belongs.
    assert found.groups_of("gpu-4") == {"accel_cuda", "accel_hopper", "accel_h100", "site_de"}


def test_after_a_directory_of_sources(tmp_path):
    inventory = inventory_of({"gpu-1": {"accelerator": "h200"}})
    # What Ansible leaves there: the files of the directory, and then nothing for the directory itself.
    inventory.processed_sources = [str(tmp_path / "hosts.yml"), None]
    assert "accel_h200" in parse(write_source(tmp_path, {}), inventory).groups_of("gpu-1")


def test_without_vars_plugins_only_the_sources_count(tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("accelerator: h200\n")
    source = write_source(tmp_path, {}, use_vars_plugins=False)
    assert parse(source, inventory_of({"gpu-1": {}})).groups_of("gpu-1") == set()


def test_group_vars_of_a_cluster_of_the_fleet_file(tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "cluster_fra1.yml").write_text("accelerator: h200\naccelerator_count: 4\n")
    fleet = {"fleet.csv": "name,cluster,accelerator_count\ngpu-1,fra1,\ngpu-2,fra1,8\ngpu-3,hel1,\n"}
    found = parse(write_source(tmp_path, fleet))
    assert found.groups["accel_h200"] == {"gpu-1", "gpu-2"}
    # What the file says is the host's own and stronger; nothing of group_vars is copied to the host.
    assert found.variables["gpu-1"] == {"cluster": "fra1"}
    assert found.variables["gpu-2"] == {"cluster": "fra1", "accelerator_count": 8}


def test_discovery_sorts_what_nobody_declared(tmp_path):
    discover(tmp_path, gpu_1=H200, gpu_2=[], gpu_3=["0000:17:00.0 10de ffff 0302 - - -"])
    found = parse(write_source(tmp_path, {"fleet.csv": "name\ngpu-1\ngpu-2\ngpu-3\ngpu-4\n"}))
    assert found.groups_of("gpu-1") == {"accel_cuda", "accel_hopper", "accel_h200"}
    assert found.groups_of("gpu-2") == {"accel_cpu"}
    assert found.groups_of("gpu-3") == {"accel_unknown"}
    assert found.groups_of("gpu-4") == set()
    variables = found.variables["gpu-1"]
    assert variables["accelerator_discovered_at"] == "2026-11-20T08:00:00Z"
    assert {key: variables["accelerator_detected"][key] for key in ("model", "count", "stack", "models")} == {
        "model": "h200", "count": 2, "stack": "cuda", "models": {"h200": 2},
    }  # fmt: skip
    assert "accelerator" not in variables
    assert found.inventory.groups["all"].vars["accelerator_discovery_cache"] == str(tmp_path / "discovery.json")


def test_what_was_declared_stands_and_the_disagreement_is_shown(tmp_path):
    discover(tmp_path, gpu_1=H100, gpu_2=H100, gpu_3=H200)
    fleet = {"fleet.csv": "name,accelerator,accelerator_count\ngpu-1,h200,8\ngpu-2,h200,8\ngpu-3,h200,2\n"}
    found = parse(write_source(tmp_path, fleet))
    assert found.groups["accelerator_conflict"] == {"gpu-1", "gpu-2"}
    assert found.groups["accel_h200"] == {"gpu-1", "gpu-2", "gpu-3"}
    assert found.groups.get("accel_h100", frozenset()) == frozenset()
    sentence = "declared h200 x 8, but discovery says h100 x 2"
    assert found.variables["gpu-1"]["accelerator_conflict"] == sentence
    assert "accelerator_conflict" not in found.variables["gpu-3"]
    assert len(found.warnings) == 1
    assert sentence in found.warnings[0]
    assert "gpu-1" in found.warnings[0]


def test_an_old_answer_counts_and_says_that_it_is_old(tmp_path):
    discover(tmp_path, stale={"stale_since": "2026-11-21T08:00:00Z", "stale_reason": "unreachable"}, gpu_1=H200)
    found = parse(write_source(tmp_path, {"fleet.csv": "name\ngpu-1\n"}))
    assert "accel_h200" in found.groups_of("gpu-1")
    assert found.variables["gpu-1"]["accelerator_stale"] == "unreachable (since 2026-11-21T08:00:00Z)"


def test_a_damaged_cache_of_discovery_is_as_good_as_none(tmp_path):
    (tmp_path / "discovery.json").write_text('{"schema": 1, "hosts": {"gpu-1"')
    found = parse(write_source(tmp_path, {"fleet.csv": "name,accelerator\ngpu-1,h200\n"}))
    assert "accel_h200" in found.groups_of("gpu-1")
    assert "discovery.json" in found.warnings[0]


def test_compose_turns_the_names_of_another_source_into_ours(tmp_path):
    hosts = {"gpu-1": {"custom_fields": {"accelerator": "mi300x", "gpus": 8}, "sites": ["hel"]}, "gpu-2": {}}
    source = write_source(
        tmp_path,
        {},
        compose={
            "accelerator": "custom_fields.accelerator",
            "accelerator_count": "custom_fields.gpus",
            "cluster": "sites[0]",
        },
        groups={"big": "accelerator_count | default(0) | int >= 8"},
        keyed_groups=[{"key": "accelerator", "prefix": "kind"}],
    )
    found = parse(source, inventory_of(hosts))
    assert found.groups_of("gpu-1") == {
        "accel_rocm", "accel_gfx942", "accel_mi300x", "cluster_hel", "big", "kind_mi300x",
    }  # fmt: skip
    assert found.variables["gpu-1"]["accelerator"] == "mi300x"
    assert found.groups_of("gpu-2") == set()


def test_strict_names_the_host_and_the_variable(tmp_path):
    source = write_source(tmp_path, {}, compose={"accelerator": "custom_fields.accelerator"}, strict=True)
    with pytest.raises(AnsibleParserError, match=r"host 'gpu-2': compose\.accelerator"):
        parse(source, inventory_of({"gpu-2": {}}))


def test_a_host_of_two_sources(tmp_path):
    fleet = {"fleet.csv": "name,accelerator,rack\ngpu-1,h200,r1\n"}
    found = parse(write_source(tmp_path, fleet), inventory_of({"gpu-1": {"ansible_host": "10.0.0.1"}}))
    assert found.variables["gpu-1"] == {"ansible_host": "10.0.0.1", "accelerator": "h200", "rack": "r1"}
    with pytest.raises(AnsibleParserError, match=r"fleet\.csv:2: host 'gpu-1': accelerator: found 'h200'.*'h100'"):
        parse(write_source(tmp_path, fleet), inventory_of({"gpu-1": {"accelerator": "h100"}}))


def test_a_second_source_of_ours_changes_nothing_of_the_first(tmp_path):
    discover(tmp_path, gpu_2=[*H200, "0000:99:00.0 10de ffff 0302 - - -"])
    fleet = {"fleet.yml": "hosts:\n  gpu-1: {accelerators: {a10: 1, a100: 1}, cluster: fra1, site: de}\n  gpu-2:\n"}
    first = parse(write_source(tmp_path, fleet))
    groups, variables = first.groups, first.variables
    again = parse(write_source(tmp_path, {}), first.inventory)
    assert again.groups == groups
    assert again.variables == variables
    with pytest.raises(AnsibleParserError, match=r"fleet\.csv:2: host 'gpu-3': site: found 'fi'.*'fra1' below site_de"):
        parse(write_source(tmp_path, {"fleet.csv": "name,cluster,site\ngpu-3,fra1,fi\n"}), first.inventory)


def test_nothing_is_changed_when_something_is_wrong(tmp_path):
    inventory = inventory_of({"gpu-1": {"accelerator": "h200"}, "gpu-2": {"accelerator": "h2000"}})
    with pytest.raises(AnsibleParserError, match="h2000"):
        parse(write_source(tmp_path, {"fleet.csv": "name,accelerator\ngpu-3,h200\n"}), inventory)
    assert set(inventory.hosts) == {"gpu-1", "gpu-2"}
    assert set(inventory.groups) == {"all", "ungrouped"}


def asked(monkeypatch, answers):
    """Let BMCs answer; return what was asked of them."""
    seen = []

    def ask(bmcs, limits):
        seen.append((list(bmcs), limits))
        return [answers[bmc.host] for bmc in bmcs]

    monkeypatch.setattr(inventory_source, "ask_bmcs", ask)
    return seen


FLEET = {
    "fleet.csv": "name,accelerator,accelerator_bmc\ngpu-1,,10.0.0.1\ngpu-2,h200,10.0.0.2\ngpu-3,,10.0.0.3\ngpu-4,,\n"
}
LOGIN = {"redfish": True, "redfish_username": "inventory", "redfish_password": "canary"}


def test_bmcs_are_asked_and_the_silent_ones_are_named(tmp_path, monkeypatch):
    answers = {
        "gpu-1": Answer("gpu-1", Chips(ids={"1002:74a1": 8}, names={}), None),
        "gpu-2": Answer("gpu-2", Chips(ids={"10de:2330": 8}, names={}), None),
        "gpu-3": Answer("gpu-3", None, "no answer within 4 s"),
    }
    seen = asked(monkeypatch, answers)
    found = parse(write_source(tmp_path, FLEET, redfish_parallel=7, **LOGIN))
    ((bmcs, limits),) = seen
    assert [(bmc.host, bmc.address, bmc.username, bmc.password) for bmc in bmcs] == [
        (f"gpu-{number}", f"10.0.0.{number}", "inventory", "canary") for number in (1, 2, 3)
    ]
    assert (limits.parallel, limits.verify) == (7, True)
    assert found.groups_of("gpu-1") == {"accel_rocm", "accel_gfx942", "accel_mi300x"}
    assert found.variables["gpu-1"]["accelerator_detected"]["count"] == 8
    assert found.variables["gpu-2"]["accelerator_conflict"] == "declared h200, but Redfish says h100 x 8"
    assert found.groups_of("gpu-3") == found.groups_of("gpu-4") == set()
    assert [text for text in found.warnings if "Redfish: gpu-3: no answer within 4 s" in text]
    assert "canary" not in str(found.variables) + str(found.warnings)


def test_bmcs_are_asked_once_while_the_cache_lasts_and_no_password_is_in_it(tmp_path, monkeypatch):
    seen = asked(monkeypatch, {f"gpu-{n}": Answer(f"gpu-{n}", Chips({"10de:2335": 8}, {}), None) for n in (1, 2, 3)})
    kept = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "kept")}
    source = write_source(tmp_path, FLEET, **LOGIN, **kept)
    first = parse(source, cache=True)
    again = parse(source, cache=True)
    assert len(seen) == 1
    assert again.groups == first.groups
    assert again.variables == first.variables
    texts = [path.read_text() for path in (tmp_path / "kept").iterdir()]
    assert texts
    assert not [text for text in texts if "canary" in text]
    # Told to flush, it asks again; for another list of BMCs too.
    parse(source, cache=False)
    assert len(seen) == 2
    write_source(tmp_path, {"fleet.csv": "name,accelerator_bmc\ngpu-1,10.0.0.9\n"}, **LOGIN, **kept)
    parse(source, cache=True)
    assert len(seen) == 3
    assert seen[2][0][0].address == "10.0.0.9"


def test_no_role_takes_the_plugins_variables_for_misspelt_options(tmp_path):
    discover(tmp_path, stale={"stale_since": "2026-11-21T08:00:00Z", "stale_reason": "silent"}, gpu_1=H100)
    found = parse(write_source(tmp_path, {"fleet.csv": "name,accelerators\ngpu-1,h200:4 l40s:2\n"}))
    names = {*found.variables["gpu-1"], *found.inventory.groups["all"].vars, *BMC_NAMES}
    of_the_role = {name for name in names if name.startswith("accelerator_")} - options_of("accelerator")
    assert {"accelerator_mixed", "accelerator_stale", "accelerator_conflict"} <= of_the_role
    assert of_the_role <= set(FACTS)


def test_a_bmc_that_failed_is_asked_again_while_the_others_are_not(tmp_path, monkeypatch):
    good = {f"gpu-{n}": Answer(f"gpu-{n}", Chips({"10de:2335": 8}, {}), None) for n in (1, 2, 3)}
    answers = {**good, "gpu-3": Answer("gpu-3", None, "refused user 'inventory' (401)")}
    seen = asked(monkeypatch, answers)
    kept = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "kept")}
    source = write_source(tmp_path, FLEET, **LOGIN, **kept)
    assert parse(source, cache=True).groups_of("gpu-3") == set()
    answers.update(good)
    assert "accel_h200" in parse(source, cache=True).groups_of("gpu-3")
    assert [[bmc.host for bmc in bmcs] for bmcs, _limits in seen] == [["gpu-1", "gpu-2", "gpu-3"], ["gpu-3"]]


def test_a_bmc_without_credentials(tmp_path, monkeypatch):
    monkeypatch.delenv("REDFISH_USERNAME", raising=False)
    seen = asked(monkeypatch, {})
    with pytest.raises(AnsibleParserError, match=r"fleet\.csv:2: host 'gpu-1': no username.*REDFISH_USERNAME"):
        parse(write_source(tmp_path, FLEET, redfish=True, redfish_password="canary"))
    assert not seen


def test_a_hosts_own_credentials_come_first(tmp_path, monkeypatch):
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "gpu-1.yml").write_text("accelerator_bmc_password: own\n")
    seen = asked(monkeypatch, {f"gpu-{n}": Answer(f"gpu-{n}", None, "silent") for n in (1, 2, 3)})
    parse(write_source(tmp_path, FLEET, **LOGIN))
    assert [bmc.password for bmc in seen[0][0]] == ["own", "canary", "canary"]


def test_bmcs_are_left_alone_unless_wanted(tmp_path, monkeypatch):
    seen = asked(monkeypatch, {})
    parse(write_source(tmp_path, FLEET))
    assert not seen


def test_a_sites_own_chip(tmp_path):
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "own.yml").write_text(
        "vendor: acme\nname: Acme\nstack: acme\npci_vendors: {'abcd': {classes: ['1200'], unknown_is_error: true}}\n"
        "stacks: {acme: {devices: [/dev/acme]}}\n"
        "models: {a1: {title: Acme A1, generation: a, memory_gib: 32, pci_ids: {'abcd:0001': {}}}}\n"
    )
    found = parse(write_source(tmp_path, {"fleet.csv": "name,accelerator\ngpu-1,a1\n"}, catalog_path=["chips"]))
    assert found.groups_of("gpu-1") == {"accel_acme", "accel_a", "accel_a1"}
