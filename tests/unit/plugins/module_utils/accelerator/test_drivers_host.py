# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.drivers_host import read_drivers

NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version:  gcc 13.3.0\n"


def tree(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def read(root):
    return read_drivers(str(root / "sys"), str(root / "proc"), str(root / "version.info"))


def test_a_host_without_drivers_has_none(tmp_path):
    assert read(tmp_path) == {}


@pytest.mark.parametrize(
    "files", [{"sys__module__nvidia__version": "580.159.04\n"}, {"proc__driver__nvidia__version": NVRM}]
)
def test_nvidias_driver_is_read_from_the_kernel(tmp_path, files):
    assert read(tree(tmp_path, **files)) == {"nvidia": {"version": "580.159.04"}}


def test_the_lowest_firmware_of_amds_cards_counts(tmp_path):
    files = {
        "sys__module__amdgpu__version": "6.14.14\n",
        "sys__class__drm__card1__device__fw_version__mec_fw_version": "0x000000b1\n",
        "sys__class__drm__card2__device__fw_version__mec_fw_version": "0x000000af\n",
        "sys__class__drm__card3__device__fw_version__mec_fw_version": "nothing\n",
    }
    assert read(tree(tmp_path, **files)) == {"amd": {"version": "6.14.14", "mec_firmware": 175}}


def test_an_amdgpu_of_the_kernels_own_has_no_version(tmp_path):
    files = {"sys__class__drm__card0__device__fw_version__mec_fw_version": "0x000000b1\n"}
    assert read(tree(tmp_path, **files)) == {"amd": {"mec_firmware": 177}}


def test_the_modes_of_amds_chips_are_read_from_the_kernel(tmp_path):
    place = "sys__bus__pci__devices__0000:{}:00.0__current_{}_partition"
    modes = {"0c": ("CPX", "NPS4"), "1c": ("CPX", "NPS4"), "2c": ("SPX", "NPS1")}
    for number, (compute, memory) in modes.items():
        tree(tmp_path, **{place.format(number, "compute"): compute + "\n", place.format(number, "memory"): memory})
    assert read(tmp_path) == {"amd": {"partition": "CPX/NPS4, SPX/NPS1"}}


def test_huaweis_driver_says_what_it_is(tmp_path):
    (tmp_path / "version.info").write_text("package_version=25.5.1\nVersion=25.5.1\nascendhal_version=7.35.23\n")
    assert read(tmp_path) == {"ascend": {"version": "25.5.1"}}
