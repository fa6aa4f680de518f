# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is believed: hosts of an INI file with all that may be said of them, sorted by ansible-inventory itself."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import Cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import PciFunction
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.cache import write_discovery
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import Entry, Observation

from tests.integration.inventory_site import Site

CPU = Cpu(arch="x86_64", model="Intel(R) Xeon(R) 6980P", instruction_sets=["avx2"], cores=256, threads=512,
          numa_nodes=2, memory_mib=1547642)  # fmt: skip
IDS = {"h200": "10de:2335", "l40s": "10de:26b9", "mi300x": "1002:74a1", "strange": "10de:ffff"}
WHEN = "2026-11-21T14:40:00Z"

CONFIGURED = """
[defaults]
inject_facts_as_vars = false
inventory = hosts.ini,accelerators.yml
fact_caching = ansible.builtin.jsonfile
fact_caching_connection = facts
[inventory]
any_unparsed_is_failed = true
"""
HOSTS = """
[rack7]
own-var accelerator=mi300x accelerator_count=8
own-file
rack
plain
[fra]
plain cluster=fra1 site=frankfurt
rack cluster=fra1 site=frankfurt
[other]
elsewhere
"""
PLUGIN = "plugin: baremetal.inference.accelerators\ndiscovery_cache: discovery.json\n"
REMEMBER = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        cacheable: true
        accelerator_detected: "{{ found[inventory_hostname] }}"
      when: inventory_hostname in found
"""


def observed(**chips):
    """What a probe saw: so many functions of each model."""
    ids = [IDS[model] for model, count in chips.items() for _one in range(count)]
    functions = tuple(
        PciFunction(f"0000:{number:02x}:00.0", *pci_id.split(":"), "0302") for number, pci_id in enumerate(ids, 16)
    )
    return Observation(functions=functions, cpu=CPU, drivers={}, memory_mib={}).as_dict()


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path / "site", tmp_path / "home")
    made.write({"ansible.cfg": CONFIGURED, "hosts.ini": HOSTS, "accelerators.yml": PLUGIN})
    return made


@pytest.fixture
def discovered(site):
    """Write the discovery cache: host -> chips."""

    def write(path="discovery.json", stale=None, **hosts):
        entries = {host: Entry(WHEN, observed(**chips), *(stale or (None, None))) for host, chips in hosts.items()}
        write_discovery(str(site.top / path), entries)

    return write


@pytest.fixture
def remembered(site):
    """Let Ansible itself write its fact cache: host -> models."""

    def write(**hosts):
        found = {host: {"model": next(iter(chips)), "count": sum(chips.values()), "models": chips, "unknown": []}
                 for host, chips in hosts.items()}  # fmt: skip
        site.write({"remember.yml": REMEMBER})
        site.run("ansible-playbook", "-i", "hosts.ini", "remember.yml", "-e", json.dumps({"found": found}))

    return write


def accel(groups):
    return {group for group in groups if group.startswith("accel")}


H200 = {"accel_cuda", "accel_hopper", "accel_h200"}
MI300X = {"accel_rocm", "accel_gfx942", "accel_mi300x"}
L40S = {"accel_cuda", "accel_ada", "accel_l40s"}


def test_nothing_is_known_of_a_host_of_which_nothing_is_said(site):
    listed = site.list()
    assert accel(listed.of("plain")) == set()
    assert accel(listed.of("own-var")) == MI300X
    # Always there, so that a play for them is no error in a fleet without.
    assert {"accel_cuda", "accel_rocm", "accel_cann", "accel_cpu", "accel_unknown", "accelerator_conflict"} <= set(
        listed.groups["all"]["children"]
    )


def test_variables_of_groups_and_hosts_declare_as_ansible_ranks_them(site):
    site.write({
        "group_vars/rack7.yml": "accelerator: h200\naccelerator_count: 8\n",
        "group_vars/other/hardware.yml": "accelerator: h200\n",
        "host_vars/own-file.yml": "accelerator: l40s\naccelerator_count: 2\n",
    })  # fmt: skip
    listed = site.list()
    assert accel(listed.of("rack")) == accel(listed.of("plain")) == H200
    assert accel(listed.of("elsewhere")) == H200
    assert accel(listed.of("own-file")) == L40S
    # In the INI file itself, which is weaker than host_vars and stronger than group_vars.
    assert accel(listed.of("own-var")) == MI300X


def test_variables_files_may_be_left_out(site):
    site.write(
        {"group_vars/rack7.yml": "accelerator: h200\n", "accelerators.yml": PLUGIN + "use_vars_plugins: false\n"}
    )
    listed = site.list()
    assert accel(listed.of("rack")) == set()
    assert accel(listed.of("own-var")) == MI300X


def test_files_of_the_models_groups_reach_the_hosts_and_the_nearest_wins(site):
    site.write({
        "group_vars/rack7.yml": "accelerator: h200\n",
        "group_vars/accel_cuda.yml": "who: stack\nfrom_stack: yes\n",
        "group_vars/accel_hopper.yml": "who: generation\nfrom_generation: yes\n",
        "group_vars/accel_h200.yml": "who: model\n",
    })  # fmt: skip
    found = site.list().variables["rack"]
    assert (found["who"], found["from_stack"], found["from_generation"]) == ("model", True, True)


def test_clusters_are_below_their_site(site):
    listed = site.list()
    assert listed.groups["site_frankfurt"]["children"] == ["cluster_fra1"]
    assert listed.hosts("cluster_fra1") == {"plain", "rack"}


def test_the_discovery_cache_sorts_what_nobody_declared(site, discovered):
    discovered(plain={"h200": 8}, elsewhere={"strange": 2}, rack={})
    listed = site.list()
    assert accel(listed.of("plain")) == H200
    assert accel(listed.of("elsewhere")) == {"accel_unknown"}
    assert accel(listed.of("rack")) == {"accel_cpu"}
    found = listed.variables["plain"]
    assert (found["accelerator_detected"]["model"], found["accelerator_detected"]["count"]) == ("h200", 8)
    assert "devices" not in found["accelerator_detected"]
    assert found["accelerator_discovered_at"] == WHEN
    assert "accelerator_stale" not in found and "accelerator" not in found
    assert found["accelerator_discovery_cache"] == str(site.top / "discovery.json")
    assert not listed.hosts("accelerator_conflict")


def test_the_path_of_the_discovery_cache_comes_from_the_environment_too(site, discovered):
    site.write({"accelerators.yml": "plugin: baremetal.inference.accelerators\n"})
    discovered(path="elsewhere.json", plain={"l40s": 2})
    listed = site.list()
    assert accel(listed.of("plain")) == set()
    own = listed.variables["plain"]["accelerator_discovery_cache"]
    assert re.fullmatch(re.escape(str(site.home)) + r"/\.ansible/accelerators/site-[0-9a-f]{8}\.json", own)
    site.environment["ACCELERATORS_DISCOVERY_CACHE"] = str(site.top / "elsewhere.json")
    assert accel(site.list().of("plain")) == L40S


def test_an_old_answer_still_counts_and_is_marked(site, discovered):
    discovered(stale=("2026-11-20T08:00:00Z", "Connection timed out"), plain={"h200": 8})
    listed = site.list()
    assert accel(listed.of("plain")) == H200
    assert "Connection timed out" in listed.variables["plain"]["accelerator_stale"]


def test_the_fact_cache_sorts_what_is_not_discovered(site, remembered):
    remembered(plain={"h200": 8}, elsewhere={"mi300x": 4})
    listed = site.list()
    assert accel(listed.of("plain")) == H200
    assert accel(listed.of("elsewhere")) == MI300X


def test_each_source_goes_before_the_next_and_a_disagreement_is_shown(site, discovered, remembered):
    site.write({"group_vars/rack7.yml": "accelerator: h200\naccelerator_count: 8\n"})
    remembered(rack={"mi300x": 8}, elsewhere={"mi300x": 8}, plain={"h200": 8})
    discovered(rack={"l40s": 2}, elsewhere={"l40s": 2}, plain={"h200": 8})
    listed = site.list()
    # Declared before both, discovery before facts.
    assert accel(listed.of("rack")) == H200 | {"accelerator_conflict"}
    assert accel(listed.of("elsewhere")) == L40S | {"accelerator_conflict"}
    assert listed.hosts("accelerator_conflict") == {"rack", "elsewhere"}
    said = listed.variables["rack"]["accelerator_conflict"]
    assert all(word in said for word in ("h200", "l40s", "mi300x")), said
    said = listed.variables["elsewhere"]["accelerator_conflict"]
    assert "l40s" in said and "mi300x" in said and "h200" not in said
    assert "accelerator_conflict" not in listed.variables["plain"]
    # One warning for all, with the hosts' names and both words.
    assert "rack" in listed.warnings and "h200" in listed.warnings and "l40s" in listed.warnings
    assert listed.warnings.count("[WARNING]") == 1


def test_a_card_that_went_is_a_disagreement(site, discovered):
    site.write({"group_vars/rack7.yml": "accelerator: h200\naccelerator_count: 8\n"})
    discovered(rack={"h200": 7}, plain={"h200": 8})
    listed = site.list()
    assert listed.hosts("accelerator_conflict") == {"rack"}
    assert "7" in listed.variables["rack"]["accelerator_conflict"]


def test_two_kinds_of_chip_are_in_both_groups(site, discovered):
    discovered(plain={"h200": 2, "l40s": 6})
    site.write({"host_vars/elsewhere.yml": "accelerators: {h200: 4, l40s: 2}\n"})
    listed = site.list()
    assert accel(listed.of("plain")) == H200 | L40S
    assert accel(listed.of("elsewhere")) == H200 | L40S
    found = listed.variables["elsewhere"]
    assert (found["accelerator"], found["accelerator_count"], found["accelerator_mixed"]) == ("h200", 4, True)
    assert listed.variables["plain"]["accelerator_mixed"] is True


def test_compose_makes_the_variable_and_comes_first(site):
    site.write({
        "hosts.ini": "[rack7]\nplain hardware='H200 SXM'\nelsewhere\n",
        "accelerators.yml": PLUGIN + "compose:\n  accelerator: (hardware | lower | split)[0]\n"
        "keyed_groups: [{prefix: model, key: accelerator}]\ngroups: {big: accelerator == 'h200'}\n",
    })  # fmt: skip
    listed = site.list()
    assert accel(listed.of("plain")) == H200
    assert {"model_h200", "big"} <= listed.of("plain")
    assert accel(listed.of("elsewhere")) == set()


def test_a_fleet_file_beside_the_ini_file_brings_hosts_of_its_own(site):
    site.write({
        "accelerators.yml": PLUGIN + "fleet_files: ['fleet*.csv']\n",
        "fleet-2.csv": "name,accelerator,accelerator_count,cluster,site\ngpu-z-01,h200,8,fra1,frankfurt\n",
        "group_vars/rack7.yml": "accelerator: l40s\n",
    })  # fmt: skip
    listed = site.list()
    assert accel(listed.of("gpu-z-01")) == H200
    assert accel(listed.of("rack")) == L40S
    assert listed.hosts("cluster_fra1") == {"plain", "rack", "gpu-z-01"}


def test_a_fleet_file_says_more_of_a_host_and_nothing_else(site):
    site.write({
        "accelerators.yml": PLUGIN + "fleet_files: [fleet.json]\n",
        "fleet.json": json.dumps({"hosts": {"plain": {"accelerator": "h200", "rack": "r07"}}}),
    })  # fmt: skip
    listed = site.list()
    assert listed.of("plain") == H200 | {"rack7", "fra", "cluster_fra1", "site_frankfurt"}
    assert listed.variables["plain"]["rack"] == "r07"
    site.write({"fleet.json": json.dumps({"hosts": {"plain": {"accelerator": "h200", "site": "helsinki"}}})})
    done = site.run("ansible-inventory", "--list", check=False)
    assert done.returncode != 0
    assert all(word in done.stderr for word in ("fleet.json:1", "hosts.ini", "'plain'", "'helsinki'", "'frankfurt'"))


def test_groups_made_by_hand_are_put_where_they_belong(site):
    site.write({
        "hosts.ini": "[accel_h200]\nplain\nrack accelerator=l40s\n[accel_cuda]\nelsewhere\n",
        "group_vars/accel_cuda.yml": "who: stack\n", "group_vars/accel_h200.yml": "who: model\n",
    })  # fmt: skip
    listed = site.list()
    assert listed.of("plain") == H200
    assert listed.variables["plain"]["who"] == "model"
    assert accel(listed.of("elsewhere")) == {"accel_cuda"}
    # Its variable goes before the group that it was left in, and that is said.
    assert accel(listed.of("rack")) == H200 | L40S | {"accelerator_conflict"}


def test_a_directory_is_read_where_the_list_is_kept_out_of_it(site):
    """In it, Ansible would take each line of the list for a host, without a word."""
    fleet = "name,accelerator\ngpu-z-01,h200\n"
    plugin = "plugin: baremetal.inference.accelerators\nfleet_files: ['{}']\n"
    site.write({
        "inventory/10-hosts.ini": "plain accelerator=l40s\n", "fleet/one.csv": fleet,
        "inventory/90-accelerators.yml": plugin.format("../fleet/*.csv"),
    })  # fmt: skip
    wanted = {"plain": L40S, "gpu-z-01": H200}
    listed = site.list("-i", "inventory")
    assert {host: accel(listed.of(host)) for host in listed.variables} == wanted
    site.write({"inventory/90-accelerators.yml": plugin.format("fleet.csv"), "inventory/fleet.csv": fleet})
    done = site.run("ansible-inventory", "--list", "-i", "inventory", check=False)
    assert done.returncode != 0
    assert "fleet.csv" in done.stderr and "ignore_patterns" in done.stderr
    site.write({"ansible.cfg": "[inventory]\nany_unparsed_is_failed = true\nignore_patterns = fleet\\..*\n"})
    listed = site.list("-i", "inventory")
    assert {host: accel(listed.of(host)) for host in listed.variables} == wanted


def test_a_wrong_name_stops_the_run_and_names_host_and_nearest(site):
    site.write({"host_vars/plain.yml": "accelerator: h20O\n"})
    done = site.run("ansible-inventory", "--list", check=False)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "plain" in said and "'h20O'" in said and "nearest" in said


def test_a_text_of_the_inventory_is_never_a_template(site):
    mark = site.top / "executed"
    trap = "{{ lookup('ansible.builtin.pipe', 'touch " + str(mark) + "') }}"
    site.write({
        "accelerators.yml": PLUGIN + "fleet_files: [fleet.json]\n",
        "fleet.json": json.dumps({"hosts": {"gpu-z-01": {"accelerator": "h200", "note": trap}}}),
    })  # fmt: skip
    shown = site.run("ansible", "gpu-z-01", "-m", "ansible.builtin.debug", "-a", "var=note")
    assert not mark.exists()
    assert "lookup" in shown.stdout
