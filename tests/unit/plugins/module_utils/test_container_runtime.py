# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every operating system, engine and stack gets, from the role's own files of systems."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils._container_runtime import plan
from ansible_collections.baremetal.inference.plugins.module_utils._container_runtime_files import (
    DAEMON_JSON,
    REGISTRIES,
    STORAGE_CONF,
    STORAGE_SHIPPED,
    UDEV_RULES,
    UDEV_TEXT,
)
from ansible_collections.baremetal.inference.plugins.module_utils._container_runtime_state import (
    EngineState,
    HostState,
    RuntimePlanError,
    Wish,
)

VARS = Path(__file__).resolve().parents[4] / "roles/container_runtime/vars"
FRESH = HostState()
DOCKER_CE = ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"]
LINK = ["/usr/bin/nvidia-ctk", "system", "create-dev-char-symlinks", "--create-all"]


def system(name):
    return yaml.safe_load((VARS / f"{name}.yml").read_text())["__container_runtime_system"]


def decide(wish, name="Debian_12", host=FRESH):
    return plan(wish, system(name), host)


def deb_docker(place, codename, architecture="amd64"):
    return (
        f"Types: deb\nURIs: https://download.docker.com/{place}\nSuites: {codename}\nComponents: stable\n"
        f"Architectures: {architecture}\nSigned-By: /etc/apt/keyrings/docker.asc\n"
    )


def rpm_docker(place, major):
    return (
        f"[docker-ce-stable]\nname=Docker CE Stable\nbaseurl=https://download.docker.com/{place}/{major}/$basearch/stable\n"
        "enabled=0\ngpgcheck=1\n# Kept from upgrades: a new docker stops every container.\n"
        "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-docker-ce\n"
    )


DEB_KEY, RPM_KEY = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88", "060A61C51B558A7F742B77AAC52FEB6B621E9F35"
VENDOR = [
    ("Debian_12", "linux/debian", "bookworm"),
    ("Debian_13", "linux/debian", "trixie"),
    ("Ubuntu_22", "linux/ubuntu", "jammy"),
    ("Ubuntu_24", "linux/ubuntu", "noble"),
    ("Ubuntu_26", "linux/ubuntu", "resolute"),
    ("RedHat_9", "linux/rhel", 9),
    ("RedHat_10", "linux/rhel", 10),
    ("Rocky_9", "linux/centos", 9),
    ("Rocky_10", "linux/centos", 10),
    ("AlmaLinux_9", "linux/centos", 9),
    ("AlmaLinux_10", "linux/centos", 10),
    ("CentOS_9", "linux/centos", 9),
    ("CentOS_10", "linux/centos", 10),
    ("OracleLinux_9", "linux/centos", 9),
    ("OracleLinux_10", "linux/centos", 10),
]


def test_the_table_has_every_system_of_the_role():
    assert sorted(row[0] for row in VENDOR) == sorted(path.stem for path in VARS.glob("*_*.yml"))


@pytest.mark.parametrize(("name", "place", "release"), VENDOR, ids=[row[0] for row in VENDOR])
def test_docker_from_its_vendor(name, place, release):
    found = decide(Wish(), name)
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


DISTRO = [
    ("Debian_12", "docker", ["docker.io"]),
    ("Debian_13", "docker", ["docker.io", "docker-cli"]),
    ("Ubuntu_22", "docker", ["docker.io"]),
    ("Ubuntu_24", "docker", ["docker.io"]),
    ("Ubuntu_26", "docker", ["docker.io"]),
    ("Debian_12", "podman", ["podman", "catatonit", "netavark", "aardvark-dns"]),
    ("Debian_13", "podman", ["podman", "catatonit", "netavark", "aardvark-dns"]),
    ("Ubuntu_22", "podman", ["podman", "catatonit", "containernetworking-plugins"]),
    ("Ubuntu_24", "podman", ["podman", "catatonit", "netavark", "aardvark-dns"]),
    ("Ubuntu_26", "podman", ["podman", "catatonit", "netavark", "aardvark-dns"]),
    ("RedHat_9", "podman", ["podman"]),
    ("RedHat_10", "podman", ["podman"]),
    ("Rocky_9", "podman", ["podman"]),
    ("Rocky_10", "podman", ["podman"]),
]


@pytest.mark.parametrize(("name", "engine", "packages"), DISTRO, ids=[f"{row[0]}-{row[1]}" for row in DISTRO])
def test_the_distributions_own_engine(name, engine, packages):
    found = decide(Wish(engine=engine, source="distro"), name)
    assert (found.repositories, found.packages, found.toolkit, found.files) == ([], packages, [], [])
    assert found.units == (["docker.service"] if engine == "docker" else [])


@pytest.mark.parametrize("name", ["RedHat_9", "RedHat_10", "Rocky_9"])
def test_these_distributions_have_no_docker(name):
    with pytest.raises(RuntimePlanError, match=r"RHEL (9|10) has no docker of its own; set container_runtime_engine"):
        decide(Wish(source="distro"), name)


def test_podman_of_the_vendor_is_the_distributions():
    assert decide(Wish(engine="podman")) == decide(Wish(engine="podman", source="distro"))


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
HOOK = {
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}},
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
}
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
    found = decide(Wish(engine=engine, source=source, version=version, stack="cuda"), name)
    repository = found.repositories[-1]
    assert repository["content"] == (NVIDIA_DEB if system(name)["packager"] == "deb" else NVIDIA_RPM)
    assert repository["key"]["url"] == "https://nvidia.github.io/libnvidia-container/gpgkey"
    assert repository["key"]["fingerprints"] == ["C95B321B61E88C1809C4F759DDCAE044F796ECB0"]
    assert found.toolkit == toolkit
    files = {entry["path"]: entry["content"] for entry in found.files}
    assert (json.loads(files[DAEMON_JSON]) if DAEMON_JSON in files else None) == settings
    cdi = settings != HOOK
    assert files.get(UDEV_RULES) == (UDEV_TEXT if cdi else None)
    assert ("nvidia-cdi-refresh.path" in found.units) is cdi


def test_a_podman_without_cdi_is_refused_on_nvidia():
    with pytest.raises(RuntimePlanError, match=r"podman 3\.4 of Ubuntu 22\.04 gives no NVIDIA devices to containers"):
        decide(Wish(engine="podman", stack="cuda"), "Ubuntu_22")


@pytest.mark.parametrize("stack", ["rocm", "cann", "cpu", "xpu"])
@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_other_stacks_get_plain_devices(stack, engine):
    assert asdict(decide(Wish(engine=engine, stack=stack))) == asdict(decide(Wish(engine=engine)))


def test_nvidias_toolkit_can_be_left_to_the_site():
    found = decide(Wish(stack="cuda", toolkit="none", source="distro"), "Debian_13")
    assert (found.toolkit, found.repositories) == ([], [])
    # The engine still has to know what a CDI device is.
    assert [entry["path"] for entry in found.files] == [DAEMON_JSON]


AMD = [
    ("Ubuntu_22", "URIs: https://repo.radeon.com/amd-container-toolkit/apt\nSuites: jammy\nComponents: main\n"),
    ("Ubuntu_24", "URIs: https://repo.radeon.com/amd-container-toolkit/apt\nSuites: noble\nComponents: main\n"),
    ("RedHat_9", "baseurl=https://repo.radeon.com/amd-container-toolkit/el9/main\nenabled=1\ngpgcheck=1\n"),
]


@pytest.mark.parametrize(("name", "part"), AMD, ids=[row[0] for row in AMD])
def test_amds_toolkit_where_it_is_asked_for(name, part):
    found = decide(Wish(stack="rocm", toolkit="vendor"), name, replace(FRESH, drivers=["rocm"]))
    assert part in found.repositories[-1]["content"]
    assert found.repositories[-1]["key"]["fingerprints"] == ["CA8BB4727A47B4D09B4EE8969386B48A1A693C5C"]
    assert found.toolkit == ["amd-container-toolkit"]
    assert found.commands == [["/usr/bin/amd-ctk", "cdi", "generate"]]
    assert json.loads(found.files[0]["content"]) == {
        "runtimes": {"amd": {"path": "amd-container-runtime", "runtimeArgs": []}}
    }


@pytest.mark.parametrize(
    ("wish", "name", "message"),
    [
        (Wish(stack="rocm", toolkit="vendor"), "Debian_12", "AMD has no container toolkit for Debian 12 on x86_64"),
        (
            Wish(stack="rocm", toolkit="vendor", version="24.0"),
            "Ubuntu_24",
            "needs docker 25 or later, and this is 24.0",
        ),
        (
            Wish(stack="cann", toolkit="vendor"),
            "Ubuntu_24",
            "gives the plain devices to containers|role gives the plain",
        ),
        (Wish(source="mirror"), "Debian_12", "container_runtime_mirror_url is empty"),
        (Wish(source="none"), "Debian_12", "docker is not on this host, and container_runtime_source is none"),
        (Wish(registry_mirrors=["http://m:5000"]), "Debian_12", "registry_mirrors: found 'http://m:5000', expected"),
        (Wish(insecure_registries=["10.0.0.0/8"]), "Debian_12", "insecure_registries: found '10.0.0.0/8', expected"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(wish, name, message):
    with pytest.raises(RuntimePlanError, match=message):
        decide(wish, name)


def test_a_processor_without_packages_is_named():
    with pytest.raises(RuntimePlanError, match="nothing for riscv64; they have aarch64, x86_64"):
        decide(Wish(), host=replace(FRESH, architecture="riscv64"))
    arm = decide(Wish(stack="cuda"), host=replace(FRESH, architecture="aarch64"))
    assert [
        deb_docker("linux/debian", "bookworm", "arm64"),
        "/stable/deb/arm64\n" in arm.repositories[1]["content"],
    ] == [
        arm.repositories[0]["content"],
        True,
    ]


def test_a_mirror_has_the_vendors_hosts_by_their_names():
    found = decide(Wish(source="mirror", mirror_url="http://mirror/vendors/", stack="cuda"))
    assert "URIs: http://mirror/vendors/download.docker.com/linux/debian\n" in found.repositories[0]["content"]
    assert found.repositories[1]["key"] == {
        "path": "/etc/apt/keyrings/nvidia-container-toolkit.asc",
        "url": "http://mirror/vendors/nvidia.github.io/libnvidia-container/gpgkey",
        "fingerprints": ["C95B321B61E88C1809C4F759DDCAE044F796ECB0"],
    }


def test_a_mirror_may_sign_anew_and_a_vendor_may_not():
    own = "AB" * 20
    wish = Wish(source="mirror", mirror_url="http://m", mirror_fingerprints=["abab " * 10], stack="cuda")
    assert [entry["key"]["fingerprints"] for entry in decide(wish).repositories] == [[own], [own]]
    assert decide(replace(wish, source="vendor")).repositories[0]["key"]["fingerprints"] == [DEB_KEY]
    with pytest.raises(RuntimePlanError, match="mirror_fingerprints: found 'AB', expected 40 hexadecimal digits"):
        decide(replace(wish, mirror_fingerprints=["ab"]))


def test_a_version_is_asked_for_in_the_packagers_words():
    assert decide(Wish(version="28.5.1")).packages[:3] == [
        "docker-ce=5:28.5.1*",
        "docker-ce-cli=5:28.5.1*",
        "containerd.io",
    ]
    assert decide(Wish(version="28.5.1"), "RedHat_9").packages[:3] == [
        "docker-ce-28.5.1*",
        "docker-ce-cli-28.5.1*",
        "containerd.io",
    ]
    assert decide(Wish(version="20.10.24", source="distro")).packages == ["docker.io=20.10.24*"]
    assert decide(Wish(engine="podman", version="4.3")).packages[0] == "podman=4.3*"


# Hosts that have something already.


def docker_host(version="26.1.5", packages=("docker.io", "docker-cli"), files=None, **state):
    given = {"root": "/var/lib/docker", "cgroup_driver": "systemd", "runtimes": ["runc"], **state}
    return HostState(
        engines={"docker": EngineState("docker", "/usr/bin/docker", version=version, **given)},
        packages=dict.fromkeys(packages, version),
        held=list(packages),
        files=files or {},
        active=["docker.service"],
    )


DISTRO_DOCKER = Wish(source="distro")


def test_a_finished_host_needs_nothing():
    host = docker_host()
    assert not decide(DISTRO_DOCKER, "Debian_13", host).changes
    assert not decide(replace(DISTRO_DOCKER, hold=False), "Debian_13", replace(host, held=[])).changes


def test_an_engine_that_works_is_left_alone_unless_told_otherwise():
    host = docker_host()
    found = decide(Wish(), "Debian_13", host)
    assert not found.changes
    assert found.notes == [
        "docker is there from the distribution's packages, and Docker's own packages are wanted; it works and is left "
        "alone (container_runtime_policy: retain)"
    ]
    with pytest.raises(
        RuntimePlanError, match="Docker's own packages are wanted, and container_runtime_policy is halt"
    ):
        decide(Wish(policy="halt"), "Debian_13", host)


def test_another_source_replaces_the_engine_in_one_step():
    found = decide(
        Wish(policy="install"), "Debian_13", docker_host(packages=("docker.io", "docker-cli", "runc", "podman"))
    )
    assert (found.packages, found.remove) == ([*DOCKER_CE, "crun"], ["docker.io", "docker-cli", "runc"])
    assert found.release == found.remove
    assert found.restart == ["docker is there from the distribution's packages, and Docker's own packages are wanted"]


def test_an_engine_is_not_replaced_under_running_containers():
    host = docker_host(containers=["chat", "other"])
    with pytest.raises(
        RuntimePlanError, match=r"docker\.io, docker-cli must go before docker-ce comes, .* chat, other; "
    ):
        decide(Wish(policy="install"), "Debian_13", host)
    assert decide(Wish(policy="install", restart_allowed=True), "Debian_13", host).packages == DOCKER_CE


def test_containers_of_podman_count_where_its_runtime_goes():
    podman = EngineState("podman", "/usr/bin/podman", version="5.4.2", containers=["vllm-chat"])
    host = HostState(engines={"podman": podman}, packages={"podman": "5.4.2", "runc": "1.1"})
    with pytest.raises(RuntimePlanError, match="runc must go before docker-ce comes, and containers run: vllm-chat"):
        decide(Wish(), "Debian_13", host)


def test_an_engine_of_no_package_cannot_be_replaced():
    host = docker_host(packages=())
    assert not decide(Wish(), "Ubuntu_24", host).installs
    with pytest.raises(
        RuntimePlanError, match=r"from no package, .* cannot replace what is in no package: remove it first"
    ):
        decide(Wish(policy="install"), "Ubuntu_24", host)


def test_another_version_waits_for_running_containers():
    host = docker_host("28.1.0", DOCKER_CE, containers=["chat"])
    wish = Wish(version="28.5", policy="install")
    with pytest.raises(
        RuntimePlanError, match=r"restarted \(docker is 28\.1\.0, and .*version is 28\.5\), .*: chat; stop"
    ):
        decide(wish, host=host)
    assert decide(replace(wish, restart_allowed=True), host=host).packages[0] == "docker-ce=5:28.5*"
    assert not decide(replace(wish, version="28.1"), host=host).installs


def test_packages_are_held_once():
    host = replace(docker_host(), held=["docker-cli"])
    assert decide(DISTRO_DOCKER, "Debian_13", host).hold == ["docker.io"]


def test_an_installation_that_was_cut_off_is_ended_first():
    found = decide(DISTRO_DOCKER, host=replace(FRESH, unfinished=["containerd"]))
    assert found.recover
    assert found.installs


def test_apparmors_parser_comes_where_the_kernel_has_it():
    assert decide(DISTRO_DOCKER, host=replace(FRESH, apparmor=True)).packages == ["docker.io", "apparmor"]
    assert decide(DISTRO_DOCKER, host=replace(FRESH, apparmor=True)).hold == ["docker.io"]


# What docker has to take up, and how.

TAKEN_UP = [
    ({"registry_mirrors": ["m:5000"]}, {}, [], ["registry-mirrors"]),
    ({"registry_mirrors": ["m:5000"]}, {"mirrors": ["https://m:5000/"]}, [], []),
    ({"insecure_registries": ["m:5000"]}, {}, [], ["insecure-registries"]),
    ({"insecure_registries": ["m:5000"]}, {"insecure": ["m:5000", "n:5000"]}, [], []),
    ({"storage": "/data/docker"}, {}, ["data-root /var/lib/docker -> /data/docker"], []),
    ({"storage": "/data/docker/"}, {"root": "/data/docker"}, [], []),
    (
        {"storage": "/data/docker", "registry_mirrors": ["m:5000"]},
        {},
        ["data-root /var/lib/docker -> /data/docker"],
        [],
    ),
    ({"stack": "cuda"}, {}, ["features.cdi"], []),
    ({"stack": "cuda"}, {"cdi_dirs": ["/etc/cdi"]}, [], []),
    ({"stack": "rocm", "toolkit": "vendor"}, {}, [], ["runtimes.amd"]),
]


@pytest.mark.parametrize(("wish", "state", "restart", "reload"), TAKEN_UP)
def test_docker_is_restarted_only_for_what_it_cannot_read_again(wish, state, restart, reload):
    found = decide(replace(DISTRO_DOCKER, **wish), "Ubuntu_24", docker_host(**state))
    assert (found.restart, found.reload) == (restart, reload)
    held = docker_host(containers=["vllm-chat"], **state)
    if restart:
        with pytest.raises(RuntimePlanError, match="which stops its containers: vllm-chat; stop them first"):
            decide(replace(DISTRO_DOCKER, **wish), "Ubuntu_24", held)
        assert decide(replace(DISTRO_DOCKER, restart_allowed=True, **wish), "Ubuntu_24", held).restart == restart
    else:
        assert decide(replace(DISTRO_DOCKER, **wish), "Ubuntu_24", held).reload == reload


def test_a_file_that_docker_has_not_read_yet_is_taken_up_by_the_next_run():
    file = '{"data-root": "/data/docker"}'
    found = decide(replace(DISTRO_DOCKER, storage="/data/docker"), "Debian_13", docker_host(files={DAEMON_JSON: file}))
    assert (found.files, found.restart) == ([], ["data-root /var/lib/docker -> /data/docker"])


def test_a_docker_that_runs_and_would_not_at_boot_is_told_everything():
    host = replace(docker_host(), active=[])
    found = decide(replace(DISTRO_DOCKER, registry_mirrors=["m:5000"]), "Debian_13", host)
    assert (found.units, found.reload) == (["docker.service"], ["registry-mirrors"])


def test_dockers_file_is_judged_by_docker_where_it_can():
    wish = replace(DISTRO_DOCKER, registry_mirrors=["m:5000"])
    words = {
        version: decide(wish, host=docker_host(version)).files[0]["validate"] for version in ("20.10.24", "26.1.5")
    }
    assert words == {"20.10.24": "", "26.1.5": "dockerd --validate --config-file=%s"}


def test_dockers_command_alone_is_no_engine():
    host = docker_host("", packages=("docker-cli",), daemon=False)
    found = decide(DISTRO_DOCKER, "Debian_13", replace(host, active=[]))
    assert (found.packages, found.units) == (["docker.io", "docker-cli"], ["docker.service"])
    with pytest.raises(RuntimePlanError, match="docker is not on this host, and container_runtime_source is none"):
        decide(Wish(source="none"), "Debian_13", host)


def test_docker_that_does_not_answer_is_started():
    host = replace(docker_host("", packages=("docker.io",), why="Cannot connect"), active=[])
    host = replace(host, packages={"docker.io": "20.10.24+dfsg1"})
    found = decide(replace(DISTRO_DOCKER, stack="cuda"), host=host)
    assert found.units == ["docker.service"]
    assert json.loads(found.files[0]["content"]) == HOOK


def test_a_cgroup_driver_that_loses_gpus_is_not_overwritten():
    files = {DAEMON_JSON: '{"exec-opts": ["native.cgroupdriver=systemd"]}'}
    host = docker_host("20.10.24", ("docker.io",), files)
    with pytest.raises(
        RuntimePlanError, match=r"native.cgroupdriver=systemd, with which docker 20.10.24 loses its GPUs"
    ):
        decide(replace(DISTRO_DOCKER, stack="cuda"), host=host)


def test_a_flag_that_says_the_same_is_named():
    host = docker_host(flags=["-H", "--data-root=/old"])
    with pytest.raises(RuntimePlanError, match="docker is started with --data-root, and with data-root in /etc/docker"):
        decide(replace(DISTRO_DOCKER, storage="/data/docker"), "Debian_13", host)
    assert decide(replace(DISTRO_DOCKER, registry_mirrors=["m"]), "Debian_13", host).reload == ["registry-mirrors"]


# NVIDIA's toolkit on a host that has it.


def nvidia_host(version="1.20.0-1", whole=False, **more):
    host = docker_host("28.5.1", DOCKER_CE, cdi_dirs=["/etc/cdi", "/var/run/cdi"])
    packages = {**host.packages, "nvidia-container-toolkit-base": version}
    packages.update({"nvidia-container-toolkit": version} if whole else {})
    given = {"drivers": ["cuda"], "cdi_kinds": ["nvidia.com/gpu"], "files": {UDEV_RULES: UDEV_TEXT}, **more}
    return replace(host, packages=packages, active=["docker.service", "nvidia-cdi-refresh.path"], **given)


def test_a_finished_nvidia_host_needs_nothing():
    for whole in (False, True):
        assert not decide(Wish(stack="cuda"), host=nvidia_host(whole=whole)).changes


def test_an_old_toolkit_is_upgraded_since_it_leaves_the_specification_to_people():
    old = {"/etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu", UDEV_RULES: UDEV_TEXT}
    found = decide(Wish(stack="cuda"), host=nvidia_host("1.17.8-1", whole=True, files=old))
    assert found.toolkit == WHOLE
    assert found.absent == ["/etc/cdi/nvidia.yaml"]
    with pytest.raises(RuntimePlanError, match=r"is 1.17.8-1, and 1.18 or later is needed"):
        decide(Wish(stack="cuda", source="none"), host=nvidia_host("1.17.8-1"))


def test_a_driver_without_a_specification_has_it_made():
    found = decide(Wish(stack="cuda"), host=nvidia_host(cdi_kinds=[]))
    assert found.commands == [["systemctl", "restart", "nvidia-cdi-refresh.service"]]
    # Without the driver there is nothing to specify.
    assert not decide(Wish(stack="cuda"), host=nvidia_host(cdi_kinds=[], drivers=[])).changes


def test_a_specification_of_earlier_days_is_replaced_at_once():
    files = {"/etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu", UDEV_RULES: UDEV_TEXT}
    found = decide(Wish(stack="cuda"), host=nvidia_host(files=files))
    assert found.absent == ["/etc/cdi/nvidia.yaml"]
    assert found.commands == [["systemctl", "restart", "nvidia-cdi-refresh.service"]]


def test_nodes_that_systemd_cannot_name_get_links():
    assert decide(Wish(stack="cuda"), host=nvidia_host(unlinked=["/dev/nvidia0"])).commands == [LINK]


# Repositories that people have named already.


def test_somebody_elses_entry_of_the_repository_is_used():
    entry = "deb [signed-by=/usr/share/keyrings/docker.gpg] https://download.docker.com/linux/debian bookworm stable\n"
    found = decide(Wish(), host=replace(FRESH, sources={"/etc/apt/sources.list.d/docker.list": entry}))
    assert found.repositories == []
    assert found.packages == DOCKER_CE
    assert found.notes == [
        "packages of download.docker.com come from /etc/apt/sources.list.d/docker.list, which is left as it is"
    ]
    commented = {"/etc/apt/sources.list.d/docker.list": f"# {entry}"}
    assert len(decide(Wish(), host=replace(FRESH, sources=commented)).repositories) == 1


@pytest.mark.parametrize(
    "text",
    [
        "deb [trusted=yes] https://download.docker.com/linux/debian bookworm stable\n",
        "Types: deb\nURIs: https://download.docker.com/linux/debian\nSuites: bookworm\nTrusted: yes\n",
    ],
)
def test_nothing_is_installed_unsigned(text):
    with pytest.raises(RuntimePlanError, match=r"/x.list has packages of .* without a look at their signature"):
        decide(Wish(), host=replace(FRESH, sources={"/etc/apt/sources.list.d/x.list": text}))


def test_a_repository_is_written_again_only_where_it_or_its_key_differs():
    own = decide(Wish()).repositories[0]
    host = replace(FRESH, sources={own["path"]: own["content"]}, keys={own["key"]["path"]: own["key"]["fingerprints"]})
    assert decide(Wish(), host=host).repositories == []
    assert decide(Wish(), host=replace(host, keys={own["key"]["path"]: ["0" * 40]})).repositories == [own]
    assert decide(Wish(), host=replace(host, sources={own["path"]: "old"})).repositories == [own]


# podman.


def podman_host(**more):
    state = {"root": "/var/lib/containers/storage", **more}
    return HostState(
        engines={"podman": EngineState("podman", "/usr/bin/podman", version="5.4.2", **state)},
        packages={"podman": "5.4.2"},
    )


def test_podman_reads_its_files_at_every_command():
    host = podman_host(containers=["vllm-chat"])
    found = decide(
        Wish(engine="podman", registry_mirrors=["m:5000"], insecure_registries=["m:5000"]), "Debian_13", host
    )
    assert [entry["path"] for entry in found.files] == [REGISTRIES]
    assert (found.restart, found.reload, found.units) == ([], [], [])
    again = replace(host, files={REGISTRIES: found.files[0]["content"]})
    assert not decide(
        Wish(engine="podman", registry_mirrors=["m:5000"], insecure_registries=["m:5000"]), "Debian_13", again
    ).changes


def test_podmans_storage_moves_only_without_running_containers():
    wish = Wish(engine="podman", storage="/data/containers")
    shipped = {STORAGE_SHIPPED: '[storage]\ndriver = "overlay"\n'}
    found = decide(wish, "Debian_13", replace(podman_host(), files=shipped))
    assert [(entry["path"], entry["content"]) for entry in found.files] == [
        (STORAGE_CONF, '[storage]\ngraphroot = "/data/containers"\ndriver = "overlay"\n')
    ]
    with pytest.raises(RuntimePlanError, match="would not find its running containers vllm-chat; stop them first"):
        decide(replace(wish, restart_allowed=True), "Debian_13", podman_host(containers=["vllm-chat"]))
    assert not decide(wish, "Debian_13", podman_host(root="/data/containers")).changes


def test_many_containers_are_named_in_part():
    host = docker_host(containers=[f"c{number:02}" for number in range(14)])
    with pytest.raises(RuntimePlanError, match=r"c00, c01, .*, c09 and 4 more; stop"):
        decide(replace(DISTRO_DOCKER, storage="/data"), "Debian_13", host)
