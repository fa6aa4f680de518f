# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine types by data: what is found on each, and what the roles make of it."""

from __future__ import annotations

import functools

import pytest

from tests.standins.machine_types import (
    PAGE,
    containers_of,
    is_common,
    line,
    listed,
    modules_of,
    packages_of,
    page,
    row,
)
from tests.standins.place import MACHINES

row = functools.lru_cache(maxsize=None)(row)
SWITCHED = ["nvidia-fabricmanager=580.*", "libnvidia-nscq=580.*"]
OPEN = ["nvidia-driver-pinning-580", "nvidia-dkms-580-open=580.*", "nvidia-open=580.*"]
NVLINK5 = ["libnvsdm=580.*", "nvlsm", "infiniband-diags"]


@pytest.mark.parametrize(
    ("name", "model", "count", "switches"),
    [
        ("hgx_a100", "a100", 8, 6),
        ("hgx_h100", "h100", 8, 4),
        ("hgx_h200", "h200", 8, 4),
        ("hgx_b200", "b200", 8, 0),
        ("l40s_pcie", "l40s", 4, 0),
        ("mi300x", "mi300x", 8, 0),
        ("mi355x", "mi355x", 8, 0),
        ("r9700", "r9700", 2, 0),
        ("atlas_a2", "ascend_a2", 8, 0),
        ("atlas_a3", "ascend_a3", 16, 0),
    ],
)
def test_what_is_on_pci_is_found(name, model, count, switches):
    found = row(name)
    assert (found.detected.model, found.detected.count, len(found.detected.switches)) == (model, count, switches)
    assert not found.detected.mixed


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("hgx_a100", [*OPEN, *SWITCHED]),
        ("hgx_h100", [*OPEN, *SWITCHED]),
        ("hgx_h200", [*OPEN, *SWITCHED]),
        ("hgx_b200", [*OPEN, *SWITCHED, *NVLINK5]),
        ("l40s_pcie", OPEN),
    ],
)
def test_the_fabric_manager_comes_where_switches_are_and_nowhere_else(name, packages):
    found = row(name)
    assert packages_of(found) == packages
    assert ("nvidia-fabricmanager" in found.plan.services) == (name != "l40s_pcie")
    assert modules_of(found) == "nvidia, open"


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("mi300x", {"amdgpu-dkms", "amdgpu-dkms-firmware"}),
        ("mi355x", {"amdgpu-dkms", "amdgpu-dkms-firmware"}),
        ("r9700", {"amdgpu-dkms", "amdgpu-dkms-firmware"}),
        ("atlas_a2", {"Ascend910B-driver", "Ascend910B-firmware"}),
        ("atlas_a3", {"Atlas-A3-hdk-npu-driver", "Atlas-A3-hdk-npu-firmware"}),
    ],
)
def test_other_vendors_chips_get_the_driver_of_their_kind(name, names):
    found = row(name)
    assert {package.name for package in found.plan.packages if not is_common(package.name)} == names


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("hgx_b200", ["nvidia.com/gpu=all"]),
        ("mi300x", ["/dev/kfd", "/dev/dri", "group render", "group video"]),
        (
            "atlas_a3",
            [
                "/dev/davinci0 to /dev/davinci15",
                "/dev/davinci_manager",
                "/dev/devmm_svm",
                "/dev/hisi_hdc",
                "group HwHiAiUser",
            ],
        ),
    ],
)
def test_containers_are_given_the_chips_by_their_names(name, names):
    assert containers_of(row(name)) == names


def test_the_page_in_the_docs_is_current():
    """Made by: python -m tests.standins.machine_types"""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_machine_has_a_line():
    text = PAGE.read_text(encoding="utf-8")
    for path in MACHINES.iterdir():
        assert line(row(path.name)) in text
    assert listed([]) == "none"
