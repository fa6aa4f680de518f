# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of the instances of a host: what serves, what is kept, and what differs."""

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots.host import Slots
from ansible_collections.baremetal.inference.plugins.module_utils.slots.installed_host import Host
from ansible_collections.baremetal.inference.plugins.module_utils.slots.restore_host import Engine
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import summarize_plan
from ansible_collections.baremetal.inference.plugins.module_utils.slots.status_host import status_of_host

from tests.fakes.systemd import FakeInstances, FakeSystemd

PLAN = {"release": "0.32.0", "model": "example/tiny", "args": {"port": 8000}}


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    return FakeSystemd(tmp_path / "systemd.json")


@pytest.fixture
def there(tmp_path):
    return FakeInstances(tmp_path / "root")


def keep(there, systemd):
    slots = Slots(Host(str(there.root), Engine(systemd).image_id), "chat")
    with slots.locked():
        slots.keep(slots.host.state("chat"), summarize_plan(PLAN), None, 2)
    return slots


def status(there, systemd, *plans):
    plan = plans[0] if plans else PLAN
    found = status_of_host(systemd, str(there.root), {"chat": plan} if plan else {}, 2)
    return found["instances"].get("chat"), found


def test_a_host_without_instances_has_none(there, systemd):
    assert status(there, systemd)[1] == {"instances": {}, "stale_instances": [], "turn": None}


def test_an_instance_that_was_kept_and_runs(there, systemd):
    there.template()
    slots = keep(there, systemd)
    systemd.runs("vllm@chat.service")
    found, _all = status(there, systemd)
    assert (found["installed"], found["up"], found["stale"], found["missing"]) == (True, True, False, [])
    assert found["digest"] == found["good"]["digest"] == slots.good and found["previous"] is None
    assert found["kept"] and found["running_since"].endswith("Z")


def test_a_new_plan_or_a_change_by_hand_is_not_kept_yet(there, systemd):
    there.template()
    keep(there, systemd)
    assert status(there, systemd)[0]["kept"]
    assert not status(there, systemd, {**PLAN, "args": {"port": 9000}})[0]["kept"]
    assert not status(there, systemd, None)[0]["kept"]
    there.template(flag="2")
    found = status(there, systemd)[0]
    assert not found["kept"] and found["digest"] != found["good"]["digest"]


def test_an_instance_that_runs_with_older_files_is_stale(there, systemd):
    there.template()
    systemd.runs("vllm@chat.service", since=1.0)
    found, whole = status(there, systemd)
    assert found["stale"] and whole["stale_instances"] == ["chat"]


def test_a_slot_that_was_damaged_says_so_and_hides_nothing_else(there, systemd):
    there.template()
    slots = keep(there, systemd)
    with open(f"{slots.directory}/{slots.good}/slot.json", "w", encoding="utf-8") as file:
        file.write("{")
    found = status(there, systemd)[0]
    (slot,) = found["slots"]
    assert slot["digest"] == slots.good and slot["plan"] == {} and "slot.json" in slot["damage"][0]
    assert "damage" not in found["good"] and not found["kept"]


def test_an_instance_that_was_removed_still_has_its_slots(there, systemd):
    there.template()
    keep(there, systemd)
    there.at("/etc/vllm/chat.yaml").unlink()
    systemd.runs("vllm@chat.service", since=1.0)
    found = status(there, systemd)[0]
    assert (found["installed"], found["digest"], found["stale"], found["missing"]) == (False, "", False, [])
    assert len(found["slots"]) == 1 and not found["kept"]


def test_an_instance_that_lacks_a_file_names_it(there, systemd):
    there.template()
    there.at("/etc/vllm/chat.env").unlink()
    assert status(there, systemd)[0]["missing"] == ["/etc/vllm/chat.env"]
