# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations

import shlex

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers.run_command import (
    container_settings,
    quadlet_lines,
    run_words,
)

SETTINGS = {
    "engine": "docker",
    "user": "vllm",
    "uid": 998,
    "gid": 997,
    "stop_timeout": 80,
    "command": "/usr/bin/docker",
}
NOTICE = ["--middleware", "availability.Availability"]


def plan(**container):
    return {
        "instance": "chat",
        "replica_of": "chat",
        "env": {"HOME": "/var/cache/vllm/chat", "LD_PRELOAD": "libx.so", "VLLM_CACHE_ROOT": "/c", "http_proxy": "p"},
        "secrets": ["HF_TOKEN"],
        "middleware": NOTICE,
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


def test_no_secret_and_no_value_of_the_plan_is_among_the_words():
    # The engine's own command would obey some of them, so it reads the file instead of having them in its environment.
    assert option(words(), "--env-file") == ["/etc/vllm/chat.env"]
    assert option(words(), "--env") == ["GATEWAY_SECRET", "HF_TOKEN"]
    assert "PodmanArgs=--env-file=/etc/vllm/chat.env" in lines()
    assert "libx.so" not in str(words()) + str(lines())


def test_a_container_gets_no_privilege():
    found = words()
    assert option(found, "--cap-drop") == ["ALL"] and option(found, "--user") == ["998:997"]
    assert "--read-only" in found and "no-new-privileges" in found and "--privileged" not in found
    assert option(found, "--network") == ["host"] and option(found, "--ipc") == ["private"]
    assert option(found, "--pull") == ["never"] and "docker.sock" not in " ".join(found)
    assert found[-3:] == ["docker.io/vllm/vllm-openai:v0.33.0", *NOTICE]


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
    assert found[-5:] == [*ASCEND["command"][1:], *NOTICE]
    assert option(found, "--user") == ["0:0"] and option(found, "--group-add") == ["1000"]
    assert "--read-only" not in found and "no-new-privileges" in found


def test_a_container_of_root_makes_no_device_node_no_file_with_capabilities_and_no_raw_packet():
    for engine in ("docker", "podman"):
        found = words({"engine": engine}, **ASCEND)
        assert option(found, "--cap-drop") == ["MKNOD", "NET_RAW", "SETFCAP"] and option(found, "--cap-add") == []
    assert "DropCapability=MKNOD NET_RAW SETFCAP" in lines(**ASCEND)


def test_a_quadlet_expands_nothing_in_what_it_runs():
    found = lines(**ASCEND)
    assert "PodmanArgs=--entrypoint=/bin/bash" in found
    assert (
        f'Exec=-c ". /root/.bashrc; exec vllm serve \\"$$@\\"" vllm {" ".join(NOTICE)} --config /etc/vllm/chat.yaml'
        in found
    )


def test_a_quadlet_has_only_keys_that_podman_4_4_knows():
    known = {
        "ContainerName", "Image", "Exec", "Network", "User", "Group", "NoNewPrivileges", "SecurityLabelDisable",
        "RunInit", "ReadOnly", "DropCapability", "AddCapability", "AddDevice", "Volume", "PodmanArgs",
    }  # fmt: skip
    found = lines({"gids": {}}, devices=["/dev/kfd"], groups=["video"])
    assert {line.partition("=")[0] for line in found} == known
    assert "AddDevice=/dev/kfd" in found and "Volume=/srv/models/m:/srv/models/m:ro" in found
    assert "PodmanArgs=--env=HF_TOKEN" in found and "PodmanArgs=--pull=never" in found


def test_hooks_of_cdi_get_a_tree_that_they_can_change_in_podman():
    chips = {"devices": ["nvidia.com/gpu=0"]}
    found = lines(**chips)
    assert "AddDevice=nvidia.com/gpu=0" in found and "DropCapability=all" in found
    assert not [line for line in found if "ReadOnly" in line or "read-only" in line]
    assert "PodmanArgs=--tmpfs=/run:mode=755" in found
    podman = {"engine": "podman", "command": "/usr/bin/podman"}
    assert "--read-only" not in words(podman, **chips) and "--read-only" in words(podman, devices=["/dev/kfd"])
    assert "--read-only" in words(**chips), "runc runs the hooks before it makes the tree read-only"


def test_podman_before_quadlets_runs_in_the_unit_itself():
    found = words({"engine": "podman", "command": "/usr/bin/podman"})
    assert found[:3] == ["/usr/bin/podman", "run", "--rm"] and option(found, "--cgroups") == ["split"]


def test_without_an_init_on_the_host_there_is_none():
    assert "--init" in words() and "--init" not in words({"init": False})


def test_what_docker_does_is_one_command_for_a_shell():
    assert shlex.split(shlex.join(words(**ASCEND))) == words(**ASCEND)


ROCM = {"devices": ["/dev/kfd", "/dev/dri"], "groups": ["render"]}


def test_a_container_on_amd_has_the_flags_of_vllm_s_guide():
    assert option(words(**ROCM), "--cap-add") == ["SYS_NICE", "SYS_PTRACE"]
    assert "seccomp=unconfined" in option(words(**ROCM), "--security-opt")
    assert "AddCapability=SYS_NICE SYS_PTRACE" in lines(**ROCM)
    assert "PodmanArgs=--security-opt=seccomp=unconfined" in lines(**ROCM)


def test_the_flags_of_vllm_s_guide_can_be_taken_away():
    settings = container_settings({}, "vllm", "docker", 60, None, False)
    strict = {"rocm_guide_flags": settings["rocm_guide_flags"]}
    for found in (" ".join(words(strict, **ROCM)), " ".join(lines(strict, **ROCM)), " ".join(words() + lines())):
        assert "SYS_PTRACE" not in found and "seccomp" not in found


def test_the_settings_of_containers_are_those_of_the_host():
    host = {"engine": "podman", "command": "/usr/bin/podman"}
    account = {"uid": 993, "group": 992, "changed": True}
    assert container_settings({"container": host}, "vllm", "docker", "60", account) == {
        "engine": "podman",
        "command": "/usr/bin/podman",
        "user": "vllm",
        "stop_timeout": 80,
        "rocm_guide_flags": True,
        "uid": 993,
        "gid": 992,
    }


@pytest.mark.parametrize("account", [None, {}, {"changed": True}])
@pytest.mark.parametrize("state", [None, {}, {"installed": []}])
def test_the_settings_of_containers_without_a_host(state, account):
    assert container_settings(state, "vllm", "docker", 60, account) == {
        "engine": "docker",
        "user": "vllm",
        "stop_timeout": 80,
        "rocm_guide_flags": True,
    }
