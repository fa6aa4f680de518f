# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts that were kept and cannot be read; the rest is in tests of the plugin and of its sources."""

from __future__ import annotations

from ansible.errors import AnsibleError
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory import host_variables as _host_variables
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.host_variables import CachedFacts


class Damaged:
    """A cache plugin whose file of one host is cut."""

    def contains(self, host):
        return host in ("gpu-1", "gpu-2")

    def get(self, host):
        if host == "gpu-1":
            raise AnsibleError("the file was corrupt")
        return {"accelerator_detected": {"model": "h200"}}


def test_damaged_facts_are_named_and_stop_nothing(monkeypatch):
    monkeypatch.setattr(_host_variables.constants, "CACHE_PLUGIN", "jsonfile")
    monkeypatch.setattr(_host_variables.cache_loader, "get", lambda _name: Damaged())
    warnings = []
    facts = CachedFacts(True, warnings.append)
    assert facts.of("gpu-1") == facts.of("gpu-3") == {}
    assert facts.of("gpu-2") == {"accelerator_detected": {"model": "h200"}}
    assert warnings == ["the fact cache of gpu-1 cannot be read and is ignored: the file was corrupt"]
