# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.containers.program_command import program_run

SETTINGS = {
    "engine": "docker",
    "user": "vllm",
    "uid": 998,
    "gid": 997,
    "command": "/usr/bin/docker",
    "stop_timeout": 80,
}
CONTAINER = {
    "image": "vllm/vllm-openai:v0.33.0", "command": [], "user": "vllm", "shm_size": "16g", "groups": [],
    "memlock": True, "devices": ["nvidia.com/gpu=all"],
    "mounts": ["/srv/models:/srv/models:ro", "/var/cache/vllm/big:/cache"],
}  # fmt: skip


def plan(container, **fields):
    return {
        "instance": "big", "stack": "cuda", "env": {"VLLM_HOST_IP": "10.0.0.1"}, "secrets": ["VLLM_API_KEY"],
        "launch": ["/opt/vllm/x/bin/vllm", "serve"], "container": container, **fields,
    }  # fmt: skip


def test_a_virtual_environment():
    found = program_run(plan(None), SETTINGS)
    assert found["argv"] == ["/opt/vllm/x/bin/python", "-"]
    assert (found["user"], found["environment"], found["stop"]) == ("vllm", {"VLLM_HOST_IP": "10.0.0.1"}, [])


def test_an_image():
    found = program_run(plan(CONTAINER), SETTINGS)
    text = " ".join(found["argv"])
    assert text.startswith("/usr/bin/docker run --rm --interactive --name vllm-big-check --pull never --network host ")
    assert text.endswith(("--entrypoint python3 docker.io/vllm/vllm-openai:v0.33.0 -", " vllm/vllm-openai:v0.33.0 -"))
    assert "--cap-drop MKNOD --cap-drop NET_RAW --cap-drop SETFCAP" in text
    assert "--user 998:997" in text and "--device nvidia.com/gpu=all" in text and "VLLM_HOST_IP=10.0.0.1" in text
    assert "VLLM_API_KEY" not in text and "/var/cache/vllm/big" not in text
    assert found["stop"] == ["/usr/bin/docker", "rm", "--force", "vllm-big-check"]


def test_an_image_for_ascend_sets_up_its_libraries():
    assert program_run(plan({**CONTAINER, "user": "root"}, stack="cann"), SETTINGS)["argv"][-1].endswith(
        'python3 - "$0"'
    )
