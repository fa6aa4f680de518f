# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shlex

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
    quadlet_lines,
    reference,
    registry_of,
    run_words,
    trouble_with,
    unset_names,
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
SETTINGS = {
    "engine": "docker",
    "user": "vllm",
    "uid": 998,
    "gid": 997,
    "stop_timeout": 80,
    "command": "/usr/bin/docker",
}


def docker(version="20.10.24+dfsg1", dirs=()):
    return Found("docker", "/usr/bin/docker", version, cdi_dirs=dirs)


def podman(version="5.4.2", **more):
    return Found("podman", "/usr/bin/podman", version, **{"cdi_dirs": CDI_DIRS, **more})


def plan(**container):
    return {
        "instance": "chat",
        "replica_of": "chat",
        "env": {"HOME": "/var/cache/vllm/chat", "LD_PRELOAD": "libx.so", "VLLM_CACHE_ROOT": "/c", "http_proxy": "p"},
        "secrets": ["HF_TOKEN"],
        "container": {
            "image": "vllm/vllm-openai:v0.33.0",
            "command": [],
            "user": "vllm",
            "shm_size": "16g",
            "devices": [],
            "groups": [],
            "mounts": ["/srv/models/m:/srv/models/m:ro", "/var/cache/vllm/chat:/var/cache/vllm/chat"],
            "memlock": True,
            **container,
        },
    }


def words(settings=None, **container):
    return [word for group in run_words(plan(**container), {**SETTINGS, **(settings or {})}) for word in group]


def lines(settings=None, **container):
    return quadlet_lines(plan(**container), {**SETTINGS, "engine": "podman", **(settings or {})})


def option(found, name):
    return [found[index + 1] for index, word in enumerate(found) if word == name]


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
        (podman("3.4.4"), ["nvidia.com/gpu"], "podman 3.4.4 knows no CDI devices; 4.1 and later do"),
        (docker(), ["nvidia.com/gpu"], "docker 20.10.24+dfsg1 knows no CDI devices (25 and later do, with the feature"),
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
    container = plan(
        devices=["/dev/davinci0", "nvidia.com/gpu=0"],
        mounts=["/srv/models/m:/srv/models/m:ro", "/srv/models2:/x:ro", "/usr/local/dcmi:/usr/local/dcmi:ro"],
    )["container"]
    assert needed_paths([container], ["/srv/models"]) == ["/dev/davinci0", "/srv/models2", "/usr/local/dcmi"]
    assert origin("/dev/davinci0") == origin("/usr/local/dcmi") == "Huawei's driver (Ascend HDK)"
    assert "amdgpu" in origin("/dev/kfd")


@pytest.mark.parametrize(
    ("image", "whole"),
    [
        ("vllm/vllm-openai:v0.33.0", "docker.io/vllm/vllm-openai:v0.33.0"),
        ("debian", "docker.io/library/debian:latest"),
        ("mirror:5000/vllm/x", "mirror:5000/vllm/x:latest"),
        ("localhost/x:1", "localhost/x:1"),
        ("mirror:5000/a/b:v1@sha256:00", "mirror:5000/a/b@sha256:00"),
        ("quay.io/ascend/vllm-ascend@sha256:00", "quay.io/ascend/vllm-ascend@sha256:00"),
    ],
)
def test_a_reference_is_spelt_out_for_podman(image, whole):
    assert reference(image) == whole
    assert registry_of(image) == whole.split("/")[0]


def test_no_secret_and_no_plain_value_is_among_the_words():
    assert option(words(), "--env") == [
        "HOME=/var/cache/vllm/chat", "LD_PRELOAD=libx.so", "VLLM_CACHE_ROOT", "http_proxy", "HF_TOKEN",
    ]  # fmt: skip


def test_the_engines_own_command_does_not_see_what_it_would_obey():
    assert unset_names(plan()) == ["HOME", "LD_PRELOAD"]


def test_a_container_gets_no_privilege():
    found = words()
    assert option(found, "--cap-drop") == ["ALL"] and option(found, "--user") == ["998:997"]
    assert "--read-only" in found and "no-new-privileges" in found and "--privileged" not in found
    assert option(found, "--network") == ["host"] and option(found, "--ipc") == ["private"]
    assert option(found, "--pull") == ["never"] and "docker.sock" not in " ".join(found)
    assert found[-1] == "docker.io/vllm/vllm-openai:v0.33.0"


def test_a_source_that_is_not_there_is_not_made():
    assert "--volume" not in words()
    assert option(words(), "--mount")[0] == "type=bind,source=/srv/models/m,target=/srv/models/m,readonly"
    assert option(words(), "--mount")[1] == "type=bind,source=/var/cache/vllm/chat,target=/var/cache/vllm/chat"


def test_a_user_that_is_not_there_yet_stands_by_name():
    assert option(words({"uid": None, "gid": None}), "--user") == ["vllm:vllm"]


def test_groups_are_those_of_the_host_by_number():
    amd = {"devices": ["/dev/kfd", "/dev/dri"], "groups": ["render", "video"]}
    found = words({"gids": {"render": 104, "video": 44}}, **amd)
    assert option(found, "--group-add") == ["104", "44"] and option(found, "--device") == ["/dev/kfd", "/dev/dri"]
    assert "PodmanArgs=--group-add=104" in lines({"gids": {"render": 104, "video": 44}}, **amd)


def test_the_older_flag_names_chips_as_docker_reads_them():
    chips = {"devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]}
    assert option(words({"gpus": "flag"}, **chips), "--gpus") == ['"device=0,1"']
    assert option(words({"gpus": "flag"}, devices=["nvidia.com/gpu=all"]), "--gpus") == ["all"]
    assert option(words({"gpus": "cdi"}, **chips), "--device") == chips["devices"]


def test_a_host_that_may_not_raise_limits_gets_none():
    assert option(words(), "--ulimit") == ["memlock=-1:-1", "nofile=65536:65536"]
    assert option(words({"limits": False}), "--ulimit") == []
    assert not [line for line in lines({"limits": False}) if "ulimit" in line]


ASCEND = {
    "command": ["/bin/bash", "-c", '. /root/.bashrc; exec vllm serve "$@"', "vllm"],
    "user": "root",
    "devices": ["/dev/davinci0"],
    "groups": ["HwHiAiUser"],
}


def test_an_image_without_entrypoint_gets_its_words_and_keeps_what_it_needs_as_root():
    found = words({"gids": {"HwHiAiUser": 1000}}, **ASCEND)
    assert option(found, "--entrypoint") == ["/bin/bash"]
    assert found[-3:] == ASCEND["command"][1:]
    assert option(found, "--user") == ["0:0"] and option(found, "--group-add") == ["1000"]
    assert "--read-only" not in found and "--cap-drop" not in found and "no-new-privileges" in found


def test_a_quadlet_expands_nothing_in_what_it_runs():
    found = lines(**ASCEND)
    assert "PodmanArgs=--entrypoint=/bin/bash" in found
    assert 'Exec=-c ". /root/.bashrc; exec vllm serve \\"$$@\\"" vllm --config /etc/vllm/chat.yaml' in found


def test_a_quadlet_has_only_keys_that_podman_4_4_knows():
    known = {
        "ContainerName", "Image", "Exec", "Network", "User", "Group", "NoNewPrivileges", "SecurityLabelDisable",
        "RunInit", "ReadOnly", "DropCapability", "AddCapability", "AddDevice", "Volume", "PodmanArgs",
    }  # fmt: skip
    found = lines({"gids": {}}, devices=["nvidia.com/gpu=0"], groups=["video"])
    assert {line.partition("=")[0] for line in found} == known
    assert "AddDevice=nvidia.com/gpu=0" in found and "Volume=/srv/models/m:/srv/models/m:ro" in found
    assert "PodmanArgs=--env=HF_TOKEN" in found and "PodmanArgs=--pull=never" in found


def test_podman_before_quadlets_runs_in_the_unit_itself():
    found = words({"engine": "podman", "command": "/usr/bin/podman"})
    assert found[:3] == ["/usr/bin/podman", "run", "--rm"] and option(found, "--cgroups") == ["split"]


def test_without_an_init_on_the_host_there_is_none():
    assert "--init" in words() and "--init" not in words({"init": False})


def test_what_docker_does_is_one_command_for_a_shell():
    assert shlex.split(shlex.join(words(**ASCEND))) == words(**ASCEND)


@pytest.mark.parametrize(
    ("engine", "said", "advice"),
    [
        (
            "podman",
            "http: server gave HTTP response to HTTPS client",
            "in a file of /etc/containers/registr",
        ),
        ("docker", "x509: certificate signed by unknown authority", "at /etc/docker/certs.d/mirror:5000/ca.crt"),
        ("docker", "no such manifest: mirror:5000/x:1", "the registry has no such image"),
        ("podman", "reading manifest 9 in mirror:5000/x: manifest unknown", "the registry has no such image"),
        ("docker", "no basic auth credentials", "vllm_registry_auth_file"),
        ("docker", "dial tcp 10.0.0.1:5000: connect: connection refused", "cannot be reached from this host"),
        ("podman", "dial tcp: lookup mirror: no such host", "cannot be reached from this host"),
        ("docker", "write /var/lib/docker/x: no space left on device", "the disk of the engine's images is full"),
    ],
)
def test_what_an_engine_says_becomes_advice(engine, said, advice):
    text = trouble_with(engine, "mirror:5000/x:1", said)
    assert text.startswith("image mirror:5000/x:1 cannot be had from registry mirror:5000: ")
    assert advice in text and said in text


def test_words_that_nobody_knows_are_handed_on():
    said = "something\nnew"
    assert trouble_with("docker", "m:5000/x:1", said).endswith("registry m:5000: docker said: something new")
