# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role monitoring reports on other hosts than Debian's. molecule/role_monitoring has the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]


def run(directory, system, tasks):
    """Run one file of the role's tasks on this machine, as if it had another operating system."""
    facts = {"os_family": system, "distribution": system, "cacheable": True}
    steps = [
        {"ansible.builtin.set_fact": facts},
        {"ansible.builtin.include_role": {"name": "baremetal.inference.monitoring", "tasks_from": tasks}},
    ]
    variables = {"ansible_become": False, "ansible_python_interpreter": sys.executable}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "tasks": steps}
    (directory / "play.json").write_text(json.dumps([play]))
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", directory / "play.json"],
        cwd=TOP, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_host_of_the_red_hat_family_without_the_package_is_told_what_to_do(tmp_path):
    # Here the step fails as it does where no repository has the package: there is no dnf.
    status, text = run(tmp_path, "RedHat", "package_redhat")
    assert status and "localhost: /usr/bin/node_exporter cannot be installed: " in text
    assert "enable EPEL, or install an exporter by other means and name its program in monitoring_node_program" in text


@pytest.mark.parametrize("system", ["Suse", "Archlinux"])
def test_an_unknown_system_is_refused_before_anything_changes(tmp_path, system):
    status, text = run(tmp_path, system, "preflight")
    assert status and f"knows no package of the node exporter for {system}" in text
    assert "name its program in monitoring_node_program" in text and "changed=1" not in text.replace("changed=0", "")
