# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a Python with torch is found."""

from __future__ import annotations

import json
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.acceptance.python_host import (
    Interpreter,
    NoPythonError,
    Search,
    container_words,
    environments,
    find_python,
    stop_container,
)


def environment(root, path, torch=True):
    """Make an environment, with torch or without; return its Python."""
    top = root / path
    (top / "bin").mkdir(parents=True)
    python = top / "bin/python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    if torch:
        (top / "lib/python3.12/site-packages/torch").mkdir(parents=True)
    return str(python)


def serve(root, name, line):
    path = root / "var/lib/vllm" / name / "serve"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\nexport PYTHONPATH=/usr/local/lib/vllm\n{line}\n")


def no_engine(_name):
    return None


def nothing(words):
    raise AssertionError(words)


def test_the_environment_of_an_instance_goes_before_others(tmp_path):
    other = environment(tmp_path, "opt/vllm/0.25.1-aa")
    own = environment(tmp_path, "srv/envs/mine")
    environment(tmp_path, "opt/vllm/uv-0.9", torch=False)
    serve(tmp_path, "chat", f'exec {tmp_path}/srv/envs/mine/bin/vllm serve --middleware a.B "$@"')
    serve(tmp_path, "big", 'exec /usr/bin/docker run --rm vllm/vllm-openai:v0.33.0 "$@"')
    assert environments(str(tmp_path), "/opt/vllm") == [own, other]
    found = find_python(Search(root=str(tmp_path)), nothing, no_engine)
    assert found == Interpreter((own, "-"), own)


def test_the_users_own_python_and_one_that_is_not_there(tmp_path):
    environment(tmp_path, "opt/vllm/a")
    assert find_python(Search(python=sys.executable, root=str(tmp_path)), nothing, no_engine).where == sys.executable
    with pytest.raises(NoPythonError, match=r"^accept_python: /nowhere/python is not a program on this host$"):
        find_python(Search(python="/nowhere/python"), nothing, no_engine)


def test_nothing_at_all_is_one_sentence_with_what_to_do(tmp_path):
    with pytest.raises(NoPythonError) as caught:
        find_python(Search(root=str(tmp_path)), nothing, no_engine)
    assert "no Python with torch on this host" in str(caught.value)
    assert "accept_python" in str(caught.value) and "accept_image" in str(caught.value)


class Docker:
    """docker with one running instance, or with none."""

    def __init__(self, image="", version="28.5.1"):
        self.image, self.version, self.calls = image, version, []

    def find(self, name):
        return "/usr/bin/docker" if name == "docker" else None

    def run(self, words):
        self.calls.append(words)
        if words[1] == "--version":
            return 0, "Docker version", ""
        if words[1] == "info":
            info = {"ServerVersion": self.version, "CDISpecDirs": []}
            return (0, json.dumps(info), "") if self.version else (1, "{}", "Cannot connect")
        return 0, f"{self.image}\n" if self.image else "", ""


def words_of(search, docker):
    return list(find_python(search, docker.run, docker.find).argv)


def test_the_image_of_a_running_instance_with_all_devices_and_no_network(tmp_path):
    search = Search(stack="rocm", devices=("/dev/kfd", "/dev/dri"), mounts=("/opt/x",), root=str(tmp_path))
    docker = Docker("vllm/vllm-openai-rocm:v0.33.0")
    found = find_python(search, docker.run, docker.find)
    words = list(found.argv)
    assert words[:2] == ["/usr/bin/docker", "run"]
    assert words[-4:] == ["--entrypoint", "python3", "vllm/vllm-openai-rocm:v0.33.0", "-"]
    assert words[words.index("--device") :][:4] == ["--device", "/dev/kfd", "--device", "/dev/dri"]
    assert "type=bind,source=/opt/x,target=/opt/x,readonly" in words
    assert words[words.index("--network") + 1] == "none" and words[words.index("--pull") + 1] == "never"
    stop_container(found, docker.run)
    assert docker.calls[-1] == ["/usr/bin/docker", "rm", "--force", found.container]


def test_a_container_is_restricted_to_the_chips_that_are_planned_for():
    search = Search(image="x:1", stack="rocm", devices=("/dev/kfd",), visible={"HIP_VISIBLE_DEVICES": "1"})
    words = words_of(search, Docker())
    assert words[words.index("HIP_VISIBLE_DEVICES=1") - 1] == "--env"
    nvidia = Search(
        stack="cuda", devices=("nvidia.com/gpu=1", "nvidia.com/gpu=2"), visible={"CUDA_VISIBLE_DEVICES": "1,2"}
    )
    words = container_words("docker", "name", "x:1", nvidia, True)
    assert words[words.index("--gpus") + 1] == '"device=1,2"'
    assert not any("VISIBLE" in word for word in words)
    words = container_words("docker", "name", "x:1", nvidia, False)
    assert words[words.index("--device") :][:4] == ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=2"]


def test_the_image_of_a_quadlet_and_the_users_own(tmp_path):
    quadlet = tmp_path / "etc/containers/systemd/vllm@chat.container"
    quadlet.parent.mkdir(parents=True)
    quadlet.write_text("[Container]\nContainerName=vllm-chat\nImage=docker.io/vllm/vllm-openai:v1\n")
    environment(tmp_path, "opt/vllm/a")
    assert "docker.io/vllm/vllm-openai:v2" in words_of(
        Search(image="docker.io/vllm/vllm-openai:v2", root=str(tmp_path)), Docker()
    )
    (tmp_path / "opt/vllm/a/bin/python").unlink()
    assert "docker.io/vllm/vllm-openai:v1" in words_of(Search(root=str(tmp_path)), Docker())


def test_ascends_libraries_are_set_up_by_a_shell():
    words = words_of(Search(image="quay.io/ascend/vllm-ascend:v1", stack="cann"), Docker())
    assert words[-4:-1] == ["bash", "quay.io/ascend/vllm-ascend:v1", "-c"]
    assert words[-1].endswith('exec python3 - "$0"')


def test_an_engine_that_does_not_answer_or_has_no_devices(tmp_path):
    with pytest.raises(NoPythonError, match="the burn-in cannot run in a container: docker is installed but does not"):
        words_of(Search(image="a"), Docker(version=""))
    with pytest.raises(NoPythonError, match=r"docker cannot give nvidia.com/gpu to a container"):
        words_of(Search(image="a", stack="cuda", devices=("nvidia.com/gpu=all",)), Docker())
