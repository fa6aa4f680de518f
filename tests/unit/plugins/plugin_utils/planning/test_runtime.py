# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.runtime import (
    choose_runtime,
    choose_stack,
    container_of,
    devices_of,
    image_of,
    launch_of,
    venv_of,
    visible_env,
)

H200 = Accelerator(
    "h200", "cuda", "hopper", "nvidia", 8, devices=("nvidia.com/gpu=all",), visible_env="CUDA_VISIBLE_DEVICES"
)
MI300X = Accelerator(
    "mi300x",
    "rocm",
    "gfx942",
    "amd",
    8,
    devices=("/dev/kfd", "/dev/dri"),
    groups=("render", "video"),
    visible_env="HIP_VISIBLE_DEVICES",
)
A3 = Accelerator(
    "ascend_a3",
    "cann",
    "ascend_a3",
    "ascend",
    4,
    devices=("/dev/davinci{index}", "/dev/davinci_manager"),
    groups=("HwHiAiUser",),
    visible_env="ASCEND_RT_VISIBLE_DEVICES",
)
CPU = Accelerator("cpu", "cpu", "cpu", "cpu", 1)
# Beside a GPU of another model at a lower address.
MIXED = replace(H200, count=2, numbers=(1, 2))
DIGEST = "sha256:" + "a" * 64


def test_a_stack_that_the_release_does_not_serve():
    release = {"stacks": {"cuda": {"runtime": "container"}, "cpu": {}}}
    assert choose_stack(release, "1.0", H200) == {"runtime": "container"}
    with pytest.raises(PlanError) as caught:
        choose_stack(release, "1.0", MI300X)
    assert str(caught.value) == (
        "vllm_release '1.0' does not support stack 'rocm' (accelerator 'mi300x'); it supports: cpu, cuda; "
        "set vllm_release: '0.33.0' for these hosts, or leave it out"
    )


@pytest.mark.parametrize(
    ("stack", "requested", "image", "runtime"),
    [
        ({"runtime": "container", "image": "x"}, "", "", "container"),
        ({"runtime": "container", "images": {"h200": "x"}}, "", "", "container"),
        ({"runtime": "venv", "requirements": "x"}, "", "", "venv"),
        ({"runtime": "container", "image": "x", "requirements": "x"}, "venv", "", "venv"),
        ({"runtime": "venv", "requirements": "x"}, "container", "site/image:1", "container"),
    ],
)
def test_the_runtime_is_the_requested_one_or_the_release_s(stack, requested, image, runtime):
    assert choose_runtime(stack, requested, image, "1.0", "vllm_instances.chat") == runtime


@pytest.mark.parametrize(
    ("stack", "requested", "message"),
    [
        (
            {"runtime": "container", "image": "x"},
            "venv",
            "release '1.0' has no lock of wheels for this stack, so the host cannot have a virtual "
            "environment; use the "
            "runtime "
            "'container', or name a lock (requirements) in a release of your own",
        ),
        (
            {"runtime": "venv", "requirements": "x"},
            "container",
            "release '1.0' names no image for this stack; use the runtime 'venv', or set vllm_image",
        ),
    ],
)
def test_a_runtime_that_the_release_lacks(stack, requested, message):
    with pytest.raises(PlanError) as caught:
        choose_runtime(stack, requested, "", "1.0", "vllm_instances.chat")
    assert str(caught.value) == f"vllm_instances.chat.runtime: {message}"


@pytest.mark.parametrize(
    ("stack", "override", "registry", "image"),
    [
        ({"image": "vllm/vllm-openai:v1"}, "", "", "vllm/vllm-openai:v1"),
        ({"image": "vllm/vllm-openai:v1"}, "site/own:2", "mirror:5000", "site/own:2"),
        ({"image": "vllm/vllm-openai:v1"}, "", "mirror:5000", "mirror:5000/vllm/vllm-openai:v1"),
        ({"image": "vllm/vllm-openai:v1"}, "", "mirror:5000/cache/", "mirror:5000/cache/vllm/vllm-openai:v1"),
        ({"image": "quay.io/ascend/x:v1"}, "", "mirror:5000", "mirror:5000/ascend/x:v1"),
        ({"image": "localhost/x:v1"}, "", "mirror:5000", "mirror:5000/x:v1"),
        ({"image": "registry:5000/x:v1"}, "", "mirror", "mirror/x:v1"),
        ({"image": "vllm:v1"}, "", "mirror", "mirror/vllm:v1"),
        ({"image": "a/b:1", "digest": DIGEST}, "", "", f"a/b:1@{DIGEST}"),
        ({"image": "a/b:1", "digest": DIGEST}, "", "mirror:5000", f"mirror:5000/a/b:1@{DIGEST}"),
        ({"image": f"a/b@{DIGEST}", "digest": "sha256:other"}, "", "", f"a/b@{DIGEST}"),
        ({"image": "a/b:1", "digest": DIGEST}, "site/own:2", "", "site/own:2"),
        ({"image": "a/b:1", "images": {"hopper": "a/hopper:1"}}, "", "", "a/hopper:1"),
        ({"image": "a/b:1", "images": {"hopper": "a/hopper:1", "h200": "a/h200:1"}}, "", "", "a/h200:1"),
        ({"image": "a/b:1", "images": {"blackwell": "a/blackwell:1"}}, "", "", "a/b:1"),
        ({"image": {"hopper": "a/hopper:1", "default": "a/b:1"}}, "", "", "a/hopper:1"),
        # A digest is of one image only.
        ({"image": "a/b:1", "digest": DIGEST, "images": {"hopper": "a/hopper:1"}}, "", "", "a/hopper:1"),
    ],
)
def test_the_reference_of_an_image(stack, override, registry, image):
    assert image_of(stack, H200, override, registry) == image


def test_a_release_without_an_image_for_this_chip():
    with pytest.raises(PlanError) as caught:
        image_of({"images": {"ascend_a2": "x", "ascend_310p": "y"}}, A3, "", "")
    assert str(caught.value) == (
        "vllm_release: the release names no image for ascend_a3; it has ascend_310p, ascend_a2; set vllm_image"
    )


@pytest.mark.parametrize(
    ("accelerator", "chips", "runtime", "env", "expected"),
    [
        (H200, (2, 3), "venv", {}, {"CUDA_VISIBLE_DEVICES": "2,3"}),
        # The container gets only its own, numbered from 0.
        (H200, (2, 3), "container", {}, {}),
        (MI300X, (2, 3), "container", {}, {"HIP_VISIBLE_DEVICES": "2,3"}),
        (MI300X, (2, 3), "venv", {}, {"HIP_VISIBLE_DEVICES": "2,3"}),
        (A3, (0, 1), "container", {}, {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}),
        (MI300X, tuple(range(8)), "container", {}, {}),
        (MIXED, (0, 1), "venv", {}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,2"}),
        (MIXED, (1,), "venv", {}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2"}),
        (MIXED, (0, 1), "container", {}, {}),
        # Graphics of the processor come after the card.
        (replace(MI300X, count=1, numbers=(0,)), (0,), "container", {}, {"HIP_VISIBLE_DEVICES": "0"}),
        # Each part has a number: those of the first chip, another GPU, those of the second chip.
        (
            replace(MI300X, count=16, partition="CPX/NPS4", numbers=(0, 2)),
            (7, 8),
            "venv",
            {},
            {"HIP_VISIBLE_DEVICES": "7,9"},
        ),
        (MI300X, (0,), "container", {"HIP_VISIBLE_DEVICES": "7"}, {}),
        (CPU, (), "venv", {}, {}),
    ],
)
def test_the_variable_that_keeps_an_instance_to_its_chips(accelerator, chips, runtime, env, expected):
    assert visible_env(accelerator, chips, runtime, env) == expected


@pytest.mark.parametrize(
    ("accelerator", "chips", "devices"),
    [
        (H200, (2, 3), ["nvidia.com/gpu=2", "nvidia.com/gpu=3"]),
        (H200, tuple(range(8)), ["nvidia.com/gpu=all"]),
        # By chip and instance, as NVIDIA's container toolkit names them.
        (replace(H200, count=56, partition="7x1g.18gb"), (8,), ["nvidia.com/gpu=1:1"]),
        (replace(H200, count=1, partition="1x7g.141gb"), (0,), ["nvidia.com/gpu=0:0"]),
        (MIXED, (0, 1), ["nvidia.com/gpu=1", "nvidia.com/gpu=2"]),
        (MIXED, (1,), ["nvidia.com/gpu=2"]),
        (replace(H200, count=1, numbers=(0,)), (0,), ["nvidia.com/gpu=0"]),
        (replace(MIXED, count=14, partition="7x1g.18gb"), (8,), ["nvidia.com/gpu=2:1"]),
        (MI300X, (2, 3), ["/dev/kfd", "/dev/dri"]),
        (A3, (0, 1), [*(f"/dev/davinci{index}" for index in range(4)), "/dev/davinci_manager"]),
        (CPU, (), []),
    ],
)
def test_devices_by_vendor(accelerator, chips, devices):
    assert devices_of(accelerator, chips) == devices


@pytest.mark.parametrize(
    ("accelerator", "entrypoint", "command", "user"),
    [
        (H200, "image", [], "vllm"),
        (H200, None, [], "vllm"),
        (MI300X, ["vllm", "serve"], ["vllm", "serve"], "vllm"),
        (
            A3,
            ["/bin/bash", "-lc", 'exec vllm serve "$@"', "vllm"],
            ["/bin/bash", "-lc", 'exec vllm serve "$@"', "vllm"],
            "root",
        ),
    ],
)
def test_what_the_engine_is_told(accelerator, entrypoint, command, user):
    stack = {} if entrypoint is None else {"entrypoint": entrypoint}
    container = container_of(stack, accelerator, "a/b:1", ["/dev/x"], ["/a:/a:ro"], "16g")
    assert container == {
        "image": "a/b:1",
        "command": command,
        "user": user,
        "shm_size": "16g",
        "devices": ["/dev/x"],
        "groups": list(accelerator.groups),
        "mounts": ["/a:/a:ro"],
        "memlock": True,
    }
    assert launch_of(None, container) == command


def test_a_venv_is_named_after_its_lock():
    stack = {
        "requirements": "/x/lock.txt",
        "requirements_sha256": "ab" * 32,
        "venv_size_gib": 1.5,
        "interpreter": "/p3",
    }
    venv = venv_of({"vllm": "1.0"}, stack, CPU, "/opt/vllm")
    assert venv == {
        "name": "1.0-cpu",
        "path": "/opt/vllm/1.0-cpu-abababababab",
        "requirements": "/x/lock.txt",
        "locks": ["/x/lock.txt"],
        "python": "/p3",
        "size_bytes": 3 * 512 * 1024**2,
    }
    assert launch_of(venv, None) == ["/opt/vllm/1.0-cpu-abababababab/bin/vllm", "serve"]
