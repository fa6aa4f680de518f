# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables a fleet file may set; test_hostile_text tries what Ansible does with them."""

from __future__ import annotations

import re

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.playbook_options import WRITTEN
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.role_options import ROLES, specs_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.fleet_columns import refusal
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.fleet_files import (
    FleetFileError,
    FleetText,
    read_fleet,
)


def read(variables, host="gpu-1"):
    text = yaml.safe_dump({"hosts": {host: variables}})
    return read_fleet([FleetText("/fleet/a.yml", text.encode())])[0][0].variables


def of_controller():
    """Return the options of roles whose descriptions say that they name something on the controller."""
    for role in sorted(path.name for path in ROLES.iterdir()):
        for name, spec in specs_of(role).items():
            text = str(spec.get("description")) + str(spec.get("options") or "")
            if re.search(r"(?:ile|irector\w+|certificate|paths|key of \w+)\W*on the controller|controller:/", text):
                yield name


@pytest.mark.parametrize("name", sorted({*of_controller()}))
def test_no_option_with_a_file_of_the_controller(name):
    with pytest.raises(FleetFileError, match=f"^/fleet/a.yml:2: host 'gpu-1': {name} cannot be given here: it names"):
        read({name: "/etc"})


def test_every_directory_with_files_of_a_site():
    listed = {name for role in ROLES.iterdir() for name, spec in specs_of(role.name).items() if spec["type"] == "list"}
    own = {name for name in listed if name.endswith(("_path", "_tasks"))}
    assert len(own) >= 12
    assert {name for name in own if refusal(name) is None} == set()


@pytest.mark.parametrize("name", [*WRITTEN, "lock_uv", "provision_private_key", "remove_everything", "pin_token_file"])
def test_no_option_of_a_playbook(name):
    with pytest.raises(FleetFileError, match=f"{name} cannot be given here: it is an option of a playbook"):
        read({name: "x"})


@pytest.mark.parametrize(
    "name",
    ["ansible_ssh_common_args", "ansible_ssh_executable", "ansible_connection", "ansible_become_exe",
     "ansible_python_interpreter", "ansible_ssh_private_key_file", "ansible_shell_type", "ansible_ssh_host",
     "ansible_facts", "ansible_pipelining", "ansible_something_of_tomorrow"],
)  # fmt: skip
def test_of_ansible_s_own_only_where_a_host_is_and_who_logs_in(name):
    with pytest.raises(FleetFileError, match=rf"^/fleet/a.yml:2: host 'gpu-1': {name} .* ansible_user; set it in"):
        read({name: "local"})


@pytest.mark.parametrize("name", ["__site_only", "inventory_file", "inventory_dir"])
def test_nothing_that_is_set_elsewhere(name):
    with pytest.raises(FleetFileError, match=f"{name} cannot be given here"):
        read({name: "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("ansible_host", "-oProxyCommand=id"), ("ansible_host", "-E/root/.profile"), ("ansible_host", "a b"),
     ("ansible_host", ""), ("ansible_host", ["a"]), ("ansible_host", "a\n"), ("ansible_host", "$(id)"),
     ("ansible_user", "-oX"), ("ansible_user", 'x" ProxyCommand="id'), ("ansible_user", "a\nb"),
     ("ansible_user", "x;id"), ("ansible_user", {"a": 1})],
)  # fmt: skip
def test_no_word_that_ssh_takes_for_another(name, value):
    with pytest.raises(FleetFileError, match=f"^/fleet/a.yml:2: host 'gpu-1': {name}: found .*, expected "):
        read({name: value})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_no_way_to_move_the_controller_s_own_tasks_elsewhere(host):
    with pytest.raises(FleetFileError, match="this is the controller itself"):
        read({"ansible_host": "192.0.2.1"}, host)


def test_what_describes_a_host_is_taken():
    given = {
        "accelerator": "h200", "accelerator_bmc": "10.1.0.1", "ansible_host": "fe80::1%eth0", "ansible_port": 2222,
        "ansible_user": "DOMAIN\\me@example.org", "ansible_become": True, "rack": "r07", "site_rack": "r1",
        "site_drivers": False, "vllm_engine": "podman", "monitoring_node_port": 9100, "weights_root": "/srv/weights",
        "gateway_host_address": "10.0.0.1", "provision": {"mac": "52:54:00:12:34:56"}, "_note": "x",
    }  # fmt: skip
    assert read(given) == given
