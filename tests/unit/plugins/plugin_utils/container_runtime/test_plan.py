# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host gets that has docker or podman already, and what stands in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import (
    EngineState,
    HostState,
    RuntimePlanError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.names import (
    REGISTRIES,
    STORAGE_CONF,
    STORAGE_SHIPPED,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.model import Request

from tests.fakes.container_runtimes import (
    DISTRO_DOCKER,
    DOCKER_CE,
    FRESH,
    HOOK,
    decide,
    docker_file,
    docker_host,
    podman_host,
)


def test_a_finished_host_needs_nothing():
    host = docker_host()
    assert not decide(DISTRO_DOCKER, "Debian_13", host).changes
    assert not decide(replace(DISTRO_DOCKER, hold=False), "Debian_13", replace(host, held=[])).changes


def test_an_engine_that_works_is_left_alone_unless_told_otherwise():
    host = docker_host()
    found = decide(Request(), "Debian_13", host)
    assert not found.changes
    assert found.notes == [
        "docker is installed from the distribution's packages, and Docker's own packages are requested; it works and "
        "stays unchanged (container_runtime_policy: retain)"
    ]
    with pytest.raises(
        RuntimePlanError, match="Docker's own packages are requested, and container_runtime_policy is halt"
    ):
        decide(Request(policy="halt"), "Debian_13", host)


def test_another_source_replaces_the_engine_in_one_step():
    found = decide(
        Request(policy="install"),
        "Debian_13",
        docker_host(packages=("docker.io", "docker-cli", "runc", "podman")),
    )
    assert (found.packages, found.remove) == ([*DOCKER_CE, "crun"], ["docker.io", "docker-cli", "runc"])
    assert found.release == found.remove
    assert found.restart == [
        "docker is installed from the distribution's packages, and Docker's own packages are requested"
    ]


def test_an_engine_is_not_replaced_under_running_containers():
    host = docker_host(containers=["chat", "other"])
    with pytest.raises(
        RuntimePlanError,
        match=r"docker\.io, docker-cli must be removed before docker-ce is installed, .* chat, other; ",
    ):
        decide(Request(policy="install"), "Debian_13", host)
    assert decide(Request(policy="install", restart_allowed=True), "Debian_13", host).packages == DOCKER_CE


def test_containers_of_podman_count_where_its_runtime_goes():
    podman = EngineState("podman", "/usr/bin/podman", version="5.4.2", containers=["vllm-chat"])
    host = HostState(engines={"podman": podman}, packages={"podman": "5.4.2", "runc": "1.1"})
    with pytest.raises(
        RuntimePlanError, match="runc must be removed before docker-ce is installed, and containers run: vllm-chat"
    ):
        decide(Request(), "Debian_13", host)


def test_an_engine_of_no_package_cannot_be_replaced():
    host = docker_host(packages=())
    assert not decide(Request(), "Ubuntu_24", host).installs
    with pytest.raises(
        RuntimePlanError,
        match=r"from no package, .* cannot replace an engine that belongs to no package: remove it first",
    ):
        decide(Request(policy="install"), "Ubuntu_24", host)


def test_another_version_waits_for_running_containers():
    host = docker_host("28.1.0", DOCKER_CE, containers=["chat"])
    requested = Request(version="28.5", policy="install")
    with pytest.raises(
        RuntimePlanError, match=r"restarted \(docker is 28\.1\.0, and .*version is 28\.5\), .*: chat; stop"
    ):
        decide(requested, host=host)
    assert decide(replace(requested, restart_allowed=True), host=host).packages[0] == "docker-ce=5:28.5*"
    assert not decide(replace(requested, version="28.1"), host=host).installs


def test_packages_are_held_once():
    host = replace(docker_host(), held=["docker-cli"])
    assert decide(DISTRO_DOCKER, "Debian_13", host).hold == ["docker.io"]


def test_an_installation_that_was_cut_off_is_ended_first():
    cut = {"containerd": "unpacked", "runc": "half-configured"}
    found = decide(DISTRO_DOCKER, host=replace(FRESH, unfinished=cut))
    assert [(entry["argv"][-1], entry["may_fail"]) for entry in found.mend] == [("install", False)]
    half = decide(DISTRO_DOCKER, host=replace(FRESH, unfinished={**cut, "docker.io": "half-installed"}))
    assert [(entry["argv"][-1], entry["may_fail"]) for entry in half.mend] == [("install", True), ("docker.io", False)]
    assert all("--no-remove" in entry["argv"] for entry in half.mend)
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


@pytest.mark.parametrize(("requested", "state", "restart", "reload"), TAKEN_UP)
def test_docker_is_restarted_only_for_what_it_cannot_read_again(requested, state, restart, reload):
    found = decide(replace(DISTRO_DOCKER, **requested), "Ubuntu_24", docker_host(**state))
    assert (found.restart, found.reload) == (restart, reload)
    held = docker_host(containers=["vllm-chat"], **state)
    if restart:
        with pytest.raises(RuntimePlanError, match="which stops its containers: vllm-chat; stop them first"):
            decide(replace(DISTRO_DOCKER, **requested), "Ubuntu_24", held)
        assert decide(replace(DISTRO_DOCKER, restart_allowed=True, **requested), "Ubuntu_24", held).restart == restart
    else:
        assert decide(replace(DISTRO_DOCKER, **requested), "Ubuntu_24", held).reload == reload


def test_a_file_that_docker_has_not_read_yet_is_taken_up_by_the_next_run():
    host = docker_host(daemon_json={"data-root": "/data/docker"})
    found = decide(replace(DISTRO_DOCKER, storage="/data/docker"), "Debian_13", host)
    assert (found.settings_files, found.restart) == ([], ["data-root /var/lib/docker -> /data/docker"])


def test_a_docker_that_runs_and_would_not_at_boot_is_told_everything():
    host = replace(docker_host(), active=[])
    found = decide(replace(DISTRO_DOCKER, registry_mirrors=["m:5000"]), "Debian_13", host)
    assert (found.units, found.reload) == (["docker.service"], ["registry-mirrors"])


def test_a_file_that_docker_cannot_read_is_an_error_where_it_would_change():
    host = replace(docker_host(), daemon_json_error="/etc/docker/daemon.json is not valid JSON: line 1")
    with pytest.raises(RuntimePlanError, match=r"daemon\.json is not valid JSON: line 1"):
        decide(replace(DISTRO_DOCKER, registry_mirrors=["m:5000"]), "Debian_13", host)
    with pytest.raises(RuntimePlanError, match=r"daemon\.json is not valid JSON: line 1"):
        decide(replace(DISTRO_DOCKER, stack="cuda", version="20.10"), host=host)
    assert not decide(DISTRO_DOCKER, "Debian_13", host).changes


def test_a_value_of_another_kind_in_dockers_file_is_an_error_before_anything_changes():
    host = docker_host(daemon_json={"registry-mirrors": "https://********@m"})
    with pytest.raises(RuntimePlanError, match="registry-mirrors: found a text, expected a list"):
        decide(replace(DISTRO_DOCKER, registry_mirrors=["m:5000"]), "Debian_13", host)


def test_dockers_file_is_judged_by_docker_where_it_can():
    requested = replace(DISTRO_DOCKER, registry_mirrors=["m:5000"])
    plans = {version: decide(requested, host=docker_host(version)) for version in ("20.10.24", "26.1.5")}
    words = {version: found.settings_files[0]["validate"] for version, found in plans.items()}
    assert words == {"20.10.24": "", "26.1.5": "dockerd --validate --config-file=%s"}


def test_dockers_command_alone_is_no_engine():
    host = docker_host("", packages=("docker-cli",), daemon=False)
    found = decide(DISTRO_DOCKER, "Debian_13", replace(host, active=[]))
    assert (found.packages, found.units) == (["docker.io", "docker-cli"], ["docker.service"])
    with pytest.raises(RuntimePlanError, match="docker is not on this host, and container_runtime_source is none"):
        decide(Request(source="none"), "Debian_13", host)


def test_docker_that_does_not_answer_is_started():
    host = replace(docker_host("", packages=("docker.io",), why="Cannot connect"), active=[])
    host = replace(host, packages={"docker.io": "20.10.24+dfsg1"})
    found = decide(replace(DISTRO_DOCKER, stack="cuda"), host=host)
    assert found.units == ["docker.service"]
    assert docker_file(found) == HOOK


def test_a_flag_that_says_the_same_is_named():
    host = docker_host(flags=["-H", "--data-root=/old"])
    with pytest.raises(RuntimePlanError, match="docker is started with --data-root, and with data-root in /etc/docker"):
        decide(replace(DISTRO_DOCKER, storage="/data/docker"), "Debian_13", host)
    assert decide(replace(DISTRO_DOCKER, registry_mirrors=["m"]), "Debian_13", host).reload == ["registry-mirrors"]


# podman.


def test_podman_reads_its_files_at_every_command():
    host = podman_host(containers=["vllm-chat"])
    found = decide(
        Request(engine="podman", registry_mirrors=["m:5000"], insecure_registries=["m:5000"]), "Debian_13", host
    )
    assert [entry["path"] for entry in found.files] == [REGISTRIES]
    assert (found.restart, found.reload, found.units) == ([], [], [])
    again = replace(host, files={REGISTRIES: found.files[0]["content"]})
    assert not decide(
        Request(engine="podman", registry_mirrors=["m:5000"], insecure_registries=["m:5000"]), "Debian_13", again
    ).changes


def test_podmans_storage_moves_only_without_running_containers():
    requested = Request(engine="podman", storage="/data/containers")
    shipped = {STORAGE_SHIPPED: '[storage]\ndriver = "overlay"\n'}
    found = decide(requested, "Debian_13", replace(podman_host(), files=shipped))
    assert [(entry["path"], entry["content"]) for entry in found.files] == [
        (STORAGE_CONF, '[storage]\ngraphroot = "/data/containers"\ndriver = "overlay"\n')
    ]
    with pytest.raises(RuntimePlanError, match="would not find its running containers vllm-chat; stop them first"):
        decide(replace(requested, restart_allowed=True), "Debian_13", podman_host(containers=["vllm-chat"]))
    assert not decide(requested, "Debian_13", podman_host(root="/data/containers")).changes


def test_many_containers_are_named_in_part():
    host = docker_host(containers=[f"c{number:02}" for number in range(14)])
    with pytest.raises(RuntimePlanError, match=r"c00, c01, .*, c09 and 4 more; stop"):
        decide(replace(DISTRO_DOCKER, storage="/data"), "Debian_13", host)
