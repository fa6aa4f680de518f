# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.inventory_variables import KeptHostVariables


class HostVars(dict):
    """Stands for Ansible's hostvars."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def raw_get(self, host):
        self.asked.append(host)
        return {"cluster": "a"}


def test_a_host_is_read_once():
    hostvars = HostVars()
    kept = KeptHostVariables(hostvars)
    assert kept.raw_get("a") == kept.raw_get("a") == {"cluster": "a"}
    assert hostvars.asked == ["a"]
