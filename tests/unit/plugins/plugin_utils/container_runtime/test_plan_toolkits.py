# SPDX-License-Identifier: GPL-3.0-or-later
"""How accelerators reach containers: NVIDIA's container toolkit, AMD's, and plain devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import RuntimePlanError
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.names import UDEV_RULES
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.config_files import UDEV_TEXT
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.model import Request

from tests.fakes.container_runtimes import (
    DISTRO,
    DISTRO_DOCKER,
    DOCKER_CE,
    FRESH,
    HOOK,
    VENDOR,
    decide,
    docker_file,
    docker_host,
    system,
)

LINK = ["/usr/bin/nvidia-ctk", "system", "create-dev-char-symlinks", "--create-all"]
NVIDIA_DEB = (
    "Types: deb\nURIs: https://nvidia.github.io/libnvidia-container/stable/deb/amd64\nSuites: /\n"
    "Signed-By: /etc/apt/keyrings/nvidia-container-toolkit.asc\n"
)
NVIDIA_RPM = (
    "[nvidia-container-toolkit]\nname=NVIDIA container toolkit\n"
    "baseurl=https://nvidia.github.io/libnvidia-container/stable/rpm/$basearch\nenabled=1\ngpgcheck=0\n"
    "repo_gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit\n"
)
BASE, WHOLE = ["nvidia-container-toolkit-base"], ["nvidia-container-toolkit", "nvidia-container-toolkit-base"]
FEATURE = {"features": {"cdi": True}}
PODMAN_OF_22 = next(row[1:] for row in DISTRO if row[:2] == ("Ubuntu_22", "podman"))
# Which engine a fresh host gets, and so how NVIDIA's devices reach containers.
CUDA = [
    *((row[0], "docker", "vendor", "", BASE, None) for row in VENDOR),
    ("Debian_12", "docker", "distro", "", WHOLE, HOOK),
    ("Debian_13", "docker", "distro", "", BASE, FEATURE),
    ("Ubuntu_24", "docker", "distro", "", BASE, None),
    ("Ubuntu_24", "docker", "vendor", "28.1.1", BASE, FEATURE),
    ("Ubuntu_24", "docker", "vendor", "28.2.0", BASE, None),
    ("Ubuntu_24", "docker", "vendor", "25.0", BASE, FEATURE),
    ("Ubuntu_24", "docker", "vendor", "24.0.9", WHOLE, HOOK),
    *((row[0], "podman", "distro", "", BASE, None) for row in DISTRO if row[1:] != PODMAN_OF_22 and row[1] == "podman"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "engine", "source", "version", "toolkit", "settings"), CUDA, ids=["-".join(row[:4]) for row in CUDA]
)
def test_nvidias_toolkit(name, engine, source, version, toolkit, settings):
    found = decide(Request(engine=engine, source=source, version=version, stack="cuda"), name)
    repository = found.repositories[-1]
    assert repository["content"] == (NVIDIA_DEB if system(name)["packager"] == "deb" else NVIDIA_RPM)
    assert repository["key"]["url"] == "https://nvidia.github.io/libnvidia-container/gpgkey"
    assert repository["key"]["fingerprints"] == ["C95B321B61E88C1809C4F759DDCAE044F796ECB0"]
    assert found.toolkit == toolkit
    files = {entry["path"]: entry["content"] for entry in found.files}
    assert docker_file(found) == settings
    cdi = settings != HOOK
    assert files.get(UDEV_RULES) == (UDEV_TEXT if cdi else None)
    assert ("nvidia-cdi-refresh.path" in found.units) is cdi


def test_a_podman_without_cdi_is_refused_on_nvidia():
    with pytest.raises(RuntimePlanError, match=r"podman 3\.4 of Ubuntu 22\.04 gives no NVIDIA devices to containers"):
        decide(Request(engine="podman", stack="cuda"), "Ubuntu_22")


@pytest.mark.parametrize("stack", ["rocm", "cann", "cpu", "xpu"])
@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_other_stacks_get_plain_devices(stack, engine):
    assert decide(Request(engine=engine, stack=stack)) == decide(Request(engine=engine))


def test_nvidias_toolkit_can_be_left_to_the_site():
    found = decide(Request(stack="cuda", toolkit="none", source="distro"), "Debian_13")
    assert (found.toolkit, found.repositories) == ([], [])
    # The engine still has to know what a CDI device is.
    assert (found.files, docker_file(found)) == ([], FEATURE)


AMD = [
    ("Ubuntu_22", "URIs: https://repo.radeon.com/amd-container-toolkit/apt\nSuites: jammy\nComponents: main\n"),
    ("Ubuntu_24", "URIs: https://repo.radeon.com/amd-container-toolkit/apt\nSuites: noble\nComponents: main\n"),
    ("RedHat_9", "baseurl=https://repo.radeon.com/amd-container-toolkit/el9/main\nenabled=1\ngpgcheck=1\n"),
]


@pytest.mark.parametrize(("name", "part"), AMD, ids=[row[0] for row in AMD])
def test_amds_toolkit_where_it_is_asked_for(name, part):
    found = decide(Request(stack="rocm", toolkit="vendor"), name, replace(FRESH, drivers=["rocm"]))
    assert part in found.repositories[-1]["content"]
    assert found.repositories[-1]["key"]["fingerprints"] == ["CA8BB4727A47B4D09B4EE8969386B48A1A693C5C"]
    assert found.toolkit == ["amd-container-toolkit"]
    assert found.commands == [["/usr/bin/amd-ctk", "cdi", "generate"]]
    assert docker_file(found) == {"runtimes": {"amd": {"path": "amd-container-runtime", "runtimeArgs": []}}}


def test_a_cgroup_driver_that_loses_gpus_is_not_overwritten():
    host = docker_host("20.10.24", ("docker.io",), {"exec-opts": ["native.cgroupdriver=systemd"]})
    with pytest.raises(
        RuntimePlanError, match=r"native.cgroupdriver=systemd, with which docker 20.10.24 loses its GPUs"
    ):
        decide(replace(DISTRO_DOCKER, stack="cuda"), host=host)


# NVIDIA's toolkit on a host that has it.


def nvidia_host(version="1.20.0-1", whole=False, **more):
    host = docker_host("28.5.1", DOCKER_CE, cdi_dirs=["/etc/cdi", "/var/run/cdi"])
    packages = {**host.packages, "nvidia-container-toolkit-base": version}
    packages.update({"nvidia-container-toolkit": version} if whole else {})
    given = {"drivers": ["cuda"], "cdi_kinds": ["nvidia.com/gpu"], "files": {UDEV_RULES: UDEV_TEXT}, **more}
    return replace(host, packages=packages, active=["docker.service", "nvidia-cdi-refresh.path"], **given)


def test_a_finished_nvidia_host_needs_nothing():
    for whole in (False, True):
        assert not decide(Request(stack="cuda"), host=nvidia_host(whole=whole)).changes


def test_an_old_toolkit_is_upgraded_since_it_leaves_the_specification_to_people():
    old = {"/etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu", UDEV_RULES: UDEV_TEXT}
    found = decide(Request(stack="cuda"), host=nvidia_host("1.17.8-1", whole=True, files=old))
    assert found.toolkit == WHOLE
    assert found.absent == ["/etc/cdi/nvidia.yaml"]
    with pytest.raises(RuntimePlanError, match=r"is 1.17.8-1, and 1.18 or later is needed"):
        decide(Request(stack="cuda", source="none"), host=nvidia_host("1.17.8-1"))


def test_a_driver_without_a_specification_has_it_made():
    found = decide(Request(stack="cuda"), host=nvidia_host(cdi_kinds=[]))
    assert found.commands == [["systemctl", "restart", "nvidia-cdi-refresh.service"]]
    # Without the driver there is nothing to specify.
    assert not decide(Request(stack="cuda"), host=nvidia_host(cdi_kinds=[], drivers=[])).changes


def test_a_specification_of_earlier_days_is_replaced_at_once():
    files = {"/etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu", UDEV_RULES: UDEV_TEXT}
    found = decide(Request(stack="cuda"), host=nvidia_host(files=files))
    assert found.absent == ["/etc/cdi/nvidia.yaml"]
    assert found.commands == [["systemctl", "restart", "nvidia-cdi-refresh.service"]]


def test_nodes_that_systemd_cannot_name_get_links():
    assert decide(Request(stack="cuda"), host=nvidia_host(unlinked=["/dev/nvidia0"])).commands == [LINK]
