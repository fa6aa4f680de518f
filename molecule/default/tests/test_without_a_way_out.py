# SPDX-License-Identifier: GPL-3.0-or-later
"""A site without a way out: what was carried is enough, and a new revision of the weights has a way back.

The tests build on one another, in this order.
"""

from __future__ import annotations

import json
import os
import re

import pytest
from serving_host import chat, journal, playbook, wait_active

from tests.lab_host import connect

OUTSIDE = "151.101.2.132"
LAB_HOME = os.environ["LAB_HOME"]
NEW = {
    "weights_manifest_path": [f"{LAB_HOME}/made/manifests"],
    "vllm_verify_expect": "The crew is ready.",
    "rollout_prompts": [{"prompt": "Is the fleet ready?", "expect": "The crew is ready."}],
}
# One host that serves, and no gateway before it.
ROLLOUT = {
    "rollout_state_dir": f"{LAB_HOME}/{os.environ['LAB_NAME']}/rollouts",
    "rollout_min_available": 0,
    "rollout_measure": {"streams": 1, "prompts": 2, "max_tokens": 16},
    # Another lab may have the processors meanwhile.
    "rollout_throughput_share": 0.05,
    "rollout_first_token_share": 0.05,
}


@pytest.fixture(params=["mirror", "cpu-12"])
def lab_host(request):
    """Each host of the site."""
    return connect(request.param)


@pytest.fixture
def mirror_is_off():
    """The mirror, with nothing that serves."""
    mirror = connect("mirror")
    mirror.check_output("systemctl stop nginx")
    yield mirror
    mirror.check_output("systemctl start nginx")


def run(name, *options, **variables):
    """Run a playbook and return its output."""
    done = playbook(name, *options, "-e", json.dumps(variables))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def changed(output):
    """Return the names of the tasks that changed something."""
    names, task = [], ""
    for line in output.splitlines():
        found = re.match(r"TASK \[(.*)\]", line)
        task = found[1] if found else task
        if line.startswith("changed:"):
            names.append(task)
    return names


def model(host):
    """Return the revision that the instance is served from."""
    return host.check_output("basename $(readlink -f /var/lib/vllm/chat/model)")


def test_no_route_leads_out(lab_host):
    assert lab_host.check_output("ip route show default") == ""
    said = lab_host.run("timeout 5 bash -c '</dev/tcp/%s/80'", OUTSIDE)
    assert said.rc != 0
    assert "Network is unreachable" in said.stderr


def test_nobody_answers_outside_even_with_a_route_through_the_controller(lab_host):
    prefix = os.environ["LAB_SUBNET_PREFIX"]
    lab_host.check_output("ip route add default via %s.1", prefix)
    said = lab_host.run("timeout 5 bash -c '</dev/tcp/%s/80'", OUTSIDE)
    lab_host.check_output("ip route del default via %s.1", prefix)
    assert said.rc != 0


def test_no_name_outside_is_known(lab_host):
    assert lab_host.run("timeout 30 getent hosts deb.debian.org").rc != 0
    assert lab_host.check_output("getent hosts mirror").split()[0] == f"{os.environ['LAB_SUBNET_PREFIX']}.10"


def test_the_disk_is_what_mirror_yml_says():
    done = playbook("playbooks/mirror.yml", "-e", f"bundle_dir={LAB_HOME}/mirror", "-e", "bundle_verify=true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "baremetal/gpt-oss-smoke/" in done.stdout


def test_it_answers(host):
    wait_active(host)
    assert chat() == "The fleet is ready."


def test_a_new_revision_is_rolled_out(host):
    old = model(host)
    run("playbooks/rollout.yml", **ROLLOUT, **NEW)
    assert chat() == "The crew is ready.", journal(host)
    assert model(host) != old


def test_it_is_rolled_back_without_a_download(host, mirror_is_off):
    assert mirror_is_off.run("curl -s -m 5 http://127.0.0.1/").rc != 0
    new = model(host)
    output = run("playbooks/rollback.yml", **ROLLOUT, rollout_undo="last")
    assert chat() == "The fleet is ready.", journal(host)
    assert model(host) != new
    assert not [name for name in changed(output) if re.search(r"\.(weights|encodings) : ", name)], output
    # The new one stays too, for the way forward.
    assert host.file(f"/srv/models/baremetal/gpt-oss-smoke/{new}/config.json").exists


def test_nothing_is_left_to_do(host, mirror_is_off):
    output = run("site.yml", "--limit", "cpu-12")
    assert re.search(r"cpu-12 .*changed=0 .*failed=0", output), output
