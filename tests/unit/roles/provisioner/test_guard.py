# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard in the ramdisk, as Ironic's agent calls it."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning import disk_marks_host

FILES = Path(__file__).resolve().parents[4] / "roles/provisioner/files"


def load(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), FILES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def guard(monkeypatch):
    """Return the guard with the agent's names in place of the agent, which lives in the ramdisk only."""
    agent, errors, hardware = (types.ModuleType(name) for name in ("ironic_python_agent", "errors", "hardware"))
    errors.DeploymentError = type("DeploymentError", (Exception,), {})
    hardware.HardwareManager = object
    hardware.HardwareSupport = types.SimpleNamespace(SERVICE_PROVIDER=3)
    hardware.dispatch_to_managers = lambda *_words, **_more: "/dev/sda"
    agent.errors, agent.hardware = errors, hardware
    monkeypatch.setitem(sys.modules, "ironic_python_agent", agent)
    return load("baremetal_guard")


def check(guard, monkeypatch, disk, markers, released):
    """Run the guard's step over a disk of file systems with these marks."""
    monkeypatch.setattr(disk_marks_host, "contents", lambda _device: disk)
    seen = (*disk_marks_host.READABLE, *disk_marks_host.WITHOUT_HOST)
    monkeypatch.setattr(
        disk_marks_host,
        "markers_on",
        lambda name, kind: [markers[name]] if name in markers else [] if kind in seen else ["unreadable"],
    )
    return guard.BaremetalGuard().refuse_known_host({"extra": {"released": released}}, [])


@pytest.mark.parametrize(
    ("disk", "markers", "released"),
    [
        ([], {}, ""),
        ([("/dev/sda1", "vfat"), ("/dev/sda2", "ext4")], {}, ""),
        ([("/dev/sda2", "ext4")], {"/dev/sda2": "gpu-01"}, "gpu-01"),
        ([("/dev/sda2", "LVM2_member")], {}, "gpu-01"),
    ],
)
def test_an_empty_disk_and_that_of_the_released_host_are_written(guard, monkeypatch, disk, markers, released):
    assert "no host, or the released one" in check(guard, monkeypatch, disk, markers, released)


@pytest.mark.parametrize(
    ("disk", "markers", "released", "said"),
    [
        ([("/dev/sda2", "ext4")], {"/dev/sda2": "gpu-01"}, "", "/dev/sda2 holds the host 'gpu-01', which nobody has"),
        ([("/dev/sda2", "xfs")], {"/dev/sda2": "gpu-02"}, "gpu-01", "holds the host 'gpu-02'"),
        ([("/dev/sda1", "ext4"), ("/dev/sda2", "btrfs")], {"/dev/sda2": "gpu-01"}, "", "holds the host 'gpu-01'"),
        ([("/dev/sda2", "LVM2_member")], {}, "", "/dev/sda2 is LVM2_member, and this guard cannot see"),
        ([("/dev/sda2", "crypto_LUKS")], {}, "", "release the host to overwrite it"),
        ([("/dev/sda2", "linux_raid_member")], {}, "", "linux_raid_member"),
    ],
)  # fmt: skip
def test_the_disk_of_a_host_that_nobody_released_is_never_written(guard, monkeypatch, disk, markers, released, said):
    with pytest.raises(Exception, match=r"host") as error:
        check(guard, monkeypatch, disk, markers, released)
    assert type(error.value).__name__ == "DeploymentError"
    assert said in str(error.value)


def test_the_guard_comes_before_the_write(guard):
    (step,) = guard.BaremetalGuard().get_deploy_steps({}, [])
    assert (step["step"], step["priority"] > 80) == ("refuse_known_host", True)
