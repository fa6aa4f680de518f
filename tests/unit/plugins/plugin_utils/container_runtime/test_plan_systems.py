# SPDX-License-Identifier: GPL-3.0-or-later
"""What every operating system gets, and from whose repository, from the role's own files of systems."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.credentials import redact_credentials
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import RuntimePlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.model import Request

from tests.fakes.container_runtimes import (
    DEB_KEY,
    DISTRO,
    DOCKER_CE,
    FRESH,
    RPM_KEY,
    SYSTEMS,
    VENDOR,
    deb_docker,
    decide,
    rpm_docker,
    system,
)


def test_the_table_has_every_system_of_the_role():
    assert sorted(row[0] for row in VENDOR) == sorted(SYSTEMS)


@pytest.mark.parametrize(("name", "place", "release"), VENDOR, ids=[row[0] for row in VENDOR])
def test_docker_from_its_vendor(name, place, release):
    found = decide(Request(), name)
    deb = system(name)["packager"] == "deb"
    assert found.repositories == [
        {
            "name": "docker" if deb else "docker-ce",
            "path": "/etc/apt/sources.list.d/docker.sources" if deb else "/etc/yum.repos.d/docker-ce.repo",
            "content": deb_docker(place, release) if deb else rpm_docker(place, release),
            "key": {
                "path": "/etc/apt/keyrings/docker.asc" if deb else "/etc/pki/rpm-gpg/RPM-GPG-KEY-docker-ce",
                "url": f"https://download.docker.com/{place}/gpg",
                "fingerprints": [DEB_KEY if deb else RPM_KEY],
            },
            "host": "download.docker.com",
            "enable": "" if deb else "docker-ce-stable",
        }
    ]
    assert found.packages == DOCKER_CE
    assert found.hold == (["docker-ce", "docker-ce-cli", "containerd.io"] if deb else [])
    assert found.enable == ([] if deb else ["docker-ce-stable"])
    assert (found.toolkit, found.files, found.restart, found.units) == ([], [], [], ["docker.service"])


@pytest.mark.parametrize(("name", "engine", "packages"), DISTRO, ids=[f"{row[0]}-{row[1]}" for row in DISTRO])
def test_the_distributions_own_engine(name, engine, packages):
    found = decide(Request(engine=engine, source="distro"), name)
    assert (found.repositories, found.packages, found.toolkit, found.files) == ([], packages, [], [])
    assert found.units == (["docker.service"] if engine == "docker" else [])


@pytest.mark.parametrize("name", ["RedHat_9", "RedHat_10", "Rocky_9"])
def test_these_distributions_have_no_docker(name):
    with pytest.raises(RuntimePlanError, match=r"RHEL (9|10) has no docker of its own; set container_runtime_engine"):
        decide(Request(source="distro"), name)


def test_podman_of_the_vendor_is_the_distributions():
    assert decide(Request(engine="podman")) == decide(Request(engine="podman", source="distro"))


@pytest.mark.parametrize(
    ("requested", "name", "message"),
    [
        (
            Request(stack="rocm", toolkit="vendor"),
            "Debian_12",
            "AMD has no container toolkit for Debian 12 on x86_64",
        ),
        (
            Request(stack="rocm", toolkit="vendor", version="24.0"),
            "Ubuntu_24",
            "needs docker 25 or later, and this is 24.0",
        ),
        (
            Request(stack="cann", toolkit="vendor"),
            "Ubuntu_24",
            "container_runtime_ascend_file is empty, and the Ascend",
        ),
        (Request(source="mirror"), "Debian_12", "container_runtime_mirror_url is empty"),
        (Request(source="none"), "Debian_12", "docker is not on this host, and container_runtime_source is none"),
        (
            Request(registry_mirrors=["http://m:5000"]),
            "Debian_12",
            "registry_mirrors: found 'http://m:5000', expected",
        ),
        (
            Request(insecure_registries=["10.0.0.0/8"]),
            "Debian_12",
            "insecure_registries: found '10.0.0.0/8', expected",
        ),
    ],
)
def test_what_cannot_be_had_is_one_sentence(requested, name, message):
    with pytest.raises(RuntimePlanError, match=message):
        decide(requested, name)


def test_a_processor_without_packages_is_named():
    with pytest.raises(RuntimePlanError, match="no packages for riscv64; they have some for aarch64, x86_64"):
        decide(Request(), host=replace(FRESH, architecture="riscv64"))
    arm = decide(Request(stack="cuda"), host=replace(FRESH, architecture="aarch64"))
    assert [
        deb_docker("linux/debian", "bookworm", "arm64"),
        "/stable/deb/arm64\n" in arm.repositories[1]["content"],
    ] == [
        arm.repositories[0]["content"],
        True,
    ]


def test_a_mirror_has_the_vendors_hosts_by_their_names():
    found = decide(Request(source="mirror", mirror_url="http://mirror/vendors/", stack="cuda"))
    assert "URIs: http://mirror/vendors/download.docker.com/linux/debian\n" in found.repositories[0]["content"]
    assert found.repositories[1]["key"] == {
        "path": "/etc/apt/keyrings/nvidia-container-toolkit.asc",
        "url": "http://mirror/vendors/nvidia.github.io/libnvidia-container/gpgkey",
        "fingerprints": ["C95B321B61E88C1809C4F759DDCAE044F796ECB0"],
    }


def test_a_mirror_may_sign_anew_and_a_vendor_may_not():
    own = "AB" * 20
    requested = Request(source="mirror", mirror_url="http://m", mirror_fingerprints=["abab " * 10], stack="cuda")
    assert [entry["key"]["fingerprints"] for entry in decide(requested).repositories] == [[own], [own]]
    assert decide(replace(requested, source="vendor")).repositories[0]["key"]["fingerprints"] == [DEB_KEY]
    with pytest.raises(RuntimePlanError, match="mirror_fingerprints: found 'AB', expected 40 hexadecimal digits"):
        decide(replace(requested, mirror_fingerprints=["ab"]))


def test_a_version_is_asked_for_in_the_packagers_words():
    assert decide(Request(version="28.5.1")).packages[:3] == [
        "docker-ce=5:28.5.1*",
        "docker-ce-cli=5:28.5.1*",
        "containerd.io",
    ]
    assert decide(Request(version="28.5.1"), "RedHat_9").packages[:3] == [
        "docker-ce-28.5.1*",
        "docker-ce-cli-28.5.1*",
        "containerd.io",
    ]
    assert decide(Request(version="20.10.24", source="distro")).packages == ["docker.io=20.10.24*"]
    assert decide(Request(engine="podman", version="4.3")).packages[0] == "podman=4.3*"


# Repositories that people have named already.


def test_somebody_elses_entry_of_the_repository_is_used():
    entry = "deb [signed-by=/usr/share/keyrings/docker.gpg] https://download.docker.com/linux/debian bookworm stable\n"
    found = decide(Request(), host=replace(FRESH, sources={"/etc/apt/sources.list.d/docker.list": entry}))
    assert found.repositories == []
    assert found.packages == DOCKER_CE
    assert found.notes == [
        "packages of download.docker.com come from /etc/apt/sources.list.d/docker.list, which stays unchanged"
    ]
    commented = {"/etc/apt/sources.list.d/docker.list": f"# {entry}"}
    assert len(decide(Request(), host=replace(FRESH, sources=commented)).repositories) == 1


@pytest.mark.parametrize(
    "text",
    [
        "deb [trusted=yes] https://download.docker.com/linux/debian bookworm stable\n",
        "Types: deb\nURIs: https://download.docker.com/linux/debian\nSuites: bookworm\nTrusted: yes\n",
    ],
)
def test_nothing_is_installed_unsigned(text):
    with pytest.raises(RuntimePlanError, match=r"/x.list installs packages of .* without checking their signature"):
        decide(Request(), host=replace(FRESH, sources={"/etc/apt/sources.list.d/x.list": text}))


def test_a_repository_is_written_again_only_where_it_or_its_key_differs():
    own = decide(Request()).repositories[0]
    host = replace(FRESH, sources={own["path"]: own["content"]}, keys={own["key"]["path"]: own["key"]["fingerprints"]})
    assert decide(Request(), host=host).repositories == []
    assert decide(Request(), host=replace(host, keys={own["key"]["path"]: ["0" * 40]})).repositories == [own]
    assert decide(Request(), host=replace(host, sources={own["path"]: "old"})).repositories == [own]


MIRROR = Request(source="mirror", mirror_url="https://reader:hunter2@mirror/vendors")


def test_an_entry_with_a_password_is_written_by_each_installation_because_it_cannot_be_compared():
    own = decide(MIRROR).repositories[0]
    text = redact_credentials(own["content"])
    assert text != own["content"]
    host = replace(FRESH, sources={own["path"]: text}, keys={own["key"]["path"]: own["key"]["fingerprints"]})
    assert decide(MIRROR, host=host).repositories == [own]


def test_somebody_elses_entry_is_found_whatever_its_password():
    path = "/etc/apt/sources.list.d/site.list"
    text = redact_credentials(
        "deb https://other:secret@mirror/vendors/download.docker.com/linux/debian bookworm stable"
    )
    found = decide(MIRROR, host=replace(FRESH, sources={path: text}))
    assert found.repositories == []
    assert path in found.notes[0]
