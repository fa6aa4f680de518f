# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers.engine import (
    CDI_DIRS,
    ContainerError,
    Found,
    cdi_kind,
    choose_engine,
    gpus_by,
    has_cdi,
    has_quadlet,
    needed_paths,
    origin,
    version_of,
)

# What hosts answered, and what they can do. docker names its CDI directories only where the feature is on.
DOCKERS = [
    ("20.10.24+dfsg1", (), False),
    ("25.0.5", (), False),
    ("25.0.5", CDI_DIRS, True),
    ("26.1.5+dfsg1", (), False),
    ("28.2.2", CDI_DIRS, True),
]
PODMANS = [("3.4.4", False, False), ("4.3.1", True, False), ("4.9.3", True, True), ("5.4.2", True, True)]


def docker(version="20.10.24+dfsg1", dirs=()):
    return Found("docker", "/usr/bin/docker", version, cdi_dirs=dirs)


def podman(version="5.4.2", **more):
    return Found("podman", "/usr/bin/podman", version, **{"cdi_dirs": CDI_DIRS, **more})


@pytest.mark.parametrize(("version", "dirs", "able"), DOCKERS)
def test_docker_takes_cdi_names_from_25_with_the_feature_on(version, dirs, able):
    assert has_cdi(docker(version, dirs)) is able
    assert not has_quadlet(docker(version, dirs))


@pytest.mark.parametrize(("version", "cdi", "quadlet"), PODMANS)
def test_podman_takes_cdi_names_from_4_1_and_quadlets_from_4_4(version, cdi, quadlet):
    assert has_cdi(podman(version)) is cdi
    assert has_quadlet(podman(version)) is quadlet


def test_quadlets_need_the_generator_and_cgroups_of_version_2():
    assert not has_quadlet(podman(generator=False))
    assert not has_quadlet(podman(cgroup_v2=False))


def test_versions_are_compared_as_numbers():
    assert version_of("podman version 4.10.0-dev") == (4, 10, 0)
    assert version_of("none") == ()


def test_docker_goes_before_podman_unless_podman_is_wanted():
    both = [docker(), podman()]
    assert choose_engine("", both).name == "docker"
    assert choose_engine("podman", both).name == "podman"
    assert choose_engine("", [podman()]).name == "podman"


def test_an_engine_that_is_down_does_not_hand_its_instances_to_the_other():
    down = Found("docker", "/usr/bin/docker", "", "Cannot connect to the Docker daemon")
    with pytest.raises(ContainerError) as caught:
        choose_engine("", [down, podman()])
    assert str(caught.value) == (
        "docker is installed but does not answer (Cannot connect to the Docker daemon); start it "
        "(systemctl start docker)"
    )


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("", "the runtime 'container' needs docker or podman: neither is on this host; install the package docker.io"),
        ("podman", "vllm_engine is podman, which is not on this host; install the package podman first"),
    ],
)
def test_a_host_without_the_engine_is_told_what_to_install(wanted, message):
    with pytest.raises(ContainerError) as caught:
        choose_engine(wanted, [docker()] if wanted else [])
    assert str(caught.value).startswith(message)
    assert "let the role container_runtime do it" in str(caught.value)


def test_nvidia_chips_are_asked_for_by_cdi_names_where_there_is_a_specification():
    chips = ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]
    assert gpus_by(docker("28.2.2", CDI_DIRS), chips, ["nvidia.com/gpu"], hook=True) == "cdi"
    assert gpus_by(podman(), chips, ["nvidia.com/gpu"], hook=False) == "cdi"
    assert gpus_by(docker("28.2.2", CDI_DIRS), chips, [], hook=True) == "flag"
    assert gpus_by(docker(), chips, ["nvidia.com/gpu"], hook=True) == "flag"
    assert gpus_by(docker(), ["/dev/kfd"], [], hook=False) == "cdi"


@pytest.mark.parametrize(
    ("found", "kinds", "message"),
    [
        (podman(), [], "no CDI specification of nvidia.com/gpu is in /etc/cdi or /var/run/cdi; install the package"),
        (podman("3.4.4"), ["nvidia.com/gpu"], "podman 3.4.4 does not support CDI devices; 4.1 and later do"),
        (
            docker(),
            ["nvidia.com/gpu"],
            "docker 20.10.24+dfsg1 does not support CDI devices (25 and later do, with the feature",
        ),
        (docker("28.2.2", CDI_DIRS), ["amd.com/gpu"], "no CDI specification of nvidia.com/gpu is in"),
    ],
)
def test_chips_that_no_engine_can_give_are_an_error_with_a_way_out(found, kinds, message):
    with pytest.raises(ContainerError) as caught:
        gpus_by(found, ["nvidia.com/gpu=all"], kinds, hook=False)
    assert f"{found.name} cannot give nvidia.com/gpu to a container: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n", "nvidia.com/gpu"),
        ('{"cdiVersion": "0.6.0", "kind": "amd.com/gpu"}', "amd.com/gpu"),
        ("kind: 'nvidia.com/gpu'\n", "nvidia.com/gpu"),
        ("devices: []\n", ""),
    ],
)
def test_the_kind_of_a_specification_is_read(text, kind):
    assert cdi_kind(text) == kind


def test_device_nodes_and_drivers_must_be_there_but_not_what_the_run_brings():
    container = {
        "devices": ["/dev/davinci0", "nvidia.com/gpu=0"],
        "mounts": ["/srv/models/m:/srv/models/m:ro", "/srv/models2:/x:ro", "/usr/local/dcmi:/usr/local/dcmi:ro"],
    }
    assert needed_paths([container], ["/srv/models"]) == ["/dev/davinci0", "/srv/models2", "/usr/local/dcmi"]
    assert origin("/dev/davinci0") == origin("/usr/local/dcmi") == "Huawei's driver (Ascend HDK)"
    assert "amdgpu" in origin("/dev/kfd")
