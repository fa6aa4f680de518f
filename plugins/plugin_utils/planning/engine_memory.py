# SPDX-License-Identifier: GPL-3.0-or-later
"""What a release of vLLM does with the memory of a chip besides weights and cache, read from its sources."""

from dataclasses import dataclass
from typing import Any, Mapping

from ...module_utils.common.versions import at_least
from .conditions import argument
from .hardware import Accelerator

# gpu-memory-utilization where it is not set: vllm/config/cache.py of 0.10.2 to 0.17.1, and of 0.20.2 and later.
SHARE, NEWER_SHARE, NEWER_SHARE_SINCE = 0.9, 0.92, "0.20"
# Bytes of a logit at the peak that vLLM measures. vllm/v1/sample/ops/topk_topp_sampler.py sorts all logits up to 0.13.0
# where FlashInfer's sampler does not run: 7.38 GiB for 1024 x 201,088 of them on one H100 (llm-d-benchmark). With
# FlashInfer, and with the kernel of 0.17.1 and later, 2.7 GiB (a start log of 0.25.1 on one H200).
LOGIT_BYTES, SORTED_LOGIT_BYTES, SORTED_BEFORE = 14, 38, "0.17"
# Until then FlashInfer's sampler ran wherever FlashInfer was installed; 0.13.0 needs VLLM_USE_FLASHINFER_SAMPLER.
FLASHINFER_BEFORE = "0.11.1"
# Since then the room for the cache is what graphs leave of it (vllm/v1/worker/gpu_worker.py of 0.20.2).
GRAPHS_SINCE = "0.20"
# Since then a window also holds the tokens of every step that runs at the same time (max_in_flight_tokens of
# vllm/config/vllm.py, there in 0.30.0, not in 0.25.1): one for each stage of a pipeline, and one more where scheduling
# overlaps with the chips.
IN_FLIGHT_SINCE = "0.28"

# The multiples to which kernels round the hidden size and the width of experts in MXFP4: create_weights of
# vllm/model_executor/layers/quantization/mxfp4.py up to 0.17.1, mxfp4_round_up_hidden_size_and_intermediate_size of
# vllm/model_executor/layers/fused_moe/oracle/mxfp4.py since 0.20.2.
_MULTIPLES = {"marlin": (256, 128), "flashinfer": (256, 256), "rocm": (256, 256), "triton": (1, 64)}
# FlashInfer's since 0.30.0.
_NEWER_FLASHINFER, _NEWER_FLASHINFER_SINCE = (256, 128), "0.30"
# Hopper has Triton's kernels where vLLM's wheel brings them (pull request 27370 of vllm-project/vllm), Marlin before.
_TRITON_SINCE = "0.11.1"
# Triton 3.5 made 64.38 GiB of the 60.8 of gpt-oss-120b and 13.47 of the 12.8 of gpt-oss-20b (llm-d-benchmark, issue
# 33155 of vllm-project/vllm); 0.25.1 and 0.33.0 13.02 (tests/gpu/results).
_TRITON_GROWTH, _TRITON_GROWTH_BEFORE = 1.063, "0.17"
# The compute capability of a generation, for chips whose own is unknown.
_CAPABILITIES = {"hopper": "9.0", "blackwell": "10.0"}


@dataclass(frozen=True)
class Engine:
    """A release of vLLM, empty for the newest, and whether FlashInfer is installed beside it."""

    release: str = ""
    flashinfer: bool = True

    def since(self, release: str) -> bool:
        """Return whether this is not older than a release."""
        return not self.release or at_least(self.release, release)

    def share(self, args: Mapping[str, Any]) -> float:
        """Return the share of each chip's memory that an instance uses."""
        own = NEWER_SHARE if self.since(NEWER_SHARE_SINCE) else SHARE
        try:
            return float(args.get("gpu-memory-utilization", own))
        except (TypeError, ValueError):
            return own

    def steps(self, stages: int, args: Mapping[str, Any]) -> int:
        """Return the steps whose tokens a sliding window holds, of a pipeline with so many stages."""
        if not self.since(IN_FLIGHT_SINCE):
            return 1
        return stages if args.get("async-scheduling") is False or args.get("no-async-scheduling") else stages + 1

    def logit_bytes(self, stack: str) -> int:
        """Return the bytes of a logit at the sampler's peak."""
        sampler = self.flashinfer and stack == "cuda" and not self.since(FLASHINFER_BEFORE)
        return LOGIT_BYTES if sampler or self.since(SORTED_BEFORE) else SORTED_LOGIT_BYTES

    def padding(self, hidden: int, width: int, tensor: int, accelerator: Accelerator, args: Mapping[str, Any]) -> float:
        """Return how much larger than their files the experts in MXFP4 are on a chip, 1 where they are not padded.

        ``width`` is that of a whole expert, ``tensor`` the number of chips that share it.
        """
        kernel = self._kernel(accelerator, args)
        if not (hidden and width and kernel):
            return 1
        if kernel == "triton" and not self.since(_TRITON_GROWTH_BEFORE):
            return _TRITON_GROWTH
        rows, columns = _MULTIPLES[kernel]
        if kernel == "flashinfer" and self.since(_NEWER_FLASHINFER_SINCE):
            rows, columns = _NEWER_FLASHINFER
        return _rounded(hidden, rows) / hidden * _rounded(-(-width // tensor), columns) * tensor / width

    def _kernel(self, accelerator: Accelerator, args: Mapping[str, Any]) -> str:
        """Return the kind of kernel that vLLM chooses for experts in MXFP4, empty on a stack without."""
        if accelerator.stack != "cuda":
            return "rocm" if accelerator.stack == "rocm" else ""
        _there, backend = argument("moe-backend", args)
        if backend in ("marlin", "triton"):
            return str(backend)
        major = _major(accelerator)
        if args.get("enable-lora") or major not in ("9", "10"):
            return "marlin"
        if major == "10":
            return "flashinfer"
        return "triton" if self.since(_TRITON_SINCE) else "marlin"


NEWEST = Engine()


def packs_sparse(accelerator: Accelerator) -> bool:
    """Return whether vLLM keeps an FP8 cache of DeepSeek's sparse attention in DeepSeek's own format."""
    return accelerator.stack == "cuda" and _major(accelerator) in ("9", "12")


def _major(accelerator: Accelerator) -> str:
    capability = accelerator.compute_capability or _CAPABILITIES.get(accelerator.generation, "")
    return capability.partition(".")[0]


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
