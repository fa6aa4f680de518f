# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.engine_memory import Engine
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator


def chip(capability, stack="cuda", generation=""):
    return Accelerator("chip", stack, generation, "", 8, compute_capability=capability)


@pytest.mark.parametrize(
    ("release", "args", "share"),
    [
        ("0.17.1", {}, 0.9),
        ("0.20.2", {}, 0.92),
        ("", {}, 0.92),
        ("0.33.0", {"gpu-memory-utilization": 0.5}, 0.5),
        ("0.33.0", {"gpu-memory-utilization": "0.5"}, 0.5),
        ("0.17.1", {"gpu-memory-utilization": "half"}, 0.9),
        ("0.33.0", {"gpu-memory-utilization": [1]}, 0.92),
    ],
)
def test_the_share_of_the_memory(release, args, share):
    assert Engine(release).share(args) == share


@pytest.mark.parametrize(
    ("release", "flashinfer", "stack", "size"),
    [
        ("0.11.0", True, "cuda", 14),
        ("0.11.0", False, "cuda", 38),
        ("0.11.0", True, "rocm", 38),
        ("0.13.0", True, "cuda", 38),
        ("0.17.1", False, "cuda", 14),
        ("", False, "cann", 14),
    ],
)
def test_the_bytes_of_a_logit(release, flashinfer, stack, size):
    assert Engine(release, flashinfer).logit_bytes(stack) == size


@pytest.mark.parametrize(
    ("release", "accelerator", "args", "tensor", "growth"),
    [
        # gpt-oss has 2880 for both.
        ("0.33.0", chip("9.0"), {}, 1, 1),
        ("0.13.0", chip("9.0"), {}, 1, 1.063),
        ("0.11.0", chip("9.0"), {}, 1, 3072 * 2944 / 2880**2),
        ("0.33.0", chip("9.0"), {"moe-backend": "marlin"}, 1, 3072 * 2944 / 2880**2),
        ("0.33.0", chip("9.0"), {"kernel-config": {"moe_backend": "MARLIN"}}, 1, 3072 * 2944 / 2880**2),
        ("0.33.0", chip("9.0"), {"enable-lora": True}, 1, 3072 * 2944 / 2880**2),
        ("0.33.0", chip("8.0"), {}, 4, 3072 * 768 / (2880 * 720)),
        ("0.33.0", chip("12.0"), {}, 1, 3072 * 2944 / 2880**2),
        ("0.25.1", chip("10.0"), {}, 1, 3072 * 3072 / 2880**2),
        ("0.33.0", chip("10.3"), {}, 1, 3072 * 2944 / 2880**2),
        ("0.33.0", chip(None, generation="hopper"), {}, 8, 384 / 360),
        ("0.33.0", chip(None, "rocm"), {}, 1, 3072 * 3072 / 2880**2),
        ("0.33.0", chip(None, "cann"), {}, 1, 1),
    ],
)
def test_kernels_round_the_sizes_of_experts(release, accelerator, args, tensor, growth):
    assert Engine(release).padding(2880, 2880, tensor, accelerator, args) == pytest.approx(growth)


def test_sizes_that_are_multiples_or_unknown_are_not_padded():
    assert Engine().padding(3072, 3072, 1, chip("8.0"), {}) == 1
    assert Engine().padding(0, 3072, 1, chip("8.0"), {}) == 1
