# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of disks, with an agent in memory; tests/integration/test_wipe.py has the real agent and real disks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning import wipe_host
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning.named_disks import NamedDiskError

PARTS = {"/dev/sda": ["/dev/sda", "/dev/sda1"], "/dev/sdb": ["/dev/sdb", "/dev/sdb1"]}


def device(name, serial=""):
    return SimpleNamespace(name=name, serial=serial, wwn=None, wwn_with_extension=None)


class Agent:
    """Two disks with a partition each; ``blind`` ignores what is to be skipped."""

    def __init__(self, blind=False):
        self.blind, self.erased, self.how = blind, [], ""

    def __call__(self, name, node=None, ports=None, include_partitions=False):
        disks = [device("/dev/sda", "DATA"), device("/dev/sdb", "SYSTEM")]
        every = [*disks, device("/dev/sda1", "DATA"), device("/dev/sdb1", "SYSTEM")]
        if name == "list_block_devices":
            return every if include_partitions else disks
        skipped = {hint["name"].partition(" ")[2] for hint in node["properties"]["skip_block_devices"]}
        left = [each for each in every if self.blind or each.name not in skipped]
        if name == "list_block_devices_check_skip_list":
            return left
        self.how, self.erased = name, [each.name for each in left]
        return None


@pytest.fixture
def marks(monkeypatch):
    """Return the refusals by device."""
    found = {}
    monkeypatch.setattr(wipe_host, "parts_of", PARTS.__getitem__)
    monkeypatch.setattr(wipe_host, "refusal", lambda name, _released: found.get(name, ""))
    return found


def wipe(agent, *disks, secure=False):
    return wipe_host.wipe(agent, {"properties": {}, "extra": {"released": "gpu-01"}}, [], list(disks), secure)


@pytest.mark.parametrize(("secure", "how"), [(False, "erase_devices_metadata"), (True, "erase_devices")])
def test_the_named_disk_is_wiped_with_its_partitions_and_no_other(marks, secure, how):
    agent = Agent()
    assert wipe(agent, "SYSTEM", secure=secure) == "wiped /dev/sdb"
    assert (agent.how, sorted(agent.erased)) == (how, ["/dev/sdb", "/dev/sdb1"])


def test_all_disks_are_wiped_where_all_are_named(marks):
    agent = Agent()
    wipe(agent, "SYSTEM", "DATA")
    assert len(agent.erased) == 4


@pytest.mark.parametrize("disks", [[], ["OTHER"], ["SYSTEM", "OTHER"], ["SYSTEM", "SYSTEM"]])
def test_nothing_is_wiped_where_one_of_the_disks_is_not_there(marks, disks):
    agent = Agent()
    with pytest.raises(NamedDiskError):
        wipe(agent, *disks)
    assert agent.erased == []


def test_nothing_is_wiped_where_one_of_the_disks_holds_another_host(marks):
    agent = Agent()
    marks["/dev/sda"] = "/dev/sda1 holds the host 'gpu-02', which nobody has released"
    with pytest.raises(NamedDiskError, match="holds the host 'gpu-02'"):
        wipe(agent, "SYSTEM", "DATA")
    assert agent.erased == []


def test_nothing_is_wiped_where_the_agent_would_take_another_disk(marks):
    agent = Agent(blind=True)
    with pytest.raises(NamedDiskError, match="would not wipe /dev/sdb alone"):
        wipe(agent, "SYSTEM")
    assert agent.erased == []
