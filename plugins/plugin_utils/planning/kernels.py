# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM compiles at its first start in a virtual environment, and what the host needs for it.

Triton compiles a part of its launcher with a C compiler and Python's headers. FlashInfer compiles kernels with ninja,
nvcc and a C++ compiler, unless they come prebuilt (flashinfer-jit-cache). Images of vendors have all of it.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ...module_utils.vllm.compilers import CC, CXX, HEADERS

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Kernels of vLLM's sampler, the only ones of FlashInfer that a chip before Blackwell needs.
SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
# vLLM 0.20 to 0.33 ask this address at each start whether it could download kernels (flashinfer-cubin) that only
# Blackwell runs. Where a firewall drops packets, the start waits for the name and then 5 s for each address. Nothing
# listens on port 9, so the question has its answer at once.
REPOSITORY = {"FLASHINFER_CUBINS_REPOSITORY": "http://127.0.0.1:9/"}
# The variables that a compilation reads.
COMPILATION = ("PATH", "CUDA_HOME", "LIBRARY_PATH")
_PIN = re.compile(r"^([a-z0-9-]+)==([^\s;\\]+)", re.MULTILINE)

_NINJA = "use a lock with ninja and set PATH of the instance so that the environment's bin comes first"
_NVCC = "use a lock with nvidia-cuda-nvcc, or set CUDA_HOME of the instance to a CUDA with bin/nvcc"
_OFF = 'or set env VLLM_USE_FLASHINFER_SAMPLER: "0"'
_AGAIN = "a run of site.yml installs it"
# Failed compilations in the journal, for all recipes. The role installs what is missing, so these appear only if it was
# removed later, or if the site has its own environment.
_FAILURES = {
    "directory: 'ninja'": f"FlashInfer must compile kernels and finds no ninja; {_NINJA}, {_OFF}.",
    "nvcc: not found": f"FlashInfer must compile kernels and finds no nvcc; {_NVCC}, {_OFF}.",
    "could not find nvcc": f"FlashInfer must compile kernels and finds no nvcc; {_NVCC}, {_OFF}.",
    "Python.h: No such file": f"Triton needs the headers of the environment's Python (python3.X-dev); {_AGAIN}.",
    "failed to find C compiler": f"Triton finds no C compiler (gcc); {_AGAIN}.",
    " cc: not found": f"A kernel must be compiled, and there is no C compiler (gcc); {_AGAIN}.",
    "c++: not found": f"FlashInfer finds no C++ compiler (g++, gcc-c++); {_AGAIN}.",
    "toolkit headers are incompatible": (
        "nvcc and CUDA's headers have different versions; use a lock in which nvidia-cuda-nvcc, -crt and -cccl "
        "have the version of nvidia-cuda-runtime."
    ),
    "cannot find -lcuda": (
        "The linker finds no libcudart.so or libcuda.so; run site.yml again, which makes these links in the "
        "environment, or set LIBRARY_PATH of the instance to their directories."
    ),
}
ISSUES = tuple({"symptom": symptom, "advice": advice} for symptom, advice in _FAILURES.items())


@dataclass(frozen=True)
class Kernels:
    """Variables for the compilation, with the reason for them, and whether FlashInfer compiles."""

    env: Mapping[str, str] = field(default_factory=dict)
    because: str = ""
    flashinfer: bool = False


def plan_kernels(stack: Mapping[str, Any], name: str, generation: str, venv_path: str) -> Kernels:
    """Return the settings for kernels in an environment with a lock, on a stack by its name (cuda, rocm).

    Prebuilt kernels are used if the lock has them, else the compiler of the lock, else FlashInfer's sampler is off.
    """
    if name not in ("cuda", "rocm"):
        return Kernels()
    pins = dict(_PIN.findall(stack.get("requirements_text") or ""))
    path = {"PATH": f"{venv_path}/bin:{SYSTEM_PATH}"}
    if name != "cuda" or "flashinfer-python" not in pins:
        return Kernels(path, "programs of the environment first")
    if "flashinfer-cubin" not in pins and not generation.startswith("blackwell"):
        path |= REPOSITORY
    if "flashinfer-jit-cache" in pins:
        return Kernels(path, "programs of the environment first; the lock has FlashInfer's kernels prebuilt")
    version, major = stack.get("interpreter_version"), pins.get("nvidia-cuda-nvcc", "").partition(".")[0]
    if "ninja" in pins and version and major.isascii() and major.isdigit() and int(major) >= 13:
        home = f"{venv_path}/lib/python{version}/site-packages/nvidia/cu{major}"
        env = {**path, "CUDA_HOME": home, "LIBRARY_PATH": f"{home}/lib"}
        return Kernels(env, "FlashInfer compiles its kernels with the ninja and the nvcc of the lock", flashinfer=True)
    return Kernels({**path, SAMPLER: "0"}, "the lock has neither prebuilt kernels of FlashInfer nor ninja and nvcc")


def compiles(kernels: Kernels, env: Mapping[str, str], generation: str) -> list[str]:
    """Return what the host must have for an instance with a whole environment ``env``: a C compiler, headers, C++."""
    if not kernels.env:
        return []
    # On Blackwell FlashInfer also has attention and experts.
    avoided = _is_off(env) and not generation.startswith("blackwell")
    return [CC, HEADERS, *([CXX] if kernels.flashinfer and not avoided else [])]


def compiles_sampler(compilers: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether FlashInfer compiles its sampler for an instance that needs these compilers."""
    return CXX in compilers and not _is_off(env)


def _is_off(env: Mapping[str, str]) -> bool:
    """Return whether a whole environment switches FlashInfer's sampler off."""
    return str(env.get(SAMPLER, "1")) in ("0", "False", "false")
