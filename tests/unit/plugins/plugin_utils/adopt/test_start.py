# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts vLLM, in words and images."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.forms import read_start
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import CommandError
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.start import (
    Start,
    check_image,
    finish,
    is_shell,
    repository_of,
    served_words,
    stack_of,
)


@pytest.mark.parametrize(
    ("image", "stack", "version"),
    [
        ("vllm/vllm-openai:v0.11.0", "cuda", "0.11.0"),
        ("docker.io/vllm/vllm-openai@sha256:0123", "cuda", ""),
        ("mirror.example:5000/vllm/vllm-openai-rocm:v0.33.0", "rocm", "0.33.0"),
        ("m.daocloud.io/quay.io/ascend/vllm-ascend:v0.18.0rc1-a3", "cann", "0.18.0"),
        ("rocm/vllm-dev:nightly", "rocm", ""),
        ("rocm/vllm:rocm7.0.0_vllm_0.11.1_20251103", "rocm", "0.11.1"),
        ("rocm/vllm:rocm6.4.1_vllm_0.10.1_20250909", "rocm", "0.10.1"),
        ("mirror.example:5000/rocm/vllm:rocm6.3.1_mi300_ubuntu22.04_py3.12_vllm_0.6.6", "rocm", "0.6.6"),
        ("nvcr.io/nvidia/vllm:25.09-py3", "cuda", ""),
        ("rocm/vllm-dev:rocm7.0_navi_0.10.1", "rocm", ""),
        ("intel/vllm:0.10.2-xpu", "xpu", "0.10.2"),
        # vLLM 0.27.1, by what LMCache's users report.
        ("lmcache/vllm-openai:v0.5.4", "cuda", ""),
        ("mirror.example:5000/lmcache/vllm-openai:latest-cu129", "cuda", ""),
        ("vllm/vllm-openai-cpu:latest-x86_64", "cpu", ""),
        ("nginx:1.27", "", ""),
        ("someone/not-vllm-openai:1.0", "", ""),
    ],
)
def test_an_image_has_a_stack_and_a_version(image, stack, version):
    start = Start("container", image=image)
    assert (stack_of(image), start.version) == (stack, version)
    assert ":" not in repository_of(image).rpartition("/")[2]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("", False),
        *(
            (name, False)
            for name in ("vllm/vllm-openai:v0.33.0", "mirror.example/x/vllm-openai", "vllm/vllm-openai-rocm")
        ),
        *((name, False) for name in ("quay.io/ascend/vllm-ascend:v0.30.0-a3", "vllm/vllm-openai-xpu:latest")),
        *((f"mirror.example:5000/{name}:1", True) for name in ("lmcache/vllm-openai", "rocm/vllm", "rocm/vllm-dev")),
        *((name, True) for name in ("nvcr.io/nvidia/vllm:25.11-py3", "intel/vllm:0.10.2-xpu", "opea/vllm:1.4")),
        *(
            (name, True)
            for name in ("drikster80/vllm-gh200-openai:v0.11.0", "llm-d/llm-d-cuda", "rhaiis/vllm-cuda-rhel9")
        ),
    ],
)
def test_an_image_that_others_build_is_derived(image, expected):
    assert Start("container", image=image).derived is expected


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m",
        "/opt/x/bin/vllm serve m",
        "python3 -m vllm.entrypoints.openai.api_server m",
        "uv run vllm serve m",
        "A=1 nohup vllm serve m",
    ],
)
def test_every_way_to_start_the_server_is_known(text):
    before, behind = served_words(text.split())
    assert behind == ["m"] and "serve" not in before


@pytest.mark.parametrize("text", ["vllm bench serve m", "vllm chat", "echo vllm", "python -m http.server 80"])
def test_other_commands_start_none(text):
    assert served_words(text.split()) is None


@pytest.mark.parametrize(
    ("image", "entrypoint", "command", "words"),
    [
        ("vllm/vllm-openai:latest", None, ["--model", "m"], ["--model", "m"]),
        ("vllm/vllm-openai:latest", None, ["serve", "m"], ["m"]),
        ("vllm/vllm-openai:latest", ["vllm", "serve"], ["m"], ["m"]),
        (
            "vllm/vllm-openai:latest",
            ["bash"],
            ["-c", "export A=1; cd /x && exec vllm serve m --seed 1"],
            ["m", "--seed", "1"],
        ),
        ("any", None, ["sh", "-lc", "A=1 vllm serve $M"], ["\ue002M"]),
        ("quay.io/ascend/vllm-ascend:v1", None, ["--model", "m"], []),
        ("vllm/vllm-openai:latest", None, ["bash"], []),
    ],
)
def test_the_command_of_a_container_is_found(image, entrypoint, command, words):
    start = Start("container", image=image, entrypoint=entrypoint)
    assert finish(start, command, {}) == bool(words)
    assert start.words == words and start.env == ({"A": "1"} if "A=1" in str(command) else {})


def test_a_shell_is_where_somebody_types():
    assert is_shell([]) and is_shell(["/bin/bash"]) and not is_shell(["--model"])


def test_an_image_of_something_else_is_named():
    with pytest.raises(CommandError, match="found 'nginx:1', expected one of vLLM"):
        check_image(Start("container", image="nginx:1"))
    check_image(Start("container", image="nginx:1", words=["m"]))


@pytest.mark.parametrize("image", ["vault.habana.ai/gaudi/vllm:1.22", "vllm/vllm-tpu", "public.ecr.aws/neuron/x:1"])
def test_an_image_for_other_hardware_is_refused(image):
    with pytest.raises(CommandError, match="for hardware that the collection does not serve"):
        check_image(Start("container", image=image, words=["m"]))


@pytest.mark.parametrize("image", ["S3cret", "host/u:s3cret@x/vllm", "s3cret"])
def test_a_word_that_is_no_image_is_not_shown(image):
    with pytest.raises(CommandError, match="the image: found a word that no image is called") as caught:
        check_image(Start("container", image=image, words=["m"]))
    assert image not in str(caught.value)


def test_only_the_name_of_an_image_counts():
    for image in (
        "vllm/vllm-openai:nightly-${SHA}",
        "vllm/vllm-openai:<tag>",
        "docker://r:5000/vllm/vllm-openai@sha256:0a",
    ):
        assert read_start(f"docker run {image} --model o/m").stack == "cuda"
    with pytest.raises(CommandError, match="found \\$IMAGE, which only a shell"):
        read_start("docker run $IMAGE --model o/m")
