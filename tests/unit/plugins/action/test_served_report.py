# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of site.yml on a site without a gateway; test_gateway_plan.py has that of gateway.yml."""

from __future__ import annotations

import json
import subprocess

from tests.fakes.inventory_plugin import command


def test_a_site_without_a_gateway_has_the_address_of_each_instance(tmp_path):
    plan = {"listen": {"host": "0.0.0.0", "port": 8000}, "served_model_names": ["a/b"]}
    addresses = {"a": "{{ prefix }}.1", "b": "10.0.0.2", "mirror": "10.0.0.3"}
    hosts = {name: {"ansible_host": address, "prefix": "10.0.0"} for name, address in addresses.items()}
    for name in ("a", "b"):
        hosts[name]["vllm_plan"] = {"plans": {"chat": plan}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    task = {"baremetal.inference.served_report": {}, "run_once": True}
    (tmp_path / "end.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    words = ("-i", str(tmp_path / "hosts.json"), str(tmp_path / "end.yml"))
    done: subprocess.CompletedProcess[str] = command(tmp_path, "ansible-playbook", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "\nServed by each host itself, because the site has no gateway:\n"
        "  http://10.0.0.1:8000/v1 on a: a/b\n"
        "  http://10.0.0.2:8000/v1 on b: a/b\n"
        "Next: `inference verify`, or `inference chat a chat QUESTION`.\n"
    ) in done.stdout
