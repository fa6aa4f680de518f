# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's stand-in, looked at by what looks at real hosts: each machine with a driver that is whole, and with less."""

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.drivers_host import read_drivers
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.host import inspect_host
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.proof import check_driver, listed
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import NOT_INSTALLED
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult as Said

from tests.standins import modules
from tests.standins.build import main
from tests.standins.packages import dkms_conf
from tests.standins.place import Place
from tests.standins.vendor import Options, vendor
from tests.standins.vendors import amd

KERNEL = "6.1.0-40-amd64"
MACHINES = {"mi300x": ("gfx942", 8), "mi355x": ("gfx950", 8), "r9700": ("gfx1201", 2)}
SYSTEM = {"modinfo": modules.modinfo, "dkms": modules.dkms}


def host(root, machine):
    """Make a machine with a whole driver of AMD's."""
    (root / "etc").mkdir(parents=True)
    (root / "etc/group").write_text(f"root:x:0:\nrender:x:{os.getgid()}:\nvideo:x:44:\n")
    (root / "etc/os-release").write_text('ID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n')
    main(["--root", str(root), "tree", machine, "--kernel", KERNEL])
    place = Place(root)
    source = root / "usr/src/amdgpu-7.1.3-1/dkms.conf"
    source.parent.mkdir(parents=True)
    source.write_text(dkms_conf("amdgpu", "7.1.3-1", amd.MODULES, MODULE_VERSION="7.1.3.31500000", LICENSE="GPL"))
    (root / f"lib/modules/{KERNEL}/build").mkdir(parents=True)
    modules.dkms(["standin-install", "amdgpu", "7.1.3-1"], place)
    modules.unload(place, "amdgpu")
    assert modules.load(place, "amdgpu").rc == 0
    return place


def seen(place, tools=("amd-smi", "rocm-smi")):
    """Read the host as the collection does."""

    def run(argv):
        if argv[0] in SYSTEM:
            answer = SYSTEM[argv[0]](list(argv[1:]), place)
        elif argv[0] in tools:
            answer = vendor("amd").answer(argv[0], list(argv[1:]), place)
        else:
            return NOT_INSTALLED
        return Said(answer.rc, answer.out, answer.err)

    machine = place.machine()
    return inspect_host(str(place.root), str(place.sys), str(place.proc), chips=machine.chips(), run=run)


def whats(recording):
    return [finding.what for finding in check_driver(recording, "6.14.14")]


@pytest.mark.parametrize("tools", [("amd-smi",), ("rocm-smi",), ()])
@pytest.mark.parametrize("machine", MACHINES)
def test_each_machine_is_whole(tmp_path, machine, tools):
    generation, count = MACHINES[machine]
    place = host(tmp_path, machine)
    recording = seen(place, tools)
    assert whats(recording) == []
    who, gpus = listed(recording)
    assert who == (tools[0] if tools else "the kernel (KFD)")
    assert [gpu.generation for gpu in gpus] == [generation] * count
    assert recording.shown.driven == tuple(place.machine().chips())
    assert read_drivers(str(place.sys))["amd"] == {
        "version": "7.1.3.31500000",
        "mec_firmware": place.machine().chip["mec_firmware"],
    }


def test_tools_of_before_rocm_7(tmp_path):
    place = host(tmp_path, "mi300x")
    (place.state / "older-shape").touch()
    who, gpus = listed(seen(place))
    assert (who, len(gpus)) == ("amd-smi", 8)


@pytest.mark.parametrize(("tool", "said"), [("amd-smi", "amd-smi fails"), ("rocm-smi", "rocm-smi fails")])
def test_a_driver_that_is_not_loaded(tmp_path, tool, said):
    place = host(tmp_path, "mi300x")
    assert modules.unload(place, "amdgpu").rc == 0
    assert not (tmp_path / "dev/kfd").exists()
    assert whats(seen(place, (tool,))) == [
        "driver 7.1.3.31500000 is on disk and not loaded",
        f"{said}: no driver is loaded",
    ]


def test_device_nodes_that_udev_has_not_seen(tmp_path):
    place = host(tmp_path, "r9700")
    modules.unload(place, "amdgpu")
    (tmp_path / "etc/group").write_text("root:x:0:\n")
    modules.load(place, "amdgpu")
    assert sum("with mode 0660: containers and services get access by" in what for what in whats(seen(place))) == 3


def test_packages_count_as_the_vendors_do():
    options = Options("debian13", versions=("30.30.3", "31.50"), kernels=(KERNEL,))
    found = {repository.path: repository for repository in amd.VENDOR.repositories(options)}
    assert set(found) == {"amdgpu/30.30.3/ubuntu", "amdgpu/31.50/ubuntu", "rocm/core/packages/debian13"}
    versions = {package.name: package.version for package in found["amdgpu/31.50/ubuntu"].packages}
    assert versions["amdgpu-dkms"] == "1:7.1.3.31500000-2390945.24.04"
    assert versions["amdgpu-dkms-firmware"] == "31.50.0.0.31500000-2390945.24.04"
    assert found["amdgpu/31.50/ubuntu"].suite == "noble"
