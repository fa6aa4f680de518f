# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.unit import advice
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_release
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.kernels import (
    ISSUES,
    SAMPLER,
    Kernels,
    compiles,
    plan_kernels,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.locks import choose_lock

VENV = "/opt/vllm/1.0-cuda-abc"
PATH = f"{VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOME = f"{VENV}/lib/python3.12/site-packages/nvidia/cu13"
COMPILER = ("flashinfer-python==0.7", "ninja==1.13", "nvidia-cuda-nvcc==13.0.88", "flashinfer-cubin==0.7")


def planned(*pins, stack="cuda", version="3.12", generation="hopper"):
    text = "".join(f"{pin} \\\n    --hash=sha256:{'0' * 64}\n" for pin in pins)
    return plan_kernels({"requirements_text": text, "interpreter_version": version}, stack, generation, VENV)


def test_the_compiler_of_the_lock_is_used():
    found = planned(*COMPILER)
    assert found.env == {"PATH": PATH, "CUDA_HOME": HOME, "LIBRARY_PATH": f"{HOME}/lib"}
    assert found.flashinfer


def test_prebuilt_kernels_go_before_the_compiler():
    found = planned(*COMPILER, "flashinfer-jit-cache==0.7")
    assert (found.env, found.flashinfer) == ({"PATH": PATH}, False)


@pytest.mark.parametrize("missing", COMPILER[1:3])
def test_without_a_compiler_the_sampler_of_flashinfer_is_off(missing):
    found = planned(*(pin for pin in COMPILER if pin != missing))
    assert (found.env, found.flashinfer) == ({"PATH": PATH, SAMPLER: "0"}, False)


@pytest.mark.parametrize("changes", [{"version": ""}, {"version": None}])
def test_where_the_headers_lie_must_be_known(changes):
    assert planned(*COMPILER, **changes).env[SAMPLER] == "0"


def test_a_compiler_of_cuda_12_lies_elsewhere():
    assert planned(*COMPILER[:2], "nvidia-cuda-nvcc==12.9.1", COMPILER[3]).env[SAMPLER] == "0"


@pytest.mark.parametrize(("stack", "pins", "env"), [
    ("rocm", COMPILER, {"PATH": PATH}),
    ("cuda", ("vllm==1.0",), {"PATH": PATH}),
    ("cpu", COMPILER, {}),
    ("cann", COMPILER, {}),
])  # fmt: skip
def test_other_environments(stack, pins, env):
    found = planned(*pins, stack=stack)
    assert (found.env, found.flashinfer) == (env, False)


@pytest.mark.parametrize(("pins", "generation", "asks"), [
    (COMPILER, "hopper", True),
    (COMPILER[:3], "hopper", False),
    (COMPILER[:1], "ampere", False),
    ((*COMPILER[:1], "flashinfer-jit-cache==0.7"), "ada", False),
    (COMPILER[:3], "blackwell", True),
    (COMPILER[:3], "blackwell_pro", True),
    (("vllm==1.0",), "hopper", True),
])  # fmt: skip
def test_a_chip_that_runs_no_downloaded_kernels_asks_for_none(pins, generation, asks):
    assert ("FLASHINFER_CUBINS_REPOSITORY" not in planned(*pins, generation=generation).env) == asks


@pytest.mark.parametrize(("kernels", "env", "generation", "tools"), [
    (Kernels(), {}, "hopper", []),
    (Kernels({"PATH": PATH}), {}, "cdna3", ["cc", "Python.h"]),
    (Kernels({"PATH": PATH}, flashinfer=True), {}, "hopper", ["cc", "Python.h", "c++"]),
    (Kernels({"PATH": PATH}, flashinfer=True), {SAMPLER: "0"}, "hopper", ["cc", "Python.h"]),
    (Kernels({"PATH": PATH}, flashinfer=True), {SAMPLER: "0"}, "blackwell", ["cc", "Python.h", "c++"]),
])  # fmt: skip
def test_what_the_host_must_have(kernels, env, generation, tools):
    assert compiles(kernels, env, generation) == tools


@pytest.mark.parametrize("name", ["0.25.1", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_locks_of_the_catalogue_compile(name, python):
    stack = choose_lock(load_release(name)["stacks"]["cuda"], python, None, name)
    found = plan_kernels(stack, "cuda", "hopper", VENV)
    assert found.flashinfer
    assert found.env["CUDA_HOME"] == f"{VENV}/lib/python{python}/site-packages/nvidia/cu13"
    assert ("FLASHINFER_CUBINS_REPOSITORY" in found.env) == (name != "0.25.1")


@pytest.mark.parametrize(("line", "word"), [
    ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "no ninja"),
    ("/bin/sh: 1: /opt/x/bin/nvcc: not found", "no nvcc"),
    ("RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist", "no nvcc"),
    ("/tmp/x/main.c:4:10: fatal error: Python.h: No such file or directory", "python3.X-dev"),
    ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable", "no C compiler"),
    ("/bin/sh: 1: c++: not found", "no C++ compiler"),
    ("/bin/sh: 1: cc: not found", "no C compiler"),
    ('error: #error "CUDA compiler and CUDA toolkit headers are incompatible, please check"', "different versions"),
    ("/usr/bin/ld: cannot find -lcudart: No such file or directory", "LIBRARY_PATH"),
    ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "LIBRARY_PATH"),
])  # fmt: skip
def test_failed_compilations_are_known(line, word):
    assert [word in text for text in advice([f"(EngineCore pid=7) {line}"], ISSUES)] == [True]
