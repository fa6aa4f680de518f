# SPDX-License-Identifier: GPL-3.0-or-later
"""ROCm on the host itself: repositories, keys and packages of each layout, and what becomes of one that is there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import RocmHostState
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.packages import PREFERENCES
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.releases import release_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.rocm.plan import plan_driver as _plan_driver

from tests.fakes.driver_plans import halting
from tests.fakes.rocm_systems import (
    APT_KEY,
    CORE,
    DRIVEN,
    INSTALLED,
    MACHINES,
    MI300X,
    RADEON,
    RADEON_KEY,
    REQUEST,
    RPM_KEY,
    SHOWN,
    SYSTEMS,
    asked,
    specs,
    working,
)

plan_driver = halting(_plan_driver)

THEROCK = "https://repo.amd.com/rocm/packages-multi-arch"
CLASSIC_RUNTIME = ["rocm-hip-runtime", "rocminfo", "amd-smi-lib", "rocm-smi-lib"]


def userspace(host, machine_name, rocm, extent="runtime"):
    """Return the last repository of the plan and the packages after the driver's."""
    found = plan_driver(host, MACHINES[machine_name][0], SHOWN, asked(rocm, minimum="", userspace=extent))
    assert found.halt is None
    packages = specs(found, host)
    last = max(number for number, name in enumerate(packages) if name.startswith("amdgpu-dkms"))
    repository = found.repositories[-1]
    assert repository.name == "baremetal-rocm"
    return (repository.url, repository.suites, repository.key.url, repository.key.path), packages[last + 1 :]


@pytest.mark.parametrize("machine_name", ["mi300x", "mi355x", "r9700", "mi210_r9700"])
@pytest.mark.parametrize("system_name", SYSTEMS)
@pytest.mark.parametrize(
    ("rocm", "base", "key", "key_name", "short"),
    [
        ("7.14.0", THEROCK, f"{THEROCK}/gpg/rocm.gpg", "amdrocm-therock", "7.14"),
        ("10.0.0", f"{CORE}/rocm/core/packages", f"{CORE}/rocm/gpg/packages.gpg", "amdrocm-core", "10.0"),
    ],
)
def test_the_newer_layouts(system_name, machine_name, rocm, base, key, key_name, short):
    host, _place, tag, _extras = SYSTEMS[system_name]
    repository, packages = userspace(host, machine_name, rocm)
    if host.manager == "apt":
        path = f"/etc/apt/keyrings/baremetal-{key_name}.asc"
        assert repository == (f"{base}/{tag}/", ("stable",), key, path)
    else:
        path = f"/etc/pki/rpm-gpg/RPM-GPG-KEY-baremetal-{key_name}"
        assert repository == (f"{base}/{tag}/x86_64/", (), key, path)
    generations = MACHINES[machine_name][1]
    assert packages == [f"amdrocm{short}-{generation}" for generation in generations]
    _repository, packages = userspace(host, machine_name, rocm, "full")
    assert packages == [f"amdrocm-core-sdk{short}-{generation}" for generation in generations]


@pytest.mark.parametrize("system_name", [name for name in SYSTEMS if name not in ("ubuntu2604", "centos10")])
@pytest.mark.parametrize(("rocm", "directory"), [("7.2", "7.2"), ("7.2.3", "7.2.3"), ("7.1.1", "7.1.1")])
def test_the_classic_layout(system_name, rocm, directory):
    host, place, _tag, _extras = SYSTEMS[system_name]
    repository, packages = userspace(host, "mi300x", rocm)
    if host.manager == "apt":
        assert repository == (f"{RADEON}/rocm/apt/{directory}", (place,), RADEON_KEY, APT_KEY)
    else:
        assert repository == (f"{RADEON}/rocm/el{host.major}/{directory}/main", (), RADEON_KEY, RPM_KEY)
    assert packages == CLASSIC_RUNTIME
    assert userspace(host, "mi300x", rocm, "full")[1] == ["rocm"]
    # Debian and Ubuntu have packages of the same names.
    files = plan_driver(host, MI300X, SHOWN, asked(rocm, minimum="", userspace="runtime")).files
    assert files == ((PREFERENCES,) if host.manager == "apt" else ())


def test_one_mirror_stands_for_all_hosts():
    requested = replace(REQUEST, source="mirror", mirror="http://mirror.example/amd", userspace="runtime")
    found = plan_driver(SYSTEMS["debian13"][0], MI300X, SHOWN, requested)
    assert [repo.url for repo in found.repositories] == [
        "http://mirror.example/amd/amdgpu/31.50/ubuntu",
        "http://mirror.example/amd/rocm/core/packages/debian13/",
    ]
    assert found.repositories[1].key.url == "http://mirror.example/amd/rocm/gpg/packages.gpg"


@pytest.mark.parametrize(
    ("system_name", "extent", "expected"),
    [
        ("debian12", "runtime", ["rocminfo", "rocm-smi"]),
        ("debian13", "runtime", ["rocminfo", "rocm-smi", "amd-smi"]),
        ("debian13", "full", ["rocminfo", "rocm-smi", "amd-smi", "hipcc"]),
    ],
)
def test_debians_own(system_name, extent, expected):
    host = SYSTEMS[system_name][0]
    found = plan_driver(host, MI300X, SHOWN, replace(REQUEST, source="distro", userspace=extent))
    assert specs(found, host) == ["firmware-amd-graphics", *expected]


def test_a_system_that_has_none_of_its_own():
    found = plan_driver(SYSTEMS["ubuntu2404"][0], MI300X, SHOWN, replace(REQUEST, source="distro", userspace="full"))
    assert found.halt.startswith("ubuntu 24.04 has no ROCm of its own that is known here; set rocm_userspace to none")


PACKAGED = {**INSTALLED, "amdrocm7.14-gfx942": "7.14.0-1"}


@pytest.mark.parametrize(
    ("packages", "rocm", "policy", "expected"),
    [
        # Whole, and of the release that is wanted.
        ({**INSTALLED, "amdrocm10.0-gfx942": "10.0.0-1"}, "10.0.0", "retain", []),
        # Of another release: only where that is allowed.
        (PACKAGED, "7.14.0", "retain", []),
        (PACKAGED, "7.14.0", "halt", []),
        (PACKAGED, "7.14.0", "install", ["amdrocm10.0-gfx942"]),
        # In no package.
        (INSTALLED, "10.0.0", "retain", []),
        # Cut short.
        ({**INSTALLED, "amdrocm-core10.0": "10.0.0-1"}, "10.0.0", "retain", ["amdrocm10.0-gfx942"]),
        (INSTALLED, "", "retain", ["amdrocm10.0-gfx942"]),
    ],
)
def test_one_that_is_there(packages, rocm, policy, expected):
    requested = replace(REQUEST, userspace="runtime", policy=policy)
    found = plan_driver(working(packages=packages), MI300X, replace(DRIVEN, rocm=rocm), requested)
    assert found.halt is None
    assert specs(found, working()) == expected
    retained = rocm == "7.14.0" and policy != "install"
    assert any(note == "ROCm 7.14.0 is retained in /opt/rocm, wanted is 10.0.0" for note in found.notes) == retained


def test_an_older_layout_goes_before_the_newer_one_comes():
    host = working(packages={**INSTALLED, "rocm-core": "7.2.3.70203-1"})
    requested = replace(REQUEST, userspace="runtime", policy="install")
    found = plan_driver(host, MI300X, replace(DRIVEN, rocm="7.2.3"), requested)
    assert found.remove_first == ("rocm-core",)
    assert "ROCm 7.2.3.70203-1 is removed first: it and 10.0.0 exclude each other" in found.notes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"source": "none"}, "rocm_userspace is runtime, which needs amdrocm10.0-gfx942, and rocm_source is none"),
        ({"rocm": None, "minimum": ""}, "rocm_userspace needs a release of ROCm, and the vLLM release names none"),
        ({"policy": "halt"}, "rocm_policy is halt, and the host needs more: install amdrocm10.0-gfx942"),
    ],
)
def test_what_cannot_be_had(changes, sentence):
    assert plan_driver(working(), MI300X, DRIVEN, replace(REQUEST, userspace="runtime", **changes)).halt.startswith(
        sentence
    )


def test_a_release_that_names_its_driver():
    named = release_of("10.2.0", "31.70")
    assert (named.driver, named.code, named.layout, named.short) == ("31.70", "31700000", "core", "10.2")
    assert named.systems == release_of("10.0.0").systems
    assert release_of("10.0.0", "31.50") is release_of("10.0")
    found = plan_driver(SYSTEMS["debian13"][0], MI300X, RocmHostState(), replace(REQUEST, rocm=named))
    assert found.repositories[0].url == f"{RADEON}/amdgpu/31.70/ubuntu"
    host = SYSTEMS["rhel10"][0]
    assert specs(plan_driver(host, MI300X, RocmHostState(), replace(REQUEST, rocm=named)), host)[-2:] == [
        "amdgpu-dkms",
        "amdgpu-dkms-firmware",
    ]
