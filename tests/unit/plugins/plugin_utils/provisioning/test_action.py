# SPDX-License-Identifier: GPL-3.0-or-later
"""The actions: who holds the record, what counts as changed, what check mode shows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.action import deprovision_hosts, power_cycle_hosts, provision_hosts
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning import action as base

from tests.fakes.provision_world import FakeSite

OPTIONS = {"hosts": ["gpu-01"], "disks": {}, "secure": False, "faults": {}, "provisioner": "", "logs": "/nonexistent"}


@pytest.fixture
def act(tmp_path, monkeypatch):
    """Return a function that runs an action on a site of one host; it returns the result and what was shown."""
    site, shown = FakeSite(tmp_path, 1), []
    provisioner = SimpleNamespace(image_of=None, wipes=True)
    monkeypatch.setattr(base, "read_provisioner", lambda _text: provisioner)
    monkeypatch.setattr(base, "read_settings", lambda *_words: site.settings)
    monkeypatch.setattr(base, "read_jobs", lambda *_words: site.jobs())
    monkeypatch.setattr(base, "real_world", lambda *_words: site.world())
    monkeypatch.setattr(base, "show", shown.append)

    def act(module, check=False):
        action = object.__new__(module.ActionModule)
        action._task = SimpleNamespace(check_mode=check)
        shown.clear()
        found = action.decide(OPTIONS, {"hostvars": {"gpu-01": {}}})
        return found["changed"], found["hosts"]["gpu-01"]["outcome"], shown

    return act


def test_a_host_is_planned_written_and_left_alone(act, tmp_path):
    changed, outcome, shown = act(provision_hosts, check=True)
    assert (changed, outcome) == (True, "planned") and shown[0].startswith("gpu-01: would")
    assert not list(tmp_path.glob("**/*.run"))
    assert act(provision_hosts) == (True, "written", [])


def test_a_host_without_a_record_is_not_removed(act):
    assert act(deprovision_hosts) == (False, "absent", [])


def test_what_a_removed_host_leaves_to_do_is_shown_at_the_end(act, tmp_path, monkeypatch):
    act(provision_hosts)
    site = FakeSite(tmp_path, 1)
    monkeypatch.setattr(base, "read_jobs", lambda *_words: site.jobs("gpu-01"))
    monkeypatch.setattr(base, "real_world", lambda *_words: site.world())
    monkeypatch.setattr(base, "read_settings", lambda *_words: site.settings)
    assert act(deprovision_hosts)[:2] == (True, "removed")
    assert ["remove the host from the inventory" in text for text in site.shown[-2:]] == [True, False]


def test_a_host_without_a_fault_is_not_switched(act):
    assert act(power_cycle_hosts) == (False, "well", [])
