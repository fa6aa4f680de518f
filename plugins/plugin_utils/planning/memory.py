# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of an instance from the shape of its model: weights, KV cache of one request, activations and graphs."""

from dataclasses import dataclass
from typing import Any, Mapping

from ..options.values import decoded, read_number
from .chips import GIB, read_tokens
from .divisions import size_of
from .engine_memory import GRAPHS_SINCE, NEWEST, Engine, packs_sparse
from .hardware import Accelerator
from .inputs import Manifest
from .kv_cache import Cache, cache_element, longest, request_bytes
from .model_shape import ModelShape, shape_of

# A shorter context than this is not chosen: the instance is refused instead.
SHORTEST = 4096

# What vLLM 0.25.1 reserved for gpt-oss-20b on one H200 (a start log): 3.1 GiB beside weights and cache, 2.7 GiB of them
# for logits, and 0.58 GiB for graphs.
# Bytes for each token of a step and number of the hidden size: 2.07 and 2.99 GiB for 20,000 and 29,000 tokens of
# Llama-3.1-8B (issue 10517 of vllm-project/vllm).
STEP_BYTES = 27
CONTEXT_GIB = 0.5
GRAPHS_GIB = 0.6
# Buffers of the collective operations between the chips of one model.
COLLECTIVES_GIB = 0.5

# Bytes of a parameter of an expert, with its share of the scales: plain weights, eight bits, four bits in blocks of 32.
# A model's experts have the first of them with which they are no larger than its files.
_ELEMENTS = (2.0, 1.0, 0.53125)
_FOUR_BITS = {"mxfp4": 0.53125, "nvfp4": 0.5625}

# By these methods vLLM quantizes plain weights while it loads them, layer by layer: all but the embeddings have half
# the size then (vllm/model_executor/layers/quantization/online). Older releases had all layers on the chip before.
_HALVING = ("fp8", "fp8_per_block", "fp8_per_channel", "fp8_per_tensor", "int8_per_channel_weight_only", "mxfp8")
_HALVED_SINCE = "0.17"

# max-num-batched-tokens and max-num-seqs of a server where they are not set: vLLM's own, by the chip's memory in GiB.
_BATCHES = ((160, 16384, 1024), (70, 8192, 1024), (0, 2048, 256))
# They have the memory of a larger class, and vLLM's batches of the smallest.
_SMALL_BATCHES = ("a100", "gb10")


@dataclass(frozen=True)
class Footprint:
    """Bytes on each chip of one instance; ``chips`` share a copy of the weights, ``tokens`` is the length that counts.

    With data parallelism and without experts there are several copies, each on ``chips`` of its own. With experts each
    of these copies has all other weights, and the experts are divided among all chips.
    """

    weights: float
    cache: float
    overhead: float
    chips: int
    tokens: int

    @property
    def total(self) -> float:
        """All bytes of one chip."""
        return self.weights + self.cache + self.overhead

    def describe(self) -> str:
        """Return the calculation in words."""
        words = f"{self.weights / GIB:.1f} GiB of weights"
        if self.cache:
            words += f", {self.cache / GIB:.1f} GiB of KV cache for one request of {self.tokens} tokens"
        return f"{words} and {self.overhead / GIB:.1f} GiB for activations and graphs on each chip"


@dataclass(frozen=True)
class Request:
    """What is to fit: a model with so many bytes of weights, under the arguments of an instance, on these chips.

    ``context`` is the length in tokens where the arguments name none, ``precision`` the manifest's number format.
    """

    shape: ModelShape
    weights_bytes: int
    args: Mapping[str, Any]
    accelerator: Accelerator
    context: int
    precision: str = ""
    engine: Engine = NEWEST

    def footprint(self, tokens: int | None = None) -> Footprint:
        """Return the memory of each chip for requests of a length in tokens, else of the length that is set."""
        tokens = self.tokens if tokens is None else tokens
        tensor, stages = size_of(self.args, "tensor-parallel-size"), size_of(self.args, "pipeline-parallel-size")
        # The experts of a model are divided among all of its data parallel engines too, whole or by their width.
        shared, apart = tensor, self.args.get("enable-expert-parallel")
        if self.shape.experts or apart:
            shared *= size_of(self.args, "data-parallel-size")
        chips = shared * stages
        seqs, batched = self._batches()
        element = cache_element(self.args, self.shape, "fp8" in dict(self.accelerator.lacks))
        contexts = size_of(self.args, "decode-context-parallel-size")
        packed = element == 1 and packs_sparse(self.accelerator)
        kept = Cache(element, batched * self.engine.steps(stages, self.args), contexts, packed)
        cache = request_bytes(self.shape, tokens, tensor, kept) / stages
        weights = (self.weights_bytes - self.expert_bytes) / (tensor * stages)
        experts = self.expert_bytes / chips * (1 + self._redundant() / max(1, self.shape.expert_count))
        if self.precision == "mxfp4":
            shared, width = 1 if apart else shared, self.shape.expert_width
            experts *= self.engine.padding(self.shape.hidden, width, shared, self.accelerator, self.args)
        weights = max(0, weights + experts - self._offloaded(weights + experts))
        overhead = self._overhead(seqs, batched, chips)
        if self.accelerator.generation == "ascend_310p":
            # vllm-ascend leaves as much for the workspace of its operators (_310p/worker_310p.py of 0.30.0rc2).
            overhead += cache
        return Footprint(weights, cache, overhead, chips, tokens)

    def _offloaded(self, weights: float) -> float:
        """Return the bytes of each chip's weights that are in the memory of the host (vllm/model_executor/offloader).

        UVAOffloader takes a size. PrefetchOffloader takes layers of each group, and has buffers on the chip for the
        next ones; which parameters offload-params means is not known here.
        """
        group, slots = size_of(self.args, "offload-group-size", 0), size_of(self.args, "offload-prefetch-step")
        if not group or self.args.get("offload-backend") == "uva":
            return (read_number(str(self.args.get("cpu-offload-gb", 0))) or 0) * GIB
        share = 0 if self.args.get("offload-params") else min(1, size_of(self.args, "offload-num-in-group") / group)
        layers = max(1, sum(part.count for part in self.shape.layers))
        embeddings = 2 * self.shape.vocabulary * self.shape.hidden * self.shape.element_bytes
        inside = max(0, weights - embeddings / size_of(self.args, "tensor-parallel-size"))
        return inside * max(0, share - slots / layers)

    def _redundant(self) -> int:
        """Return the copies of experts in each layer that balance the load of chips."""
        config = decoded(self.args.get("eplb-config")) if self.args.get("enable-eplb") else None
        return size_of(config, "num_redundant_experts", 0) if isinstance(config, Mapping) else 0

    @property
    def expert_bytes(self) -> float:
        """The bytes of all routed experts; 0 for a model without."""
        elements = (_FOUR_BITS[self.precision],) if self.precision in _FOUR_BITS else _ELEMENTS
        sizes = [self.shape.experts * element for element in elements]
        return next((size for size in sizes if size <= self.weights_bytes), self.weights_bytes)

    @property
    def tokens(self) -> int:
        """The length of the longest request: max-model-len, else the model's own; 0 where vLLM chooses."""
        return read_tokens(self.args.get("max-model-len", self.context))

    def room(self) -> float | None:
        """Return the bytes of each chip that vLLM may use, None where its memory is unknown."""
        if self.accelerator.memory_mib is None:
            return None
        return self.accelerator.memory_mib * 1024**2 * self.engine.share(self.args)

    def fits(self, tokens: int | None = None) -> bool:
        """Return whether the instance fits, also where the memory of the chips is unknown."""
        room = self.room()
        return room is None or self.footprint(tokens).total <= room

    def longest_context(self) -> int:
        """Return the longest context up to the model's own that fits, 0 where not even a short one does."""
        tokens = longest(self.fits, self.context)
        return tokens if tokens >= SHORTEST else 0

    def _batches(self) -> tuple[int, int]:
        """Return max-num-seqs and max-num-batched-tokens, vLLM's own where they are not set."""
        memory = (self.accelerator.memory_mib or 0) / 1024
        if any(name in _SMALL_BATCHES for name in self.accelerator.ids):
            memory = 0
        batched, seqs = next((batched, seqs) for least, batched, seqs in _BATCHES if memory >= least)
        if self.args.get("performance-mode") == "throughput":
            # It doubles what is not set.
            batched, seqs = 2 * batched, 2 * seqs
        return (
            size_of(self.args, "max-num-seqs", seqs),
            read_tokens(self.args.get("max-num-batched-tokens")) or batched,
        )

    def _overhead(self, seqs: int, batched: int, chips: int) -> float:
        """Return the bytes of a chip that are neither weights nor cache. The two peaks are not at the same time."""
        if self.accelerator.stack == "cpu":
            return 0
        logit = self.engine.logit_bytes(self.accelerator.stack)
        peak = max(seqs * self.shape.vocabulary * logit, batched * self.shape.hidden * STEP_BYTES)
        graphs = GRAPHS_GIB if self.engine.since(GRAPHS_SINCE) and not self.args.get("enforce-eager") else 0
        collectives = COLLECTIVES_GIB if chips > 1 else 0
        return peak + (CONTEXT_GIB + graphs + collectives) * GIB


def weights_size(manifest: Manifest | None, load_format: str = "auto") -> int | None:
    """Return the bytes of the weights alone, which is what the chips hold; None where they are unknown.

    Of tensors that are there in two formats, vLLM loads those of ``load_format``.
    """
    if manifest is None:
        return None
    sizes = {name: int(entry["size"]) for name, entry in manifest["files"].items() if name.endswith(".safetensors")}
    read, other = ("consolidated", "model") if load_format == "mistral" else ("model", "consolidated")
    if any(name.startswith(read) for name in sizes):
        sizes = {name: size for name, size in sizes.items() if not name.startswith(other)}
    return sum(sizes.values()) or None


def model_request(
    manifest: Manifest | None,
    args: Mapping[str, Any],
    accelerator: Accelerator,
    context: int,
    engine: Engine,
    beside: int = 0,
) -> Request | None:
    """Return what is to fit by the model's own configuration, None where the manifest has none that is understood.

    ``context`` counts where the configuration names no length, ``beside`` are the bytes of draft models and adapters.
    """
    size, shape = weights_size(manifest, str(args.get("load-format"))), shape_of((manifest or {}).get("config"))
    # vllm-ascend has caches of its own for what DeepSeek V4 compresses.
    if size is None or shape is None or (accelerator.stack == "cann" and any(part.page for part in shape.layers)):
        return None
    precision = str((manifest or {}).get("precision") or "")
    if not precision and args.get("quantization") in _HALVING and engine.since(_HALVED_SINCE):
        embeddings = min(size, 2 * shape.vocabulary * shape.hidden * shape.element_bytes)
        size = embeddings + (size - embeddings) // 2
    return Request(shape, size + beside, args, accelerator, shape.context or context, precision, engine)
