# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of repositories as the vendors' guides have them, and those that a host has already."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import (
    HostState,
    RuntimePlanError,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.model import Request
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.repositories import (
    AMD_KEY,
    DOCKER_DEB_KEY,
    DOCKER_RPM_KEY,
    amd_repository,
    docker_repository,
    elsewhere,
    nvidia_repository,
)

from tests.fakes.container_runtimes import FRESH, system

MIRROR = Request(source="mirror", mirror_url="https://user:pw@mirror/pub/")
DEBIAN, ROCKY = system("Debian_12"), system("Rocky_9")


def test_dockers_guide_for_apt():
    found = docker_repository(DEBIAN, Request(), FRESH)
    assert found["content"].splitlines() == [
        "Types: deb", "URIs: https://download.docker.com/linux/debian", "Suites: bookworm", "Components: stable",
        "Architectures: amd64", "Signed-By: /etc/apt/keyrings/docker.asc",
    ]  # fmt: skip
    assert found["key"]["url"] == "https://download.docker.com/linux/debian/gpg"
    assert found["key"]["fingerprints"] == [DOCKER_DEB_KEY] and found["enable"] == ""


def test_a_held_docker_is_disabled_in_dnf_and_enabled_by_name():
    found = docker_repository(ROCKY, Request(), FRESH)
    assert "enabled=0" in found["content"] and found["enable"] == "docker-ce-stable"
    assert "/9/$basearch/stable" in found["content"] and found["key"]["fingerprints"] == [DOCKER_RPM_KEY]
    free = docker_repository(ROCKY, Request(hold=False), FRESH)
    assert "enabled=1" in free["content"] and free["enable"] == "" and "gpgcheck=1" in free["content"]


def test_nvidias_packages_are_unsigned_in_dnf_and_their_list_is_checked():
    content = nvidia_repository(ROCKY, Request(), FRESH)["content"]
    assert "gpgcheck=0\nrepo_gpgcheck=1" in content
    arm = nvidia_repository(DEBIAN, Request(), replace(FRESH, architecture="aarch64"))
    assert "URIs: https://nvidia.github.io/libnvidia-container/stable/deb/arm64\nSuites: /\n" in arm["content"]


def test_a_mirror_has_the_hosts_of_the_vendors_below_it():
    found = docker_repository(DEBIAN, MIRROR, FRESH)
    assert "URIs: https://user:pw@mirror/pub/download.docker.com/linux/debian" in found["content"]
    own = replace(MIRROR, mirror_fingerprints=[f"{DOCKER_RPM_KEY[:4]} {DOCKER_RPM_KEY[4:].lower()}"])
    assert docker_repository(DEBIAN, own, FRESH)["key"]["fingerprints"] == [DOCKER_RPM_KEY]
    # The site's key signs its mirror, and nothing of the vendors'.
    vendor = replace(own, source="vendor")
    assert docker_repository(DEBIAN, vendor, FRESH)["key"]["fingerprints"] == [DOCKER_DEB_KEY]


def test_amd_has_packages_for_some_systems_alone():
    ubuntu = system("Ubuntu_24")
    found = amd_repository(ubuntu, Request(), FRESH)
    assert "https://repo.radeon.com/amd-container-toolkit/apt" in found["content"]
    assert found["key"]["fingerprints"] == [AMD_KEY]
    for place, host in ((DEBIAN | {"amd_toolkit": ""}, FRESH), (ubuntu, replace(FRESH, architecture="aarch64"))):
        with pytest.raises(RuntimePlanError, match=r"AMD has no container toolkit for .*; with auto"):
            amd_repository(place, Request(), host)


def test_an_architecture_or_fingerprint_that_cannot_be_is_refused():
    with pytest.raises(RuntimePlanError, match="no packages for riscv64; they have some for aarch64, x86_64"):
        docker_repository(DEBIAN, Request(), replace(FRESH, architecture="riscv64"))
    with pytest.raises(RuntimePlanError, match="mirror_fingerprints: found 'AB12', expected 40 hexadecimal digits"):
        docker_repository(DEBIAN, replace(MIRROR, mirror_fingerprints=["ab12"]), FRESH)


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("/etc/apt/sources.list.d/d.list", "deb [arch=amd64] https://download.docker.com/linux/debian x stable", True),
        ("/etc/apt/sources.list.d/d.list", "# deb https://download.docker.com/linux/debian bookworm stable", False),
        ("/etc/apt/sources.list.d/docker.sources", "URIs: https://download.docker.com/linux/debian", False),
        ("/etc/apt/sources.list.d/d.list", "deb https://download.docker.com/linux/ubuntu noble stable", False),
    ],
)  # fmt: skip
def test_an_entry_of_somebody_else_stays(path, text, found):
    host = HostState(sources={path: text})
    assert elsewhere(docker_repository(DEBIAN, Request(), FRESH), host) == (path if found else "")


def test_of_other_entries_variables_may_stand_for_processor_and_release():
    text = "baseurl=https://download.docker.com/linux/centos/$releasever/$basearch/stable\n"
    place = docker_repository(ROCKY, Request(), FRESH)
    text = text.replace("linux/centos", ROCKY["docker"]["vendor"])
    assert elsewhere(place, HostState(sources={"/etc/yum.repos.d/d.repo": text})) == "/etc/yum.repos.d/d.repo"


@pytest.mark.parametrize(
    "text",
    [
        "deb [trusted=yes arch=amd64] https://download.docker.com/linux/debian bookworm stable",
        "Types: deb\nURIs: https://download.docker.com/linux/debian\nTrusted: Yes\n",
    ],
)
def test_an_entry_that_checks_no_signature_is_refused(text):
    host = HostState(sources={"/etc/apt/sources.list.d/d.sources": text})
    with pytest.raises(RuntimePlanError, match="without checking their signature; remove trusted=yes there"):
        elsewhere(docker_repository(DEBIAN, Request(), FRESH), host)
