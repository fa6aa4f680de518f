# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.remains import show_remains

from tests.fakes.provision_world import FakeSite

HELD = {"chat": {"VLLM_API_KEY": "s3cret"}, "embed": {"VLLM_API_KEY": "s3cret", "HF_TOKEN": "s3cret"}}
HOSTS = """\
inference:
  hosts:
    gpu-01: {ansible_host: 10.0.1.11} # beside gpu-02
    gpu-010: {}
    x-gpu-01: {}
    gpu-01.example: {}
  children:
    racked: {hosts: {gpu-01: }} # gpu-01
"""


def remains(tmp_path, secrets=True, outcome="removed", **change):
    """Return what is shown for a host, with the files named from the inventory's directory."""
    site = FakeSite(tmp_path)
    job = replace(site.jobs()[0], outcome=outcome, **{"disks": ("DISK0001",), **change})
    variables = {"ansible_inventory_sources": [str(tmp_path / "site")], "hostvars": {"gpu-01": {}}}
    if secrets:
        variables["hostvars"]["gpu-01"]["vllm_secrets"] = HELD if secrets is True else secrets
    show_remains([job], variables, site.world())
    return [text.replace(f"{tmp_path}/", "") for text in site.shown]


@pytest.fixture
def inventory(tmp_path):
    """Return a directory of an inventory whose files name the host."""
    files = {
        "hosts.yml": HOSTS,
        "host_vars/gpu-01.yml": "a: 1\n",
        "gpu-01/b.yml": "b: 1\n",
        "host_vars/gpu-02.yml": "# gpu-01\n",
    }
    for name, text in {**files, "group_vars/all/main.yml": "heads: [gpu-02, gpu-01]\n"}.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_lines_of_the_inventory_and_the_secrets_of_the_host_are_named_without_their_values(inventory):
    assert remains(inventory) == [
        "gpu-01: remove the host from the inventory (site/host_vars/gpu-01.yml, site/group_vars/all/main.yml:1, "
        "site/hosts.yml:3, site/hosts.yml:8), then run gateway.yml: its servers stay drained at the gateways until "
        "then",
        "gpu-01: rotate what its disk DISK0001 may still hold, if it leaves the site: VLLM_API_KEY of chat, "
        "VLLM_API_KEY of embed, HF_TOKEN of embed, gateway_secret, health_webhook_token",
    ]


def test_a_host_of_a_range_and_one_without_secrets_are_told_so(tmp_path):
    first, second = remains(tmp_path, secrets=None)
    assert "(no file names it; a range of names may)" in first
    assert second.endswith("if it leaves the site: gateway_secret, health_webhook_token")


@pytest.mark.parametrize(
    ("change", "warned"),
    [({"secure": True}, False), ({"secure": True, "disks": ("DATA0001",)}, True), ({"disks": ()}, True)],
)
def test_a_disk_whose_content_is_erased_holds_no_secret(inventory, change, warned):
    assert any("may still hold" in text for text in remains(inventory, **change)) is warned


@pytest.mark.parametrize("outcome", ["failed", "absent", ""])
def test_a_host_that_was_not_removed_leaves_nothing_to_do(inventory, outcome):
    assert remains(inventory, outcome=outcome) == []
