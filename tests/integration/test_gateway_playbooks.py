# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks drain, undrain and gateway_status with a real HAProxy; its paths are bound to those of the test."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.programs import installed
from tests.fakes.systemd import FakeInstances, FakeSystemd
from tests.integration.gateway_turns import (
    ONE,
    TWO,
    drain,
    needs_haproxy,
    pair,
    run,
    running,
)

TOP = Path(__file__).resolve().parents[2]
pytestmark = needs_haproxy


@pytest.fixture
def site(tmp_path):
    """An inventory of a host with two instances and its gateway, both this machine, and a systemctl."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    groups = {
        "inference": {"hosts": {"gw": local, "far": {**local, "cluster": "b"}}},
        "cluster_a": {"hosts": {"gw": {"cluster": "a"}}},
        "cluster_b": {"hosts": {"far": {}}},
        "gateways": {"hosts": {"gate": {**local, "cluster": "a"}}},
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text("#!/bin/sh\necho ActiveState=$(cat $(dirname $0)/active)\n")
    (programs / "systemctl").chmod(0o755)
    (programs / "active").write_text("inactive")
    return tmp_path


def play(found, site, name, *arguments, **variables):
    """Run a playbook of the collection, or one with a path; return its status and what it said."""
    lib = site / "lib"
    lib.mkdir(exist_ok=True)
    if not (lib / "gateway-tool.py").exists():
        installed("gateway-tool", lib)
    binds = {
        found.directory: "/var/lib/haproxy", f"{found.directory}/run": "/run/haproxy", lib: "/usr/local/lib",
        f"{found.directory}/etc": "/etc/haproxy", site / "vllm": "/run/vllm",
    }  # fmt: skip
    for source in binds:
        Path(source).mkdir(exist_ok=True)
    Path("/run/vllm").mkdir(exist_ok=True)
    (found.directory / "etc/haproxy.cfg").write_text((found.directory / "haproxy.cfg").read_text())
    mounts = " && ".join(f"mount --bind {source} {target}" for source, target in binds.items())
    words = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        str(TOP / "playbooks" / f"{name}.yml"),
        "-i",
        str(site / "hosts.json"),
    ]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", *words, "-e", json.dumps(variables), *arguments],
        cwd=TOP, check=False, capture_output=True, text=True,
        env={
            **os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(site / "tmp"),
            "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "SUDO_USER": "alice",
            "PATH": f"{site}/bin:{os.environ['PATH']}",
        },
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@contextlib.contextmanager
def gate(directory):
    """A pair whose socket and state lie where the playbooks expect them, seen from within."""
    directory.mkdir()
    (directory / "run").mkdir()
    with pair(directory) as found:
        os.link(found.paths["socket"], directory / "run/admin.sock")
        yield found


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/etc/haproxy").is_dir() or not Path("/run/haproxy").is_dir(),
    reason="needs root and the directories of HAProxy",
)


@needs_mounts
def test_the_playbooks_drain_show_and_bring_back(site):
    with gate(site / "gate") as found:
        rc, said = play(found, site, "drain")
        assert rc and "This would include every host in the inventory" in said, said
        rc, said = play(found, site, "drain", "-l", "far")
        assert rc and "far: no gateway sends requests to it" in said and "cluster b of the host" in said, said
        rc, said = play(found, site, "drain", "-l", "gw")
        assert rc and "no server would remain, but min_available is 1" in said and found.state(ONE) == "UP", said
        rc, said = play(found, site, "drain", "-l", "gw", "--check", drain_min_available=0)
        assert rc == 0 and found.state(ONE) == "UP", said
        rc, said = play(
            found,
            site,
            "drain",
            "-l",
            "gw",
            # As people type it: -e drain_reason='new fans'.
            "-e",
            "drain_reason=new fans",
            drain_min_available=0,
            drain_timeout=20,
        )
        assert rc == 0 and "changed=1" in said and "chat has 0 of 2 servers in service at gate" in said, said
        assert {
            entry["owner"] for entry in json.loads((found.directory / "drained.json").read_text())["servers"].values()
        } == {"admin:alice"}
        rc, said = play(found, site, "gateway_status")
        assert rc == 0 and "changed=0" in said and "new fans" in said and "admin:alice" in said, said
        rc, said = play(found, site, "drain", "-l", "gw", drain_min_available=0, drain_reason="new fans")
        assert rc == 0 and "changed=0" in said, said
        rc, said = play(found, site, "undrain", "-l", "gw", "--check")
        assert rc == 0 and found.state(ONE).startswith("DRAIN"), said
        rc, said = play(found, site, "undrain", "-l", "gw")
        assert rc == 0 and "chat has 2 of 2 servers in service at gate" in said, said
        rc, said = play(found, site, "undrain", "-l", "gw")
        assert rc == 0 and "changed=0" in said, said


@needs_mounts
def test_the_playbooks_say_what_still_runs_and_what_a_rollout_keeps(site):
    with gate(site / "gate") as found:
        found.tell(f"set server chat/{TWO} state drain")
        with running(found, found.first):
            found.tell(f"set server chat/{TWO} state ready")
            rc, said = play(found, site, "drain", "-l", "gw", drain_min_available=0, drain_timeout=1)
            assert rc and "gate: after 1 s requests still run, see the table" in said, said
        play(found, site, "undrain", "-l", "gw")
        drain(found, ONE, owner="rollout:7")
        rc, said = play(found, site, "undrain", "-l", "gw", undrain_timeout=5)
        assert rc and f"{ONE} stays drained, because a rollout drained it" in said, said
        rc, said = play(found, site, "undrain", "-l", "gw", undrain_force=True)
        assert rc == 0 and found.state(ONE) == "UP", said


def owners(found):
    """Return who has drained servers of the gateway."""
    file = json.loads((found.directory / "drained.json").read_text())
    return {entry["owner"] for entry in file["servers"].values()}


@needs_mounts
@pytest.mark.long
def test_an_event_returns_only_what_an_event_drained_and_only_after_a_proof(site):
    event = {"drain_event": "alertmanager", "target_hosts": "gw"}
    with gate(site / "gate") as found:
        rc, said = play(found, site, "drain", **{**event, "target_hosts": "inference"}, drain_min_available=0)
        assert rc and 'target_hosts: "inference" of the event "alertmanager" is no host of the inventory' in said, said
        rc, said = play(found, site, "drain", **event)
        assert rc and "min_available is 1" in said and found.state(ONE) == "UP", said
        rc, said = play(found, site, "drain", **event, drain_min_available=0, drain_reason="a sick chip")
        assert rc == 0 and owners(found) == {"event:alertmanager"}, said
        # The fault is still open, so nothing is returned.
        mark = site / "vllm/chat-1/unhealthy"
        mark.parent.mkdir(parents=True)
        mark.write_text("xid 64")
        rc, said = play(found, site, "undrain", **event, undrain_proof=True)
        assert rc and "gw: the health service still reports a fault for chat-1; the hosts stay drained" in said, said
        assert found.state(ONE).startswith("DRAIN")
        mark.unlink()
        # An instance that does not answer is no proof either.
        dead = {"vllm_instances": {"gone": {}}, "verify_ready_timeout": 1}
        rc, said = play(found, site, "undrain", **event, undrain_proof=True, **dead)
        assert rc and "gone" in said and found.state(ONE).startswith("DRAIN"), said
        rc, said = play(found, site, "undrain", **event, undrain_proof=True, undrain_timeout=20)
        assert rc == 0 and "chat has 2 of 2 servers in service at gate" in said, said
        # A person who works at the host takes it over from the event.
        play(found, site, "drain", **event, drain_min_available=0)
        rc, said = play(found, site, "drain", "-l", "gw", drain_min_available=0, drain_reason="the server is open")
        assert rc == 0 and owners(found) == {"admin:alice"}, said
        rc, said = play(found, site, "undrain", **event, undrain_proof=True, undrain_timeout=2)
        assert rc and "stays drained, because a person or a rollout drained it" in said, said
        assert found.state(ONE).startswith("DRAIN")
        rc, said = play(found, site, "undrain", "-l", "gw", undrain_timeout=20)
        assert rc == 0 and found.state(ONE) == "UP", said


@needs_mounts
def test_a_removal_that_is_refused_lists_what_it_would_remove(site):
    FakeSystemd(site / "systemd.json").install(site / "bin")
    there = FakeInstances(site / "root")
    for name in ("chat-1", "chat-2"):
        there.template(name)
    given = {"remove_instance": "chat-1,chat-2", "__remove_root": str(there.root), "vllm_user": "nobody-has-this-name"}
    with gate(site / "gate") as found:
        rc, said = play(found, site, "remove", "-l", "gw", "--check", **given)
        assert rc and "gw: would remove: instance chat-1 vllm@chat-1.service (" in said, said
        assert "no server would remain, but min_available is 1" in said and "-e drain_min_available=0" in said, said
        rc, said = play(found, site, "remove", "-l", "gw", "--check", **given, drain_min_available=0)
        assert rc == 0 and said.count("would remove: ") == 1 and found.state(ONE) == "UP", said


@needs_mounts
def test_a_host_that_is_off_is_drained_all_the_same(site):
    inventory = json.loads((site / "hosts.json").read_text())
    off = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory["all"]["children"]["inference"]["hosts"]["gw"].update(off)
    (site / "hosts.json").write_text(json.dumps(inventory))
    with gate(site / "gate") as found:
        rc, said = play(found, site, "drain", "-l", "gw", drain_min_available=0)
        assert rc == 0 and "Fail if engines still work" in said and "ignored=1" in said, said
        assert "chat has 0 of 2 servers in service at gate" in said and found.state(ONE).startswith("DRAIN")


@needs_mounts
def test_an_instance_that_is_removed_leaves_its_gateways_first(site):
    role = {"name": "baremetal.inference.vllm", "tasks_from": "leave_gateways"}
    tasks = [{"name": "Leave", "ansible.builtin.include_role": role}]
    playbook = site / "leave"
    playbook.with_suffix(".yml").write_text(json.dumps([{"hosts": "gw", "gather_facts": False, "tasks": tasks}]))
    variables = {"vllm_drain_timeout": 20}
    with gate(site / "gate") as found:
        rc, said = play(found, site, playbook, __vllm_name="chat-9", **variables)
        assert rc == 0 and "changed=0" in said, said
        rc, said = play(found, site, playbook, "--check", __vllm_name="chat-1", **variables)
        assert rc == 0 and "changed=1" in said and found.state(ONE) == "UP", said
        with running(found, found.first):
            found.first.freed.set()
            rc, said = play(found, site, playbook, __vllm_name="chat-1", **variables)
        assert rc == 0 and "changed=1" in said and found.state(ONE).startswith("DRAIN"), said
        assert found.state(TWO) == "UP"
        entry = run(found)["servers"][ONE]
        assert (entry["reason"], entry["sessions"]) == ("no longer in vllm_instances", 0)
        # Its service ends with it, and a gateway that does not answer stops nothing.
        rc, said = play(found, site, playbook, __vllm_name="chat-2", **variables)
        assert rc == 0 and found.state(TWO).startswith("DRAIN"), said
        found.stop()
        rc, said = play(found, site, playbook, __vllm_name="chat-2", **variables)
        assert rc == 0 and "changed=0" in said, said
