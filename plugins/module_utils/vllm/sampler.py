# SPDX-License-Identifier: GPL-3.0-or-later
"""FlashInfer's sampler, compiled once for an environment in place of once at the first start of each instance.

FlashInfer loads data/aot/NAME/NAME.so of its own package, if it is there, before it looks into its cache or compiles.
"""

from __future__ import annotations

from typing import Mapping

NAME = "sampling"
# Below site-packages/flashinfer.
PLACE = ("data", "aot", NAME)
LIBRARY = f"{NAME}.so"
# Beside the library: the compute capability that it was compiled for. FlashInfer does not read it.
MARK = "compute_capability"
# Loads what it has compiled, so a broken library is found before a start.
PROGRAM = """
from flashinfer.jit.sampling import gen_sampling_module
spec = gen_sampling_module()
spec.build_and_load()
print(spec.jit_library_path)
"""
_LINES = 3  # of the compiler's words in a message


def variables(given: Mapping[str, str], capability: str, work: str) -> dict[str, str]:
    """Return the variables to compile with, for a compute capability like 9.0, in the directory ``work``.

    FlashInfer itself adds the letter of an architecture (9.0a). No chip is asked: running instances may fill them all.
    """
    return {
        **given,
        "HOME": work,
        "FLASHINFER_WORKSPACE_BASE": work,
        "FLASHINFER_CUDA_ARCH_LIST": capability,
        "CUDA_VISIBLE_DEVICES": "",
    }


def is_current(library: bool, mark: str | None, capability: str) -> bool:
    """Return whether the library can stay; one without a mark came with a package."""
    return library and (mark is None or mark.strip() == capability)


def describe_failure(environment: str, output: str) -> str:
    """Return the sentence for a compilation that failed, with the last lines that it wrote."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = " / ".join(lines[-_LINES:]) or "it said nothing"
    return (
        f"{environment}: FlashInfer's sampler cannot be compiled: {said}; with vllm_compile_sampler: false the first "
        "start of each instance compiles it"
    )
