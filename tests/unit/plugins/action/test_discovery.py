# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/discover.yml as a user runs it, on this machine with PCI trees of other hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.action.accelerator_probe import ActionModule, _observation
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.cache import (
    read_discovery,
    write_discovery,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import (
    DiscoveryError,
    parse_probe,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.probe import probe_script

from tests.fakes.outputs import squeezed
from tests.fakes.sysfs import ASPEED, RECORDED_H200_VM, lines, write_procfs, write_sysfs

ROOT = Path(__file__).parents[4]
NVSWITCHES = lines("10de:22a3", 4, first=0x80, pci_class="0680")


class Site:
    """Hosts that are directories of this machine, and a cache."""

    def __init__(self, top):
        self.top = top
        self.cache = top / "cache" / "discovery.json"
        self.hosts = {}

    def host(self, name, functions, **variables):
        """Make or remake a host."""
        tree = self.top / name
        shutil.rmtree(tree, ignore_errors=True)
        write_sysfs(tree / "sys", functions)
        write_procfs(tree / "proc")
        roots = {"accelerator_sysfs_root": str(tree / "sys"), "accelerator_proc_root": str(tree / "proc")}
        self.hosts[name] = {**roots, **variables}

    def discover(self, *words, cache=True):
        # No interpreter: a probe that wanted Python would fail.
        everyone = {"ansible_connection": "local", "ansible_python_interpreter": "/nope/python"}
        (self.top / "hosts.json").write_text(json.dumps({"all": {"hosts": self.hosts, "vars": everyone}}))
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "False",
            "ANSIBLE_SSH_RETRIES": "0",
        }
        command = [Path(sys.executable).with_name("ansible-playbook"), "-i", self.top / "hosts.json"]
        command += ["playbooks/discover.yml", *([f"-ediscover_cache={self.cache}"] if cache else []), *words]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        output = done.stdout + done.stderr
        # ansible-core 2.18 doubles quotes, as YAML does.
        return done.returncode, output, " ".join(output.split()).replace("''", "'")

    def changed(self, output):
        return sum(int(number) for number in re.findall(r"changed=(\d+)", output))


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    made.host("hgx", [*lines("10de:2335", 8), *NVSWITCHES, ASPEED])
    made.host("vm", RECORDED_H200_VM)
    made.host("plain", [ASPEED])
    return made


def test_the_life_of_a_cache(site):
    status, output, words = site.discover("--diff")
    assert status == 0, output
    assert site.changed(output) == 1
    assert f"3 of 3 hosts answered; all answers are kept in {site.cache}" in words
    assert "Accelerators of 3 hosts: h200 x 8 (1); cpu (1); h200 x 1 (1)" in words
    assert "hgx: new, h200 x 8" in words  # of the diff
    first = read_discovery(str(site.cache))
    assert list(first) == ["hgx", "plain", "vm"]
    assert len(first["hgx"].observation["functions"]) == 12

    long_ago = {host: replace(entry, at="2026-01-01T00:00:00Z") for host, entry in first.items()}
    write_discovery(str(site.cache), long_ago)
    status, output, words = site.discover("--diff")
    assert (status, site.changed(output)) == (0, 0), output
    assert "Nothing is different from before." in words
    again = read_discovery(str(site.cache))
    assert {host: entry.observation for host, entry in again.items()} == {
        host: entry.observation for host, entry in first.items()
    }
    assert again["hgx"].at >= first["hgx"].at, "the file says when an answer was last confirmed"

    # A card went, a driver came, a host stopped, another left, one came that never answers.
    site.host("hgx", [*lines("10de:2335", 7), *NVSWITCHES, ASPEED])
    (site.top / "hgx/sys/module/nvidia").mkdir(parents=True)
    (site.top / "hgx/sys/module/nvidia/version").write_text("580.159.04\n")
    nobody = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    site.hosts["vm"].update(nobody)
    site.hosts["late"] = nobody
    del site.hosts["plain"]
    before = site.cache.read_bytes()
    status, checked, _words = site.discover("--check", "--diff")
    assert (status, site.changed(checked), site.cache.read_bytes()) == (0, 1, before), checked
    status, output, words = site.discover("--diff")
    assert (status, site.changed(output)) == (0, 1), output
    assert "1 of 3 hosts answered" in words
    assert "hgx: h200 x 8 -> h200 x 7, driver none -> 580.159.04" in words
    assert "plain: is no longer in the inventory" in words
    assert "vm: no longer answers" in words
    assert re.search(
        r"No answer now, the last answer is kept \(1 host\): "
        r"vm: h200 x 1, \d+ seconds? old \(20.*Z\): ssh: connect to .*refused",
        words,
    )
    assert re.search(r"Never answered \(1 host\): late: ssh: connect to .*refused", words)
    kept = read_discovery(str(site.cache))
    assert list(kept) == ["hgx", "vm"]
    assert (kept["vm"].at, kept["vm"].observation) == (again["vm"].at, again["vm"].observation)
    assert "Connection refused" in kept["vm"].stale_reason

    # What is stale already is no news.
    status, output, words = site.discover()
    assert (status, site.changed(output)) == (0, 0), output
    assert "No answer now, the last answer is kept" in words

    # It answers again; the others are not asked.
    site.host("vm", RECORDED_H200_VM)
    before = read_discovery(str(site.cache))
    status, output, words = site.discover("-l", "vm")
    assert (status, site.changed(output)) == (0, 1), output
    assert "vm: answers again, as before" in words
    after = read_discovery(str(site.cache))
    assert (after["hgx"], after["vm"].stale_since) == (before["hgx"], None)


def test_a_failed_host_stops_nobody_and_nobody_at_all_is_a_failure(site):
    shutil.rmtree(site.top / "vm/sys")
    status, output, words = site.discover()
    assert status == 0, output
    assert "2 of 3 hosts answered" in words
    assert f"vm: {site.top}/vm/sys: no sysfs there, it has no directory 'bus'" in words
    status, output, words = site.discover("-l", "vm")
    assert status == 2, output
    assert f"none of 1 hosts answered; vm: {site.top}/vm/sys: no sysfs there" in words
    assert list(read_discovery(str(site.cache))) == ["hgx", "plain"]


def test_an_unknown_chip_is_named(site):
    site.host("new", lines("10de:9999", 2))
    _status, _output, words = site.discover()
    assert "Chips that the catalogue does not have (1 host): new: 10de:9999 x 2" in words


def test_a_damaged_cache_is_named_and_made_anew(site):
    site.cache.parent.mkdir()
    site.cache.write_text('{"schema": 1, "hosts": {"hgx": {"at')
    status, output, words = site.discover()
    assert (status, site.changed(output)) == (0, 1), output
    assert squeezed(f"discovery cache {site.cache}: is damaged or cut short") in squeezed(words)
    assert "it is rebuilt from the answers of this run" in words
    assert len(read_discovery(str(site.cache))) == 3


def test_a_damaged_cache_is_not_thrown_away_for_nothing(site):
    site.cache.parent.mkdir()
    site.cache.write_text("{}")
    shutil.rmtree(site.top / "vm/sys")
    assert site.discover("-l", "vm")[0] == 2
    assert site.cache.read_text() == "{}"


def test_without_a_place_for_the_answers_nobody_is_asked(site):
    status, output, words = site.discover(cache=False)
    assert status == 2
    assert "No file for the answers: add a file z-accelerators.yml with 'plugin: " in words
    assert "name a file with -e discover_cache=FILE" in words
    assert "TASK [Ask each host]" not in output


def test_the_place_may_come_from_the_inventory(site):
    for variables in site.hosts.values():
        variables["accelerator_discovery_cache"] = str(site.cache)
    assert site.discover(cache=False)[0] == 0
    assert len(read_discovery(str(site.cache))) == 3


def test_a_run_over_no_hosts_is_a_failure(site):
    status, _output, words = site.discover("-etarget_hosts=nobody")
    assert status
    assert "target_hosts: no host or group of the inventory is called 'nobody'" in words


def test_a_host_that_hangs_is_given_up(site):
    (site.top / "plain/sys/module/nvidia").mkdir(parents=True)
    pipe = site.top / "plain/sys/module/nvidia/version"
    os.mkfifo(pipe)
    try:
        status, output, words = site.discover("-ediscover_timeout=10")
    finally:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # lets the shell go that waits there
    assert status == 0, output
    assert "2 of 3 hosts answered" in words
    # The words of ansible-core 2.19, or those of 2.18.
    assert re.search(r"Never answered \(1 host\): plain: .*(10 second|time frame \(10\))", words)


def run_probe(*words):
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"), "ANSIBLE_NOCOLOR": "1"}
    command = [Path(sys.executable).with_name("ansible"), "-i", "localhost,", "-c", "local", "localhost"]
    command += ["-m", "baremetal.inference.accelerator_probe", "-e", "ansible_python_interpreter=/nope", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_module_alone_says_what_is_there(site):
    roots = {"sysfs_root": str(site.top / "hgx/sys"), "proc_root": str(site.top / "hgx/proc")}
    done = run_probe("-a", json.dumps(roots), "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "model: h200" in done.stdout and "0000:10:00.0 10de 2335 0302" in done.stdout


def test_become_is_not_needed(site):
    roots = {"sysfs_root": str(site.top / "hgx/sys"), "proc_root": str(site.top / "hgx/proc")}
    done = run_probe("-a", json.dumps(roots), "-e", "ansible_become=true", "-e", "ansible_become_exe=/nope/sudo")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_missing_catalogue_is_one_sentence():
    done = run_probe("-a", json.dumps({"catalog_path": ["/nope"]}))
    assert done.returncode == 2
    assert "localhost: accelerator_catalog_path: /nope is not a directory" in " ".join(
        (done.stdout + done.stderr).split()
    )


@pytest.mark.parametrize("takes_input", [True, False])
def test_a_connection_that_takes_no_input_gets_the_script_as_a_word(site, takes_input):
    asked = []

    def execute(command, in_data, **options):
        asked.append((command, in_data, options))
        done = subprocess.run(command, shell=True, input=in_data, capture_output=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}

    action = ActionModule.__new__(ActionModule)
    action._connection = SimpleNamespace(has_pipelining=takes_input)
    action._low_level_execute_command = execute
    said = action._run_script(probe_script(load_catalogue(), str(site.top / "hgx/sys"), str(site.top / "hgx/proc")))
    assert len(parse_probe(said["stdout"]).functions) == 12
    ((command, in_data, options),) = asked
    assert (in_data is not None, options["sudoable"]) == (takes_input, False)
    assert (command == "/bin/sh -s") == takes_input


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("", "sh: not found\n", 127), r"the probe did not start: it printed nothing \(status 127: sh: not found\)"),
        (("This account is not available\n", "", 1), "the probe did not start: This account is not available"),
        (("accelerator-probe 1 begin\nmachine x86_64\n", "Killed\n", 137), r"is cut: .* \(status 137: Killed\)"),
        (("accelerator-probe 1 begin\nerror /sys: none\naccelerator-probe 1 end 1\n", "Banner\n", 1), "^/sys: none$"),
    ],
)
def test_what_the_host_complained_about_is_told(said, message):
    with pytest.raises(DiscoveryError, match=message):
        _observation(dict(zip(("stdout", "stderr", "rc"), said)))
