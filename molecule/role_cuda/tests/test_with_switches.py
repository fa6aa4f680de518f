# SPDX-License-Identifier: GPL-3.0-or-later
"""Boards whose chips hang on NVLink switches: the last of the tests, because the hosts become other machines."""

from __future__ import annotations

import pytest

MACHINES = {"cpu-12": "hgx_h200", "cpu-13": "hgx_b200"}
CHIPS = {"accelerator": "{{ {'cpu-12': 'h200', 'cpu-13': 'b200'}[inventory_hostname] }}"}
MANAGER = ("nvidia-fabricmanager", "libnvidia-nscq")


@pytest.fixture(scope="module")
def boards(fleet):
    """Make the hosts boards with switches."""
    fleet.run("systemctl stop nvidia-persistenced")
    for name, host in fleet.hosts.items():
        host.check_output(f"standin tree {MACHINES[name]} --host-processor")
    return fleet


# The scenario fleet has such a board too.
@pytest.mark.long
def test_the_fabric_manager_comes_at_the_version_of_the_driver(boards):
    done = boards.play(**CHIPS)
    assert done.rc == 0, done.output
    for host in boards.hosts.values():
        assert {host.package(name).version for name in MANAGER} == {"580.95.05-1"}
        assert host.service("nvidia-fabricmanager").is_running
        assert {*MANAGER} <= set(host.check_output("apt-mark showhold").split())
    assert not boards.hosts["cpu-12"].package("nvlsm").is_installed
    assert boards.hosts["cpu-13"].package("nvlsm").is_installed
    assert boards.hosts["cpu-13"].check_output("ls /standin/sys/module").split().count("ib_umad") == 1


@pytest.mark.long
def test_a_fabric_manager_of_another_version_is_mended(boards):
    boards.run(
        "apt-get -q -y --allow-change-held-packages -o Dir::Etc::preferencesparts=/none install"
        " nvidia-fabricmanager=580.159.04-1; systemctl restart nvidia-fabricmanager"
    )
    boards.until("! systemctl -q is-active nvidia-fabricmanager")
    assert set(boards.run("systemctl is-active nvidia-fabricmanager || true").values()) <= {"failed", "inactive"}
    done = boards.play(**CHIPS)
    assert done.rc == 0, done.output
    for host in boards.hosts.values():
        assert host.package("nvidia-fabricmanager").version == "580.95.05-1"
        assert host.service("nvidia-fabricmanager").is_running
