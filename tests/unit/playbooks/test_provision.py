# SPDX-License-Identifier: GPL-3.0-or-later
"""What provision.yml goes on with."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.fakes.inventory_plugin import TOP, command

INVENTORY = "all: {children: {inference: {hosts: {gpu-1: {}}}, provisioner: {hosts: {prov-1: {}}}}}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected", "missing"),
    [
        ((), "Name the next step", "Serve the models"),
        (("-e", "provision_then_site=false"), "Name the next step", "Serve the models"),
        (("-e", "provision_then_site=true"), "Serve the models", "Name the next step"),
        (("-e", "provision_then_site=maybe"), "provision_then_site: found 'maybe', expected true or false", "play #1"),
    ],
)
def test_site_follows_where_that_is_asked_for(tmp_path, words, expected, missing):
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    listed = ("ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "playbooks/provision.yml", "--list-tasks")
    done = command(tmp_path, *listed, *words)
    told = done.stdout + done.stderr
    assert expected in told
    assert missing not in told


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["provision.yml", "deprovision.yml"])
def test_a_provisioner_that_is_not_set_up_is_named_with_what_sets_it_up(tmp_path, playbook):
    prov = f"{{ansible_connection: local, ansible_become: false, provisioner_config_dir: {tmp_path}}}"
    (tmp_path / "hosts.yml").write_text(INVENTORY.replace("prov-1: {}", f"prov-1: {prov}"))
    words = (
        "-i",
        str(tmp_path / "hosts.yml"),
        f"playbooks/{playbook}",
        "-l",
        "gpu-1",
        "--check",
        "-e",
        "provision_release=gpu-1",
    )
    done = command(tmp_path, "ansible-playbook", *words, "-e", "provision_password=x")
    # Releases differ in the first letter of the module's words, and in where they break lines.
    told = " ".join((done.stdout + done.stderr).split())
    expected = f"ile not found: {tmp_path}/site.json; run playbooks/provisioner.yml if it was not set up yet"
    assert done.returncode == 2 and "prov-1: " in told and expected in told, told


FLEET = """
all:
  children:
    inference: {hosts: {gpu-old: {}, gpu-new: {provision: {}}, gpu-bare: {}}}
    mirrors: {hosts: {mirror-1: {}}}
    provisioner: {hosts: {prov-1: {}}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [("-e", "target_hosts=gpu-new"), ("-e", '{"target_hosts": ["gpu-new"]}')])
def test_site_lists_no_other_hosts_than_those_that_are_provisioned(tmp_path, words):
    (tmp_path / "hosts.yml").write_text(FLEET)
    listed = ("ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "playbooks/provision.yml", "--list-hosts")
    done = command(tmp_path, *listed, "-e", "provision_then_site=true", *words)
    expected = 1 + len(yaml.safe_load((TOP / "playbooks/site.yml").read_text()))
    assert (done.returncode, done.stdout.count("play #")) == (0, expected), done.stdout + done.stderr
    assert set(re.findall(r"^      (\S+)$", done.stdout, re.M)) == {"gpu-new"}


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("-l", "inference"), ("-e", "target_hosts=gpu-new,gpu-bare")])
def test_site_works_on_no_other_hosts_than_those_that_were_provisioned(tmp_path, words):
    """The plays and the last task as they are, without what needs BMCs and chips."""
    first, then = yaml.safe_load((TOP / "playbooks/provision.yml").read_text())
    found = {
        "name": "Provision",
        "ansible.builtin.set_fact": {"__provision_found": {"gpu-new": {"outcome": "written"}}},
    }
    plays = [{"name": "First", "hosts": first["hosts"], "gather_facts": False, "tasks": [found, first["tasks"][-1]]}]
    (tmp_path / "provision.yml").write_text(yaml.safe_dump([*plays, then]))
    site = yaml.safe_load((TOP / "playbooks/site.yml").read_text())
    shown = {"name": "Show", "ansible.builtin.debug": {"msg": "site: {{ inventory_hostname }}"}}
    plays = [{**{key: play[key] for key in ("name", "hosts", "gather_facts")}, "tasks": [shown]} for play in site]
    (tmp_path / "site.yml").write_text(yaml.safe_dump(plays))
    (tmp_path / "hosts.yml").write_text(FLEET)
    run = ("ansible-playbook", "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "provision.yml"))
    done = command(tmp_path, *run, "-e", "provision_then_site=true", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    # In each play but that of the mirrors.
    assert re.findall(r"site: ([\w-]+)", done.stdout) == ["gpu-new"] * (len(site) - 1)


def test_a_host_that_was_refused_has_no_disks_in_the_removal_itself(tmp_path):
    """The check has the disks as they were given, so that a misspelt host is found."""
    (play,) = yaml.safe_load((TOP / "playbooks/deprovision.yml").read_text())
    (removal,) = [task for task in play["tasks"] if task["name"] == "Remove all hosts at once"]
    (check,) = [task for task in play["tasks"] if task["name"] == "Check every host before the first change"]
    assert "vars" not in check
    (tmp_path / "hosts.yml").write_text(FLEET)
    words = ("gpu-new", "-m", "ansible.builtin.debug", "-a", f"msg={removal['vars']['__provision_disks']}")
    disks = '{"deprovision_disks": {"gpu-new": ["DISK1"], "gpu-old": ["DISK2"]}}'
    done = command(tmp_path, "ansible", "-i", str(tmp_path / "hosts.yml"), *words, "-e", disks)
    assert "DISK1" in done.stdout and "gpu-old" not in done.stdout, done.stdout + done.stderr
