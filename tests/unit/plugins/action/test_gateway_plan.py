# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/gateway.yml on this machine in check mode, and the action that decides; no host is connected to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.certificate_host import issue_from_site_ca

from tests.fakes.actions import ACTIONS
from tests.fakes.outputs import squeezed

TOP = Path(__file__).resolve().parents[4]
KEY = "planted-key-" + "0123456789abcdef" * 2
CHAT = {"chat": {"recipe": "baremetal/gpt-oss-smoke", "host": "0.0.0.0", "port": 8000}}


@pytest.fixture
def site(tmp_path):
    """An inventory of two hosts of a cluster, one of another, and a gateway; and a key."""
    (tmp_path / "alice.key").write_text(f"{KEY}\n")
    (tmp_path / "alice.key").chmod(0o600)
    serving = {"accelerator": "cpu", "vllm_release": "0.32.0", "vllm_instances": CHAT}
    hosts = {
        "cpu-1": {**serving, "ansible_host": "10.0.0.1"},
        "cpu-2": {**serving, "ansible_host": "10.0.0.2"},
        "far": {**serving, "ansible_host": "10.9.0.1"},
    }
    groups = {
        "inference": {"hosts": hosts},
        "cluster_a": {"hosts": {"cpu-1": {}, "cpu-2": {}}},
        "cluster_b": {"hosts": {"far": {}}},
        "gateways": {"hosts": {"gw": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}},
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    (tmp_path / "show.yml").write_text(
        json.dumps(
            [
                {
                    "hosts": "gateways",
                    "gather_facts": False,
                    "tasks": [
                        {
                            "import_role": {"name": "baremetal.inference.gateway", "tasks_from": "preflight"},
                        },
                        {"keep_result": {"value": "{{ __gateway_plan }}", "dest": str(tmp_path / "plan.json")}},
                        {"baremetal.inference.served_report": {}, "run_once": True},
                    ],
                }
            ]
        )
    )
    return tmp_path


def run(site, *arguments, **variables):
    given = {
        "gateway_cluster": "a",
        "gateway_clients": {"alice": {"key_file": str(site / "alice.key"), "rate": 60}},
        "gateway_ca_dir": str(site / "ca"),
        "gateway_port": 18443,
        "ansible_become": False,
        **variables,
    }
    words = [sys.executable, "-m", "ansible", "playbook", str(site / "show.yml"), "-i", str(site / "hosts.json")]
    done = subprocess.run(
        [*words, "-e", json.dumps(given), *arguments],
        cwd=TOP,
        env={
            **os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(site / "tmp"),
            "ANSIBLE_ACTION_PLUGINS": str(ACTIONS),
            "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0",
        },
        check=False,
        capture_output=True,
        text=True,
    )  # fmt: skip
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_a_gateway_serves_the_hosts_of_its_cluster_and_knows_no_key(site):
    rc, said = run(site, "-vvv", "--diff")
    assert rc == 0, said
    plan = json.loads((site / "plan.json").read_text())
    (service,) = plan["services"]
    assert (service["name"], service["port"]) == ("chat", 18443)
    assert [(each["name"], each["address"], each["port"]) for each in service["servers"]] == [
        ("cpu-1--chat", "10.0.0.1", 8000),
        ("cpu-2--chat", "10.0.0.2", 8000),
    ]
    assert plan["clients"][0]["name"] == "alice" and plan["names"] == ["gw"]
    assert KEY not in said and KEY not in (site / "plan.json").read_text()
    assert plan["clients"][0]["services"] == ["*"] and "models" not in plan
    # A preflight makes nothing, on the controller neither.
    assert not (site / "ca").exists()


@pytest.mark.parametrize("arguments, heading", [((), "Served:"), (("--check",), "Would be served:")])
def test_the_end_of_a_run_says_where_the_models_are_served(site, arguments, heading):
    rc, said = run(site, *arguments, gateway_names=["models.example"], gateway_host_address="10.0.0.9")
    assert rc == 0 and KEY not in said, said
    told = (
        f"{heading} https://10.0.0.9:18443/v1 (gw): baremetal/gpt-oss-smoke Clients need the certificate of the CA "
        f"({site}/ca/ca.crt) and a key. Keys: alice in {site}/alice.key. "
        "Another key: `inference key add NAME --team TEAM`. "
        "Next: `inference verify`, or `inference chat cpu-1 chat QUESTION`."
    )
    assert squeezed(told) in squeezed(said), said


def test_a_lost_ca_is_not_replaced_without_permission(site):
    issue_from_site_ca(str(site / "lost"), "gw", ["gw"], 825, 30, False)
    chain = (site / "lost/gw.crt").read_text() + (site / "lost/gw.key").read_text()
    (site / "gateway.pem").write_text(f"Bag Attributes\n{chain}")
    unused = dict.fromkeys(
        ("socket", "agent", "config", "maps", "settle", "refuse", "hanging", "body"), str(site / "none")
    )
    paths = {**unused, "certificate": str(site / "gateway.pem")}
    rc, said = run(site, "-vvv", __gateway_paths=paths)
    assert (
        rc != 0
        and squeezed("gw: clients trust 'baremetal.inference site CA") in squeezed(said)
        and "/ca/ca.crt is missing" in said
    ), said
    assert "PRIVATE KEY" not in said
    rc, said = run(site, __gateway_paths=paths, gateway_ca_replace=True)
    assert rc == 0, said


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_done(site):
    (site / "alice.key").chmod(0o644)
    rc, said = run(
        site,
        gateway_min_available=3,
        gateway_services={"chatt": {"port": 1}},
        gateway_paths=[{"path": "x"}],
        gateway_tls="off",
    )
    assert rc != 0
    for words in (
        "is open to everybody (mode 0644); run chmod 600 on it",
        "gateway_services.chatt: no host has an instance of this name; nearest: 'chat'",
        "gateway_min_available is 3",
        "gateway_paths[0].path: found 'x'",
        "gateway_tls is off, and gateway_listen is 0.0.0.0",
    ):
        assert words in said, (words, said)
    assert not (site / "plan.json").exists()


def test_a_key_in_place_of_its_path_is_not_shown(site):
    rc, said = run(site, gateway_clients={"alice": {"key_file": KEY}, "bob": {"key_file": "keys/bob.key"}})
    assert rc != 0 and KEY not in said, said
    assert f"gateway_clients.alice.key_file: a text of {len(KEY)} characters is not an absolute path; give" in said, (
        said
    )
    assert "gateway_clients.bob.key_file: keys/bob.key is not an absolute path; give" in said, said


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"gateway_cluster": "c"}, "no host of the group inference is in the cluster 'c'"),
        ({"gateway_backends": ["cpu-9"]}, "gateway_backends: 'cpu-9' is neither a host nor a group; nearest: 'cpu-"),
        ({"gateway_ca_dir": ""}, "gateway_ca_dir is empty; name a directory on the controller"),
        (
            {"gateway_models": {"chat": {}}},
            "gateway_models.chat: no services share a port, so no request is routed by its model",
        ),
        ({"gateway_portt": 1}, "gateway_portt is not an option of the role gateway; nearest: 'gateway_port'"),
    ],
)
def test_one_clear_error(site, variables, words):
    rc, said = run(site, **variables)
    assert rc != 0 and squeezed(words) in squeezed(said), said
