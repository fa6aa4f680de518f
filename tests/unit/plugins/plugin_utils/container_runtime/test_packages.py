# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages an engine and its toolkit need; test_plan.py has whole plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import (
    HostState,
    RuntimePlanError,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime import packages
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.model import PlanPart, Request
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.repositories import (
    docker_repository,
)

from tests.fakes.container_runtimes import FRESH, docker_host, podman_host, system

DEBIAN, ROCKY = system("Debian_12"), system("Rocky_9")
CUDA = Request(stack="cuda")


@pytest.mark.parametrize(
    ("request_", "version", "way"),
    [
        (Request(), (20,), ""), (CUDA, (25,), "cdi"), (CUDA, (24, 0, 9), "hook"),
        (replace(CUDA, engine="podman"), (4, 1), "cdi"),
    ],
)  # fmt: skip
def test_chips_reach_containers_by_cdi_or_by_dockers_older_hook(request_, version, way):
    assert packages.gpu_way(request_, version, "Debian 12") == way


def test_an_old_podman_gives_no_chips():
    with pytest.raises(RuntimePlanError, match=r"podman 3\.4\.4 of Ubuntu 22\.04 gives no NVIDIA devices"):
        packages.gpu_way(replace(CUDA, engine="podman"), (3, 4, 4), "Ubuntu 22.04")


def test_half_installed_packages_are_installed_again_by_name_and_others_completed_first():
    assert packages.mending({}) == ()
    (general,) = packages.mending({"docker-ce": "half-configured"})
    assert general["argv"][-1] == "install" and not general["may_fail"]
    first, second = packages.mending({"b": "half-installed", "a": "half-installed", "c": "unpacked"})
    assert first["may_fail"] and not second["may_fail"] and second["argv"][-3:] == ["install", "a", "b"]


@pytest.mark.parametrize(
    ("request_", "place", "host", "reason"),
    [
        (Request(source="none"), DEBIAN, FRESH, "docker is not on this host, and container_runtime_source is none"),
        (Request(source="mirror"), DEBIAN, FRESH, "container_runtime_mirror_url is empty"),
        (Request(source="distro"), ROCKY, FRESH, "has no docker of its own; set container_runtime_engine: podman"),
        (Request(policy="halt"), DEBIAN, docker_host(), "from the distribution's packages, and Docker's own"),
        (
            Request(policy="halt", source="distro", version="27"), DEBIAN, docker_host(),
            "docker is 26.1.5, and container_runtime_version is 27, and container_runtime_policy is halt",
        ),
        (Request(policy="install"), DEBIAN, docker_host(packages=[]), "an engine that belongs to no package"),
        (
            Request(policy="install"), DEBIAN, docker_host(containers=["b", "a"]),
            "docker.io, docker-cli must be removed before docker-ce is installed, and containers run: a, b; stop",
        ),
    ],
)  # fmt: skip
def test_what_the_host_or_the_site_lacks_is_refused(request_, place, host, reason):
    with pytest.raises(RuntimePlanError) as caught:
        packages.plan_packages(request_, place, host)
    assert reason in str(caught.value)


def test_another_engine_stays_with_a_note_unless_the_site_wants_its_own():
    version, part = packages.plan_packages(Request(), DEBIAN, docker_host())
    assert version == (26, 1, 5) and not part.packages and "it works and stays unchanged" in part.notes[0]
    version, part = packages.plan_packages(Request(policy="install", version="28.3"), DEBIAN, docker_host())
    assert version == (28, 3) and part.remove == part.release == ("docker.io", "docker-cli")
    assert part.packages[:3] == ("docker-ce=5:28.3*", "docker-ce-cli=5:28.3*", "containerd.io")
    assert part.restart and part.hold == ("docker-ce", "docker-ce-cli", "containerd.io")


def test_an_engine_that_does_not_answer_has_the_version_of_its_package():
    host = replace(docker_host(version=""), packages={"docker-ce": "5:27.1.2-1~debian.12"})
    assert packages.plan_packages(Request(), DEBIAN, host)[0] == (27, 1, 2)


def test_docker_needs_the_parser_of_apparmor_and_podman_a_runtime_that_stays():
    host = replace(FRESH, apparmor=True, packages={"runc": "1", "podman": "5"})
    _version, part = packages.plan_packages(Request(), DEBIAN, host)
    assert {"apparmor", "crun"} <= set(part.packages) and "runc" in part.remove
    _version, part = packages.plan_packages(Request(), DEBIAN, replace(host, packages={"podman": "5", "apparmor": "3"}))
    assert not {"apparmor", "crun"} & set(part.packages)


def test_podman_has_no_packages_that_are_held():
    version, part = packages.plan_packages(Request(engine="podman", version="4.3"), DEBIAN, FRESH)
    assert version == (4, 3) and part.packages[0] == "podman=4.3*" and part.packages[1] == "catatonit"
    assert part.hold == () and not packages.holds(Request(), "rpm") and packages.holds(Request(), "deb")


BOTH = ("nvidia-container-toolkit", "nvidia-container-toolkit-base")


@pytest.mark.parametrize(
    ("installed", "way_version", "expected"),
    [
        ({}, (28,), ("nvidia-container-toolkit-base",)), ({"nvidia-container-toolkit-base": "1.18.0-1"}, (28,), ()),
        ({"nvidia-container-toolkit-base": "1.17.8-1"}, (28,), ("nvidia-container-toolkit-base",)),
        ({"nvidia-container-toolkit": "1.17.8-1"}, (28,), BOTH),
        ({"nvidia-container-toolkit": "1.13.5-1"}, (24,), ()),
        ({"nvidia-container-toolkit-base": "1.18.0-1"}, (24,), BOTH),
    ],
)  # fmt: skip
def test_nvidias_toolkit_keeps_the_specification_up_to_date_from_1_18(installed, way_version, expected):
    part = packages.plan_toolkit(CUDA, DEBIAN, replace(FRESH, packages=installed), way_version)
    assert part.toolkit == expected and bool(part.repositories) == bool(expected)


def test_a_toolkit_that_nobody_may_install_is_asked_for():
    none = replace(CUDA, source="none")
    with pytest.raises(RuntimePlanError, match="nvidia-container-toolkit-base is not there, and it is needed"):
        packages.plan_toolkit(none, DEBIAN, FRESH, (28,))
    with pytest.raises(RuntimePlanError, match=r"is 1\.17\.8, and 1\.18 or later is needed"):
        packages.plan_toolkit(none, DEBIAN, replace(FRESH, packages={"nvidia-container-toolkit-base": "1.17.8"}), (28,))
    assert packages.plan_toolkit(replace(none, toolkit="none"), DEBIAN, FRESH, (28,)) == PlanPart()


def test_amds_toolkit_is_installed_on_request_and_describes_the_chips_of_a_loaded_driver():
    ubuntu, rocm = system("Ubuntu_24"), Request(stack="rocm", toolkit="vendor")
    part = packages.plan_toolkit(rocm, ubuntu, replace(FRESH, drivers=["rocm"]), (28,))
    assert part.toolkit == ("amd-container-toolkit",) and part.commands == (("/usr/bin/amd-ctk", "cdi", "generate"),)
    done = replace(FRESH, drivers=["rocm"], packages={"amd-container-toolkit": "1"}, files={"/etc/cdi/amd.json": ""})
    assert packages.plan_toolkit(rocm, ubuntu, done, (28,)) == PlanPart()
    assert packages.plan_toolkit(replace(rocm, toolkit="auto"), ubuntu, FRESH, (28,)) == PlanPart()
    with pytest.raises(RuntimePlanError, match=r"needs docker 25 or later, and this is 24\.0"):
        packages.plan_toolkit(rocm, ubuntu, FRESH, (24, 0))
    with pytest.raises(
        RuntimePlanError, match="amd-container-toolkit is not on this host, and container_runtime_source"
    ):
        packages.plan_toolkit(replace(rocm, source="none"), ubuntu, FRESH, (28,))


def test_a_repository_is_written_unless_entry_and_key_are_there():
    repository = docker_repository(DEBIAN, Request(), FRESH)
    key = {repository["key"]["path"]: repository["key"]["fingerprints"]}
    there = HostState(sources={repository["path"]: repository["content"]}, keys=key)
    assert packages.use_repository(repository, FRESH).repositories == (repository,)
    assert packages.use_repository(repository, there) == PlanPart()
    assert packages.use_repository(repository, replace(there, keys={})).repositories == (repository,)
    other = HostState(sources={"/etc/apt/sources.list": "deb https://download.docker.com/linux/debian x stable"})
    assert (
        "come from /etc/apt/sources.list, which stays unchanged" in packages.use_repository(repository, other).notes[0]
    )


def test_many_names_are_cut():
    assert packages.list_names(["b", "a"]) == "a, b"
    assert packages.list_names([f"c{number:02}" for number in range(12)]).endswith("c09 and 2 more")
    assert packages.plan_packages(Request(engine="podman"), DEBIAN, podman_host())[0] == (5, 4, 2)
