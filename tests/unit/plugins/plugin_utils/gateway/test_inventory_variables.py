# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible import constants
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.inventory_variables import KeptHostVariables


class HostVars(dict):
    """Stands for Ansible's hostvars; the facts of a host become its variables if Ansible is configured so."""

    def __init__(self, facts):
        super().__init__()
        self.facts, self.asked = facts, []

    def raw_get(self, host):
        self.asked.append((host, constants.INJECT_FACTS_AS_VARS))
        injected = {f"ansible_{name}": value for name, value in self.facts.items()}
        return {"ansible_facts": self.facts, **(injected if constants.INJECT_FACTS_AS_VARS else {})}


@pytest.fixture(params=[True, False])
def injected(monkeypatch, request):
    monkeypatch.setattr(constants, "INJECT_FACTS_AS_VARS", request.param)
    return request.param


def test_a_host_without_facts_is_read_once_and_none_are_injected(injected):
    hostvars = HostVars({})
    kept = KeptHostVariables(hostvars)
    assert kept.raw_get("a") == kept.raw_get("a") == {"ansible_facts": {}}
    assert hostvars.asked == [("a", False)]
    assert constants.INJECT_FACTS_AS_VARS is injected


def test_a_host_with_facts_has_them_as_ansible_is_configured(injected):
    kept = KeptHostVariables(HostVars({"distribution": "Debian"}))
    assert ("ansible_distribution" in kept.raw_get("a")) is injected
    assert constants.INJECT_FACTS_AS_VARS is injected


def test_an_error_leaves_the_configuration_as_it_was(injected):
    hostvars = HostVars({})
    hostvars.raw_get = lambda host: 1 / 0
    with pytest.raises(ZeroDivisionError):
        KeptHostVariables(hostvars).raw_get("a")
    assert constants.INJECT_FACTS_AS_VARS is injected
